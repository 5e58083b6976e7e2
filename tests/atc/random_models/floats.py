"""Ordinary f32 operators: convolutions, products, normalisations and what moves data between them."""

from __future__ import annotations

import numpy as np

from tests.atc.random_models.builder import Builder, Tensor, Theme, ints, number

UNARY = (
    "Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Erf", "Softplus", "HardSwish", "HardSigmoid", "LeakyRelu", "Elu", "Selu",
    "Sin", "Cos", "Floor", "Ceil", "Round", "Softsign", "Mish", "Identity", "Sign",
)  # fmt: skip


def unary(b: Builder) -> None:
    b.add(b.pick(*UNARY), b.real())


def binary(b: Builder) -> None:
    x = b.real()
    y = b.floats(*b.part(x)) if b.chance(0.4) else b.real()
    b.add(b.pick("Add", "Sub", "Mul", "Max", "Min", "Add", "Mul"), *[x, y][:: b.pick(1, -1)])


def select(b: Builder) -> None:
    x = b.real(1)
    flag = b.add(b.pick("Greater", "Less", "GreaterOrEqual"), x, b.floats())
    b.add("Where", flag, x, b.floats(*x.shape[-1:] if x.is_fixed(-1) else ()))


def clip(b: Builder) -> None:
    b.add("Clip", b.real(), number(-0.7) if b.chance(0.7) else None, number(1.1))


