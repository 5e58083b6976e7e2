"""Integers, booleans and exact floats, and operators that move data by indices: every result is exact."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.atc.random_models.builder import Builder, Refused, Tensor, Theme, ints, number
from tests.atc.random_models.floats import differ_along

DTYPES = (
    "float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "int64", "uint32", "uint64", "bool",
)  # fmt: skip


def numeric(b: Builder, least: int = 0) -> Tensor:
    return b.operand("f", "i", "u", wanted=lambda t: t.rank >= least)


def arithmetic(b: Builder) -> None:
    x = numeric(b)
    low = 0 if x.dtype.kind == "u" else -3
    y = b.integers(low, 4, *b.part(x), dtype=x.dtype) if b.chance(0.4) else b.operand(x.dtype.name)
    b.add(b.pick("Add", "Sub", "Mul", "Max", "Min", "Add", "Sub"), *[x, y][:: b.pick(1, -1)])


def divide(b: Builder) -> None:
    x = numeric(b)
    y = b.integers(1 if x.dtype.kind == "u" else -5, 6, *b.part(x))
    y[y == 0] = 2
    if x.dtype.kind == "f":
        b.add("Div", x, (2.0 ** np.clip(y, -2, 2)).astype(x.dtype))
    else:
        b.add("Div", x, y.astype(x.dtype))


def modulo(b: Builder) -> None:
    x = numeric(b)
    b.add("Mod", x, number(b.pick(2, 3, 5), x.dtype), fmod=1 if x.dtype.kind == "f" else b.pick(0, 1))


def unary(b: Builder) -> None:
    x = numeric(b)
    floats = ("Floor", "Ceil", "Round", "Relu", "IsNaN", "IsInf") if x.dtype.kind == "f" else ()
    b.add(b.pick("Abs", "Neg", "Sign", "Identity", *floats), x)


def clip(b: Builder) -> None:
    x = numeric(b)
    low, high = number(b.pick(0, 1), x.dtype), number(b.pick(2, 3), x.dtype)
    b.add("Clip", x, *b.pick((low,), (low, high), (None, high)))


def bits(b: Builder) -> None:
    x = b.operand("i", "u")
    if b.chance(0.3):
        b.add("BitwiseNot", x)
    else:
        b.add(b.pick("BitwiseAnd", "BitwiseOr", "BitwiseXor"), x, b.integers(0, 100, dtype=x.dtype))


def shift(b: Builder) -> None:
    x = b.operand("u")
    b.add("BitShift", x, b.integers(0, 4, dtype=x.dtype), direction=b.pick("LEFT", "RIGHT"))


def compare(b: Builder) -> None:
    x = numeric(b)
    y = b.operand(x.dtype.name) if b.chance(0.5) else b.integers(0, 3, dtype=x.dtype)
    b.add(b.pick("Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual"), x, y)


def logic(b: Builder) -> None:
    op = b.pick("Not", "And", "Or", "Xor", "Equal")
    b.add(op, *(b.operand("b") for _ in range(1 if op == "Not" else 2)))


def where(b: Builder) -> None:
    flag, x = b.operand("b"), b.operand()
    b.add("Where", flag, x, b.operand(x.dtype.name) if b.chance(0.5) else b.integers(0, 2, dtype=x.dtype))


def cast(b: Builder) -> None:
    x, dtype = b.operand(), np.dtype(b.pick(*DTYPES))
    if dtype.kind in "iu":  # what does not fit is undefined
        info = np.iinfo(dtype)
        if any(v.size and (v.astype(float).min() < info.min or v.astype(float).max() > info.max) for v in x.values):
            raise Refused
    b.add("Cast", x, to=helper.np_dtype_to_tensor_dtype(dtype))


def extreme(b: Builder) -> None:
    x = numeric(b, 1)
    axis = b.axis(x) - b.pick(0, x.rank)
    b.add(b.pick("ArgMax", "ArgMin"), x, axis=axis, keepdims=b.pick(0, 1), select_last_index=b.pick(0, 1))


def topk(b: Builder) -> None:
    x = numeric(b, 1)
    axis = b.axis(x)
    b.several(2, "TopK", x, ints(b.pick(*range(1, x.least(axis) + 1))), axis=axis, largest=b.pick(0, 1))


def cumulative(b: Builder) -> None:
    x = numeric(b, 1)
    axis = number(b.axis(x) - b.pick(0, x.rank), np.int64)
    b.add("CumSum", x, axis, exclusive=b.pick(0, 1), reverse=b.pick(0, 1))


def one_hot(b: Builder) -> None:
    x = b.operand("int32", "int64", "float32")
    values = b.pick(np.array([0, 1], np.float32), np.array([-2, 3], np.int64), np.array([0, 1], np.int32))
    b.add("OneHot", x, number(b.pick(3, 5), np.int64), values, axis=b.pick(*range(-x.rank - 1, x.rank + 1)))


def gather(b: Builder) -> None:
    """Indices are a tensor of the model, brought into the range of the axis."""
    x = b.operand(wanted=lambda t: t.rank and t.least(*range(t.rank)))
    axis = b.axis(x)
    raw = b.operand("int32", "int64")
    rows = b.add("Mod", raw, number(x.least(axis), raw.dtype))
    b.add(b.pick("Gather", "Gather", "GatherElements"), x, rows, axis=axis - b.pick(0, x.rank))


def gather_nd(b: Builder) -> None:
    x = b.operand(wanted=lambda t: t.rank > 1 and t.least(*range(t.rank)))
    batch = b.pick(0, 0, 1) if x.is_fixed(0) else 0
    depth = b.pick(*range(1, x.rank - batch + 1))
    lead = (*x.shape[:batch], *b.pick((), (3,), (2, 2)))
    rows = [b.integers(-x.least(batch + i), x.least(batch + i), *lead) for i in range(depth)]
    b.add("GatherND", x, np.stack(rows, -1), batch_dims=batch)


def scatter_elements(b: Builder) -> None:
    x = b.operand("float32", "int32", "int64", wanted=lambda t: t.rank and t.is_fixed(*range(t.rank)))
    axis, shape = b.axis(x), tuple(b.pick(*range(1, d + 1)) for d in x.shape)
    rows = np.argsort(b.rng.random(x.shape), axis).astype(np.int64)[tuple(slice(n) for n in shape)]
    reduction = b.pick("none", "add", "mul", "max", "min")
    b.add("ScatterElements", x, rows, b.integers(-3, 4, *shape, dtype=x.dtype), axis=axis, reduction=reduction)


def scatter_nd(b: Builder) -> None:
    x = b.operand("float32", "int32", "int64", wanted=lambda t: t.rank and t.is_fixed(*range(t.rank)))
    depth, count = b.pick(*range(1, x.rank + 1)), b.pick(*range(1, min(4, x.shape[0]) + 1))
    first = b.rng.permutation(x.shape[0])[:count]
    rows = np.stack([first, *(b.integers(0, d, count) for d in x.shape[1:depth])], -1).astype(np.int64)
    values = b.integers(-3, 4, count, *x.shape[depth:], dtype=x.dtype)
    b.add("ScatterND", x, rows, values, reduction=b.pick("none", "add", "mul", "max", "min"))


def non_zero(b: Builder) -> None:
    x = b.operand("b", "i", "f", wanted=lambda t: t.rank)
    rows = b.add("Transpose", b.add("NonZero", x), perm=[1, 0])
    if b.chance(0.6):
        b.add("GatherND", x, rows)


def compress(b: Builder) -> None:
    x, flags = b.operand(wanted=lambda t: t.rank), b.operand("b", wanted=lambda t: t.rank == 1)
    b.add("Compress", x, flags, **({"axis": b.axis(x) - b.pick(0, x.rank)} if b.chance(0.7) else {}))


def unique(b: Builder) -> None:
    b.several(b.pick(1, 2, 3, 4), "Unique", b.operand("float32", "int64"))


def extent(b: Builder, x: Tensor, axis: int) -> Tensor:
    """[the extent of an axis], as the run finds it."""
    return b.add("Gather", b.add("Shape", x), ints(axis), axis=0)


def reshape_by_extents(b: Builder) -> None:
    x = b.operand(wanted=lambda t: t.rank)
    b.add("Reshape", x, b.add("Concat", extent(b, x, b.axis(x)), ints(-1), axis=0))


def expand_by_extents(b: Builder) -> None:
    x = b.operand()
    b.add("Expand", b.operand(x.dtype.name, wanted=lambda t: t.rank <= x.rank), b.add("Shape", x))


def fill(b: Builder) -> None:
    x = b.operand(wanted=lambda t: t.rank)
    value = helper.make_tensor("v", helper.np_dtype_to_tensor_dtype(x.dtype), [1], [1])
    b.add("ConstantOfShape", extent(b, x, b.axis(x)) if b.chance(0.5) else b.add("Shape", x), value=value)


def count_up(b: Builder) -> None:
    x = b.operand(wanted=lambda t: t.rank)
    end = b.add("Squeeze", extent(b, x, -1), ints(0))
    numbers = b.add("Range", number(0, np.int64), end, number(b.pick(1, 2), np.int64))
    b.add("Add", b.operand("int64"), numbers)


def half(b: Builder) -> None:
    x = b.operand(wanted=lambda t: t.rank)
    axis = b.axis(x)
    size = extent(b, x, axis)
    b.add("Slice", x, b.pick(ints(0), b.add("Div", size, ints(2))), size, ints(axis))


def tile(b: Builder) -> None:
    x = b.operand()
    b.add("Tile", x, b.integers(1, 4, x.rank))


def depth(b: Builder) -> None:
    x = b.operand("float32", wanted=lambda t: t.rank == 4)
    if b.chance(0.5):
        b.add("DepthToSpace", x, blocksize=2, mode=b.pick("DCR", "CRD"))
    else:
        b.add("SpaceToDepth", x, blocksize=2)


def triangle(b: Builder) -> None:
    x = b.operand(wanted=lambda t: t.rank >= 2)
    b.add("Trilu", x, *b.pick((), (number(b.pick(-2, -1, 1, 2), np.int64),)), upper=b.pick(0, 1))


def reduction(b: Builder) -> None:
    x = b.operand("f", "i", wanted=lambda t: t.rank)
    axes = b.rng.permutation(x.rank)[: b.pick(*range(1, x.rank + 1))].astype(np.int64) - b.pick(0, x.rank)
    op = b.pick("ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare", "ReduceProd")
    b.add(op, x, *b.pick((), (axes,), (axes,)), keepdims=b.pick(0, 1))


def transpose(b: Builder) -> None:
    x = b.operand()
    b.add("Transpose", x, **({"perm": [int(a) for a in b.rng.permutation(x.rank)]} if x.rank else {}))


def join(b: Builder) -> None:
    x = b.operand(wanted=lambda t: t.rank)
    axis = b.axis(x)
    y = b.operand(x.dtype.name, wanted=lambda t: differ_along(x, t, axis))
    b.add("Concat", *[x, y][:: b.pick(1, -1)], axis=axis - b.pick(0, x.rank))


def cut(b: Builder) -> None:
    x, step = b.operand(wanted=lambda t: t.rank), b.pick(1, 2, -1, -2)
    far = 1 << 40
    start, end = (b.pick(0, 1, -2), b.pick(-1, far)) if step > 0 else (b.pick(-1, 2, far), b.pick(0, -far))
    b.add("Slice", x, ints(start), ints(end), ints(b.axis(x)), ints(step))


def pad(b: Builder) -> None:
    x, mode = b.operand(), b.pick("constant", "edge", "reflect", "wrap")
    value = b.pick((), (number(1, x.dtype),)) if mode == "constant" else ()
    b.add("Pad", x, b.integers(-1 if mode == "constant" else 0, 3, 2 * x.rank), *value, mode=mode)


def rank(b: Builder) -> None:
    """Flatten, Unsqueeze, Squeeze."""
    x, op = b.operand(), b.pick("Flatten", "Unsqueeze", "Squeeze")
    if op == "Flatten":
        b.add(op, x, axis=b.pick(*range(-x.rank, x.rank + 1)))
    elif op == "Squeeze":
        b.add(op, x, *b.pick((), (ints(b.axis(x)),)))
    elif x.rank < 6:
        b.add(op, x, ints(b.pick(*range(-x.rank - 1, x.rank + 1))))


def split(b: Builder) -> None:
    x = b.operand(wanted=lambda t: t.fixed())
    axis = b.pick(*x.fixed())
    first = b.pick(*range(x.shape[axis] + 1))
    b.several(2, "Split", x, ints(first, x.shape[axis] - first), axis=axis)


def expand(b: Builder) -> None:
    x = b.operand()
    shape = [3 if d == 1 and x.is_fixed(i) else 1 for i, d in enumerate(x.shape)]
    b.add("Expand", x, ints(*[2] * b.pick(0, 0, 1), *shape))


def reverse_parts(b: Builder) -> None:
    x = b.operand(wanted=lambda t: t.rank >= 2 and t.is_fixed(0))
    b.add("ReverseSequence", x, b.integers(1, max(x.least(1), 1) + 1, x.shape[0]), batch_axis=0, time_axis=1)


def start(b: Builder) -> None:
    """Floats are multiples of a quarter: sums and products of them are exact."""
    quarters = lambda *shape: b.rng.integers(-12, 13, shape) / 4  # noqa: E731
    small = b.pick(np.uint8, np.int8, np.uint16, np.uint32, np.float16)
    b.input(np.float32, "n", 6, "w", make=quarters)
    b.input(np.float32, b.pick(2, "n"), 4, b.pick(1, 2, 6), b.pick("w", 4), make=quarters)
    b.input(b.pick(np.int32, np.int64), "n", b.pick(1, 5), make=lambda *s: b.rng.integers(-9, 10, s))
    b.input(small, b.pick(5, "w"), make=lambda *s: b.rng.integers(0, 9, s))
    b.input(np.bool_, b.pick(5, "w"), make=lambda *s: b.rng.integers(0, 2, s))
    if b.chance(0.5):
        b.input(np.float32, make=quarters)
    if b.chance(0.3):
        b.input(np.float32, 1, 2, 1, 3, 2, "w", make=quarters)


INTEGERS = Theme(
    start,
    [arithmetic] * 4 + [compare] * 2 + [where] * 2 + [cast] * 3 + [
        unary, divide, modulo, clip, bits, shift, logic, extreme, topk, cumulative, one_hot, gather, gather, gather_nd,
        scatter_elements, scatter_nd, non_zero, compress, unique, reshape_by_extents, expand_by_extents, fill, count_up,
        half, tile, depth, triangle, reduction, reduction, transpose, join, join, cut, cut, pad, rank, rank, split,
        expand, reverse_parts,
    ],
    exact=True,
)  # fmt: skip
