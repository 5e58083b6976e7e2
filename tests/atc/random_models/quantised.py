"""Quantised arithmetic. Scales are powers of two and values multiples of them, so that sums are exact in f32."""

from __future__ import annotations

import numpy as np

from tests.atc.random_models.builder import Builder, Tensor, Theme, ints, number
from tests.atc.random_models.floats import differ_along


def scale(b: Builder, *shape: int) -> np.ndarray:
    return (2.0 ** b.integers(-6, -2, *shape)).astype(np.float32)


def codes(b: Builder, *shape: int, dtype: object = np.int8) -> np.ndarray:
    """A stored weight."""
    return b.integers(*((-20, 21) if dtype == np.int8 else (100, 140)), *shape, dtype=dtype)


def quantise(b: Builder, x: Tensor) -> list[Tensor | np.ndarray]:
    """x in 8 bits, its scale and its zero point."""
    dtype, s = b.pick(np.int8, np.uint8, np.uint8), scale(b)
    zero = b.integers(*((-5, 6) if dtype == np.int8 else (100, 140)), dtype=dtype)
    return [b.add("QuantizeLinear", x, s, zero), s, zero]


def rounded(b: Builder, x: Tensor) -> Tensor:
    """x quantised and dequantised."""
    return b.add("DequantizeLinear", *quantise(b, x))


def weight(b: Builder, *shape: int, axis: int) -> Tensor:
    """A stored weight, dequantised per tensor or along an axis."""
    s = scale(b, shape[axis]) if b.chance(0.5) else scale(b)
    return b.add(
        "DequantizeLinear", codes(b, *shape), s, np.zeros(s.shape, np.int8), **({"axis": axis} if s.ndim else {})
    )


def whole(b: Builder, *shape: int) -> np.ndarray:
    return b.integers(-4, 5, *shape, dtype=np.float32)


def finish(b: Builder, y: Tensor) -> None:
    if b.chance(0.4):
        y = b.add("Relu", y)
    if b.chance(0.8):
        rounded(b, y)


def store(b: Builder) -> None:
    quantise(b, b.real())


def chain(b: Builder) -> None:
    rounded(b, b.real())