def convolution(b: Builder) -> None:
    x = b.real(0, 3, 4, 4, fixed=[1])
    rank, channels = x.rank - 2, x.shape[1]
    group = b.pick(1, 1, 1, channels, 2 if channels % 2 == 0 else 1)
    features = channels if group == channels else group * b.pick(*range(1, 12))
    kernel = [b.pick(*range(1, min(4, x.least(2 + i)) + 1)) for i in range(rank)]
    weight = b.floats(features, channels // group, *kernel, scale=(channels // group * np.prod(kernel)) ** -0.5)
    bias = [b.floats(features)] if b.chance(0.6) else []
    pads = [b.pick(*range(k)) for k in (*kernel, *kernel)]
    strides, dilations = ([b.pick(1, 1, 1, 2) for _ in kernel] for _ in range(2))
    b.add("Conv", x, weight, *bias, strides=strides, pads=pads, group=group, dilations=dilations)


def transposed_convolution(b: Builder) -> None:
    x = b.real(0, 3, 4, fixed=[1])
    rank, group, features = x.rank - 2, b.pick(1, 1, x.shape[1]), b.pick(*range(1, 9))
    weight = b.floats(x.shape[1], features, *[b.pick(1, 2, 3, 4)] * rank, scale=x.shape[1] ** -0.5)
    bias = [b.floats(features * group)] if b.chance(0.5) else []
    pads = [b.pick(0, 0, 1)] * (2 * rank)
    b.add("ConvTranspose", x, weight, *bias, strides=[b.pick(1, 2, 3)] * rank, pads=pads, group=group)


def pooling(b: Builder) -> None:
    x = b.operand("float32", wanted=lambda t: t.rank in (3, 4) and t.least(*range(2, t.rank)) > 2)
    op, rank = b.pick("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"), x.rank - 2
    if op.startswith("Global"):
        b.add(op, x)
        return
    extra = {"count_include_pad": b.pick(0, 1)} if op == "AveragePool" else {}
    pads = [1] * rank + [b.pick(0, 1)] * rank
    strides = [b.pick(1, 2)] * rank
    b.add(op, x, kernel_shape=[b.pick(2, 3)] * rank, strides=strides, pads=pads, ceil_mode=b.pick(0, 0, 1), **extra)


def batch_norm(b: Builder) -> None:
    x = b.real(2, fixed=[1])
    mean, deviation, gamma, beta = (b.floats(x.shape[1]) for _ in range(4))
    b.add("BatchNormalization", x, gamma, beta, mean, np.abs(deviation) + number(0.5))


def layer_norm(b: Builder) -> None:
    x = b.real(2, fixed=[-1])
    b.add("LayerNormalization", x, b.floats(x.shape[-1]), b.floats(x.shape[-1]), axis=-1, epsilon=1e-3)


def softmax(b: Builder) -> None:
    x = b.real(1)
    b.add(b.pick("Softmax", "LogSoftmax"), x, axis=b.axis(x) - b.pick(0, x.rank))


def reduction(b: Builder) -> None:
    x = b.operand("float32", wanted=lambda t: t.rank and t.least(*range(t.rank)))  # a mean of nothing is undefined
    op = b.pick("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")
    b.add(op, x, ints(*{b.axis(x), b.axis(x)}), keepdims=b.pick(0, 1, 1))


def matmul(b: Builder) -> None:
    x = b.real(1, fixed=[-1])
    k, n = x.shape[-1], b.pick(*range(1, 40))
    b.add("MatMul", x, b.floats(k, n, scale=k**-0.5))


def gemm(b: Builder) -> None:
    x = b.real(0, 2, fixed=[-1])
    k, n, turned = x.shape[-1], b.pick(*range(1, 40)), b.pick(0, 1)
    weight = b.floats(*((n, k) if turned else (k, n)), scale=k**-0.5)
    b.add("Gemm", x, weight, b.floats(n), transB=turned, alpha=b.pick(1.0, 0.5))


def product(b: Builder) -> None:
    """A product of two run-time operands."""
    x = b.real(2)
    turned = b.add("Transpose", x, perm=[*range(x.rank - 2), x.rank - 1, x.rank - 2])
    b.add("MatMul", *[x, b.pick(turned, turned, b.real(2))][:: b.pick(1, -1)])


def einsum(b: Builder) -> None:
    x = b.real(0, 2, 3, 4)
    equations = {
        2: ("ij->ji", "ij->j", "ij,ik->jk", "ij,ij->i", "ij,kj->ik"),
        3: ("bij,bik->bjk", "bij,bij->bi", "bij,bkj->bik", "bij,bij->", "bij,bik->bijk"),
        4: ("bhij,bhkj->bhik", "bihd,bjhd->bhij", "bhij->bjhi", "...ij,...kj->...ik"),
    }
    equation = b.pick(*equations[x.rank])
    b.add("Einsum", *[x] * (1 + ("," in equation)), equation=equation)


def transpose(b: Builder) -> None:
    x = b.real(2)
    b.add("Transpose", x, perm=[int(a) for a in b.rng.permutation(x.rank)])


def reshape(b: Builder) -> None:
    x = b.real(2)
    rest = int(np.prod([x.shape[a] for a in x.fixed() if a]))
    cut = b.pick(*[d for d in range(1, rest + 1) if rest % d == 0])
    b.add("Reshape", x, ints(*b.pick([0, cut, -1], [-1, cut], [0, -1, cut])))


def squeeze(b: Builder) -> None:
    x = b.real(0, *range(6))
    b.add(b.pick("Unsqueeze", "Squeeze"), x, ints(b.pick(*range(x.rank + 1))))


def join(b: Builder) -> None:
    x = b.real(1)
    axis = b.axis(x)
    y = b.operand("float32", wanted=lambda t: differ_along(x, t, axis))
    b.add("Concat", *[x, y, x][: b.pick(2, 2, 3)], axis=axis)


def differ_along(x: Tensor, y: Tensor, axis: int) -> bool:
    """Whether the shapes are equal but for one axis, at all sizes: onnxruntime joins empty tensors of any shape."""
    return x.rank == y.rank > axis and all(
        np.delete(v.shape, axis).tolist() == np.delete(w.shape, axis).tolist()
        for v, w in zip(x.values, y.values, strict=True)
    )


def cut(b: Builder) -> None:
    x = b.real(1)
    start, end, axis, step = b.pick(0, 1, -3), b.pick(-1, 2, 1 << 40), b.axis(x), b.pick(1, 1, 2)
    b.add("Slice", x, ints(start), ints(end), ints(axis), ints(step))


def split(b: Builder) -> None:
    x = b.operand("float32", wanted=lambda t: any(t.shape[a] > 1 for a in t.fixed()))
    axis = b.pick(*[a for a in x.fixed() if x.shape[a] > 1])
    first = b.pick(*range(1, x.shape[axis]))
    b.several(2, "Split", x, ints(first, x.shape[axis] - first), axis=axis)


def pad(b: Builder) -> None:
    x = b.real(1)
    axes = b.rng.permutation(x.rank)[:2].astype(np.int64)
    b.add("Pad", x, b.integers(0, 3, 2 * len(axes)), None, axes, mode=b.pick("constant", "edge", "reflect"))


def gather(b: Builder) -> None:
    x = b.operand("float32", wanted=lambda t: t.rank and t.least(*range(t.rank)))
    axis = b.axis(x)
    rows = b.integers(-x.least(axis), x.least(axis), *b.pick((), (1,), (3,), (2, 2)))
    b.add("Gather", x, rows, axis=axis)


def resize(b: Builder) -> None:
    scales = np.array([1, 1, b.pick(2, 1, 1.5), b.pick(2, 3)], np.float32)
    how = b.pick("half_pixel", "asymmetric", "align_corners")
    mode = b.pick("nearest", "linear", "cubic")
    b.add("Resize", b.real(0, 4), None, scales, mode=mode, coordinate_transformation_mode=how)


def expand(b: Builder) -> None:
    x = b.real(1)
    b.add("Expand", x, ints(*(3 if d == 1 and x.is_fixed(i) else 1 for i, d in enumerate(x.shape))))


def start(b: Builder) -> None:
    b.input(np.float32, "n", b.pick(*range(1, 17)), b.pick("h", 9), b.pick("w", 7), make=b.floats)
    b.input(np.float32, b.pick("n", 2), 7, b.pick("w", 24), make=b.floats)
    b.input(np.float32, b.pick("h", 1), make=b.floats)
    if b.chance(0.3):
        b.input(np.float32, make=b.floats)
    if b.chance(0.2):
        b.input(np.float32, 2, 1, b.pick("w", 3), 2, 1, b.pick("n", 4), make=b.floats)


FLOATS = Theme(
    start,
    [unary] * 5 + [binary] * 6 + [convolution] * 6 + [matmul] * 3 + [
        select, clip, transposed_convolution, pooling, pooling, batch_norm, layer_norm, softmax, reduction, reduction,
        gemm, product, product, einsum, transpose, transpose, reshape, reshape, squeeze, join, join, cut, split, pad,
        gather, resize, expand,
    ],
)  # fmt: skip
