"""The forms of opsets 7 to 13: attributes that became inputs, other defaults, other ranks."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.atc.random_models.builder import Builder, Refused, Tensor, Theme, ints, number
from tests.atc.random_models.floats import join, matmul, transpose


def by_input(
    b: Builder, since: int, op: str, x: Tensor, results: int = 1, *, given: dict[str, list], **attrs: object
) -> None:
    """`given` are attributes before the opset `since`, and int64 inputs from it on."""
    if b.opset < since:
        b.several(results, op, x, **given, **attrs)
    else:
        b.several(results, op, x, *(ints(*v) for v in given.values()), **attrs)


def unary(b: Builder) -> None:
    ops = ("Relu", "Sigmoid", "Tanh", "Elu", "Selu", "LeakyRelu", "Softplus", "Softsign", "HardSigmoid", "Exp", "Floor",
           "Identity", "Atan")  # fmt: skip
    b.add(b.pick(*ops), b.real())


def binary(b: Builder) -> None:
    op, x = b.pick("Add", "Sub", "Mul", "Max", "Min", "Sum", "Mean", "PRelu"), b.real()
    part = b.floats(*b.part(x))
    b.add(op, x, part if op == "PRelu" else b.pick(part, b.real()))  # a slope may not be wider than what it scales


def dropout(b: Builder) -> None:
    x = b.real()
    if b.opset < 12:
        b.add("Dropout", x, ratio=0.3)
    else:
        b.several(b.pick(1, 2), "Dropout", x)


def clip(b: Builder) -> None:
    low, high = b.pick((-0.5, 0.7), (None, 1.0), (0.0, None))
    if b.opset < 11:
        bounds = {"min": low, "max": high}
        b.add("Clip", b.real(), **{k: v for k, v in bounds.items() if v is not None})
    else:
        b.add("Clip", b.real(), *(None if v is None else number(v) for v in (low, high)))


def softmax(b: Builder) -> None:
    """Before opset 13 over all axes from `axis` on, whose default is 1."""
    x = b.real(1)
    axis = {} if b.chance(0.3) else {"axis": b.axis(x) - (b.pick(0, x.rank) if b.opset > 10 else 0)}
    b.add(b.pick("Softmax", "LogSoftmax", "Hardmax"), x, **axis)


def squeeze(b: Builder) -> None:
    x = b.real()
    ones = [a for a in x.fixed() if x.shape[a] == 1]
    if ones and b.chance(0.5):
        by_input(b, 13, "Squeeze", x, given={"axes": ones[:1]})
    elif x.rank < 5:
        by_input(b, 13, "Unsqueeze", x, given={"axes": [b.pick(*range(x.rank + 1))]})


def reduction(b: Builder) -> None:
    x = b.real(1)
    op = b.pick("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceLogSumExp")
    axes = [a - (b.pick(0, x.rank) if b.opset > 10 else 0) for a in {b.axis(x), b.axis(x)}]
    given = {} if b.chance(0.2) else {"axes": axes}
    by_input(b, 13 if op == "ReduceSum" else 18, op, x, given=given, keepdims=b.pick(0, 1))


def split(b: Builder) -> None:
    x = b.operand("float32", wanted=lambda t: t.fixed())
    axis = b.pick(*x.fixed())
    first = b.pick(*range(1, x.shape[axis] + 1))
    given = {} if b.chance(0.3) else {"split": [first, x.shape[axis] - first]}
    by_input(b, 13, "Split", x, 2, given=given, axis=axis)


def cut(b: Builder) -> None:
    x = b.real(1)
    given = {"starts": [b.pick(0, 1, -2)], "ends": [b.pick(-1, 2, 1 << 31)], "axes": [b.axis(x)]}
    by_input(b, 10, "Slice", x, given=given)


def pad(b: Builder) -> None:
    x, mode = b.real(2), b.pick("constant", "edge", "reflect")
    widths = [0] * (2 * x.rank)
    widths[x.rank - 1], widths[-1] = b.pick(0, 1, 2), b.pick(0, 1)
    fill = mode == "constant" and b.chance(0.5)
    if b.opset < 11:
        b.add("Pad", x, pads=widths, mode=mode, **({"value": 0.5} if fill else {}))
    else:
        b.add("Pad", x, ints(*widths), *([number(0.5)] if fill else []), mode=mode)


def topk(b: Builder) -> None:
    x = b.real(1)
    axis = b.axis(x)
    k = b.pick(*range(1, x.least(axis) + 1))
    if b.opset < 10:
        b.several(2, "TopK", x, axis=axis, k=k)
    else:
        b.several(2, "TopK", x, ints(k), axis=axis)


def resize(b: Builder) -> None:
    x, mode = b.real(0, 4), b.pick("nearest", "linear")
    scales = np.array([1, 1, b.pick(1, 2, 3), b.pick(2, 1.5)], np.float32)
    if b.opset < 9:
        b.add("Upsample", x, mode=mode, scales=scales.tolist())
    elif b.opset < 11:
        b.add("Upsample" if b.opset == 9 else "Resize", x, scales, mode=mode)
    else:
        how = {
            "coordinate_transformation_mode": b.pick("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"),
            "nearest_mode": b.pick("floor", "round_prefer_floor", "ceil"),
        }
        b.add("Resize", x, None if b.opset > 12 else np.zeros(0, np.float32), scales, mode=mode, **how)


def batch_norm(b: Builder) -> None:
    x = b.real(2, fixed=[1])
    parameters = [b.floats(x.shape[1]) for _ in range(3)]
    b.add("BatchNormalization", x, *parameters, np.abs(b.floats(x.shape[1])) + number(0.5), epsilon=1e-3)


def gemm(b: Builder) -> None:
    x = b.real(2)
    x = b.add("Flatten", x, axis=b.pick(1, x.rank - 1)) if x.rank > 2 else x
    if not x.is_fixed(1):
        raise Refused
    k, n, turned = x.shape[1], b.pick(1, 3, 16), b.pick(0, 1)
    weight = b.floats(*((n, k) if turned else (k, n)), scale=k**-0.5)
    bias = [b.floats(*b.pick((n,), (1,), (), (1, n)))] if b.opset < 11 or b.chance(0.7) else []
    b.add("Gemm", x, weight, *bias, transB=turned, alpha=b.pick(1.0, 0.5), beta=b.pick(1.0, 2.0))


def padding(b: Builder, rank: int) -> dict[str, object]:
    return b.pick(
        {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}, {"auto_pad": "VALID"}, {}, {"pads": [1] * 2 * rank}
    )


def convolution(b: Builder) -> None:
    x = b.real(0, 3, 4, fixed=[1])
    rank, c, n = x.rank - 2, x.shape[1], b.pick(1, 4, 6)
    weight = b.floats(n, c, *[b.pick(1, 2, 3)] * rank, scale=c**-0.5)
    b.add("Conv", x, weight, strides=[b.pick(1, 2)] * rank, **padding(b, rank))


def transposed_convolution(b: Builder) -> None:
    x = b.real(0, 4, fixed=[1])
    extra = b.pick(padding(b, 2), {"output_padding": [1, 1]})
    b.add("ConvTranspose", x, b.floats(x.shape[1], b.pick(1, 4), 3, 3, scale=0.3), strides=[2, 2], **extra)


def pooling(b: Builder) -> None:
    x = b.operand("float32", wanted=lambda t: t.rank in (3, 4) and t.least(*range(2, t.rank)) > 2)
    op, extra = b.pick("MaxPool", "AveragePool", "LpPool"), padding(b, x.rank - 2)
    if op == "AveragePool":
        extra = {**extra, "count_include_pad": b.pick(0, 1)}
    if op != "LpPool" and b.opset >= 10 and "auto_pad" not in extra:
        extra = {**extra, "ceil_mode": b.pick(0, 1)}
    rank = x.rank - 2
    b.add(op, x, kernel_shape=[b.pick(2, 3)] * rank, strides=[b.pick(1, 2)] * rank, **extra)


def global_pooling(b: Builder) -> None:
    b.add(b.pick("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), b.real(0, 3, 4))


def cast(b: Builder) -> None:
    to = np.dtype(b.pick(np.float64, np.int32, np.bool_, np.float16))
    b.add("Cast", b.add("Cast", b.real(), to=helper.np_dtype_to_tensor_dtype(to)), to=1)


def extreme(b: Builder) -> None:
    x = b.real(1)
    b.add(b.pick("ArgMax", "ArgMin"), x, axis=b.axis(x), keepdims=b.pick(0, 1))


def gather(b: Builder) -> None:
    x = b.operand("float32", wanted=lambda t: t.fixed())
    axis = b.pick(*x.fixed())
    b.add("Gather", x, b.integers(0, x.shape[axis], *b.pick((), (1,), (3,), (2, 2))), axis=axis)


def scatter(b: Builder) -> None:
    x = b.operand("float32", wanted=lambda t: t.rank == 2 and t.is_fixed(0, 1))
    b.add("Scatter" if b.opset < 11 else "ScatterElements", x, b.integers(0, x.shape[1], 1, 1), b.floats(1, 1), axis=1)


def reshape(b: Builder) -> None:
    x = b.real(2)
    b.add(*b.pick(("Reshape", x, ints(0, -1)), ("Flatten", x), ("Transpose", x)))


def where(b: Builder) -> None:
    x = b.real()
    b.add("Where", b.add("Greater", x, number(0.1)), x, number(-1))


def normalise(b: Builder) -> None:
    x = b.real(0, 3, 4, fixed=[1])
    op = b.pick("LRN", "InstanceNormalization", "LpNormalization")
    if op == "LRN":
        b.add(op, x, size=b.pick(1, 3, 5), alpha=0.1)
    elif op == "InstanceNormalization":
        b.add(op, x, b.floats(x.shape[1]), b.floats(x.shape[1]), epsilon=1e-3)
    else:
        b.add(op, x, axis=1, p=b.pick(1, 2))


def start(b: Builder) -> None:
    b.input(np.float32, "n", b.pick(2, 4, 5), b.pick("h", 6), b.pick("w", 7), make=b.floats)
    b.input(np.float32, b.pick("n", 3), b.pick(3, 8), b.pick("w", 9), make=b.floats)
    b.input(np.float32, 5, 7, make=b.floats)


OLD_FORMS = Theme(
    start,
    [binary] * 3 + [unary] * 2 + [
        dropout, clip, softmax, squeeze, reduction, reduction, split, cut, cut, pad, topk, resize, batch_norm, gemm,
        matmul, convolution, convolution, transposed_convolution, pooling, global_pooling, cast, extreme, gather,
        scatter, reshape, reshape, transpose, join, where, normalise,
    ],
    opsets=range(7, 14),
)  # fmt: skip