def convolution(b: Builder) -> None:
    x = rounded(b, b.real(0, 4, fixed=[1]))
    c, k = x.shape[1], b.pick(1, 3, 2)
    group = b.pick(1, 1, c)
    features = c if group == c else b.pick(4, 5, 8, 16)
    w = weight(b, features, c // group, k, k, axis=0)
    bias = b.pick((), (whole(b, features),))
    finish(b, b.add("Conv", x, w, *bias, pads=[k // 2] * 4, strides=[b.pick(1, 2)] * 2, group=group))


def matmul(b: Builder) -> None:
    x, n = rounded(b, b.real(2, fixed=[-1])), b.pick(1, 3, 8, 17)
    y = b.add("MatMul", x, weight(b, x.shape[-1], n, axis=1))
    finish(b, b.add("Add", y, whole(b, n)) if b.chance(0.5) else y)


def gemm(b: Builder) -> None:
    x, n = rounded(b, b.real(0, 2, fixed=[1])), b.pick(1, 3, 8, 17)
    finish(b, b.add("Gemm", x, weight(b, n, x.shape[1], axis=0), whole(b, n), transB=1))


def dynamic(b: Builder) -> None:
    """What dynamic quantisation writes: the range of the run, an integer product, the scales."""
    x, n = b.real(2, fixed=[-1]), b.pick(1, 4, 17)
    q, s, zero = b.several(3, "DynamicQuantizeLinear", x)
    weight_zero = b.pick(number(0, np.int8), b.integers(-3, 4, n, dtype=np.int8))
    product = b.add("MatMulInteger", q, codes(b, x.shape[-1], n), zero, weight_zero)
    b.add("Mul", b.add("Cast", product, to=1), b.add("Mul", s, scale(b)))


def integer_matmul(b: Builder) -> None:
    x = b.operand("int8", "uint8", wanted=lambda t: t.rank >= 2 and t.is_fixed(-1))
    w = codes(b, x.shape[-1], b.pick(1, 3, 16), dtype=b.pick(np.int8, np.uint8))
    zeros = [b.integers(0, 9, dtype=t.dtype) for t in (x, w)]
    b.add("MatMulInteger", x, w, *zeros[: b.pick(0, 1, 2)])


def integer_convolution(b: Builder) -> None:
    x = b.operand("uint8", wanted=lambda t: t.rank == 4 and t.is_fixed(1))
    k = b.pick(1, 3)
    w = codes(b, b.pick(1, 4, 9), x.shape[1], k, k, dtype=b.pick(np.int8, np.uint8))
    b.add("ConvInteger", x, w, *b.pick((), (number(7, x.dtype),)), pads=[k // 2] * 4)


def linear_convolution(b: Builder) -> None:
    x = b.operand("uint8", "int8", wanted=lambda t: t.rank == 4 and t.is_fixed(1))
    n = b.pick(1, 4, 9)
    zeros = [b.integers(0, 9, dtype=x.dtype) for _ in range(2)]
    s = scale(b, *b.pick((), (n,)))
    operands = [x, scale(b), zeros[0], codes(b, n, x.shape[1], 3, 3), s, np.zeros(s.shape, np.int8)]
    bias = b.pick((), (b.integers(-99, 99, n, dtype=np.int32),))
    b.add("QLinearConv", *operands, scale(b) * number(64), zeros[1], *bias, pads=[1] * 4)


def linear_matmul(b: Builder) -> None:
    x = b.operand("uint8", "int8", wanted=lambda t: t.rank >= 2 and t.is_fixed(-1))
    zeros = [b.integers(0, 9, dtype=x.dtype) for _ in range(2)]
    w = codes(b, x.shape[-1], b.pick(1, 3, 16))
    b.add("QLinearMatMul", x, scale(b), zeros[0], w, scale(b), number(0, np.int8), scale(b) * number(64), zeros[1])


def transpose(b: Builder) -> None:
    x = b.operand()
    b.add("Transpose", x, perm=[0, *(1 + int(a) for a in b.rng.permutation(x.rank - 1))])


def join(b: Builder) -> None:
    x = b.operand()
    b.add("Concat", x, b.operand(x.dtype.name, wanted=lambda t: differ_along(x, t, 1)), axis=1)


def pooling(b: Builder) -> None:
    x = b.operand(wanted=lambda t: t.rank == 4 and t.least(2, 3) > 1)
    op = "AveragePool" if x.dtype == np.float32 and b.chance(0.5) else "MaxPool"
    b.add(op, x, kernel_shape=[2, 2], strides=[b.pick(1, 2)] * 2)


def reshape(b: Builder) -> None:
    b.add("Reshape", b.operand(), ints(0, -1))


def cut(b: Builder) -> None:
    b.add("Slice", b.operand(), ints(1), ints(1 << 40), ints(-1))


def add(b: Builder) -> None:
    x = b.real()
    y = b.add("Add", x, number(0.5) if b.chance(0.4) else b.real(0, x.rank))
    finish(b, y)


def start(b: Builder) -> None:
    eighths = lambda *shape: b.rng.integers(-24, 25, shape) / 8  # noqa: E731
    b.input(np.float32, "n", b.pick(3, 4, 16), b.pick("h", 6), b.pick("w", 5, 8), make=eighths)
    b.input(np.float32, "n", b.pick(7, "w"), b.pick(8, 13), make=eighths)
    b.input(np.float32, "n", b.pick(8, 24), make=eighths)


QUANTISED = Theme(
    start,
    [convolution] * 3 + [matmul] * 2 + [
        gemm, chain, dynamic, integer_matmul, integer_convolution, linear_convolution, linear_matmul, store, store,
        transpose, join, pooling, reshape, cut, add, add,
    ],
    opsets=(21,),
    exact=True,
)  # fmt: skip
