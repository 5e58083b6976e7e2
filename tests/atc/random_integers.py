"""Random models of integers, booleans and exact floats, and of operators that move data by indices."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.atc.random_builder import Builder, Tensor

DTYPES = ("float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "int64", "uint32", "uint64", "bool")


def arithmetic(b: Builder) -> None:
    x = b.operand("f", "i", "u")
    if x is None:
        return
    y = b.operand(x.dtype.name, wanted=lambda t: t.rank <= x.rank)
    if y is None or b.chance(0.4):
        shape = tuple(x.shape[i] if i in x.fixed() and b.chance(0.6) else 1 for i in range(x.rank))
        y = b.integers(-3 if x.dtype.kind != "u" else 0, 4, *shape[int(b.rng.integers(x.rank + 1)):], dtype=x.dtype)
    operands = [x, y][:: b.pick(1, -1)]
    b.add(b.pick("Add", "Sub", "Mul", "Max", "Min", "Add", "Sub"), *operands)


def divide(b: Builder) -> None:
    x = b.operand("i", "u", "f")
    if x is None:
        return
    low = -5 if x.dtype.kind != "u" else 1
    y = b.integers(low, 6, *x.shape[-1:] if x.rank and x.rank - 1 in x.fixed() and b.chance(0.5) else (), dtype=x.dtype)
    y[y == 0] = 2
    if x.dtype.kind == "f":
        y = (2.0 ** np.clip(y, -2, 2)).astype(x.dtype)
    op = b.pick("Div", "Mod")
    b.add(op, x, y, **({"fmod": 1 if x.dtype.kind == "f" else b.pick(0, 1)} if op == "Mod" else {}))


def unary(b: Builder) -> None:
    x = b.operand("i", "u", "f")
    if x is not None:
        ops = ["Abs", "Neg", "Sign", "Identity"] + (["Floor", "Ceil", "Round", "Relu", "IsNaN", "IsInf"] if x.dtype.kind == "f" else [])
        b.add(b.pick(*ops), x)


def bits(b: Builder) -> None:
    x = b.operand("i", "u")
    if x is None:
        return
    if x.dtype.kind == "u" and b.chance(0.4):
        b.add("BitShift", x, b.integers(0, 4, dtype=x.dtype), direction=b.pick("LEFT", "RIGHT"))
    elif b.chance(0.3):
        b.add("BitwiseNot", x)
    else:
        b.add(b.pick("BitwiseAnd", "BitwiseOr", "BitwiseXor"), x, b.integers(0, 100, dtype=x.dtype))


def compare(b: Builder) -> None:
    x = b.operand("i", "u", "f")
    if x is not None:
        y = b.operand(x.dtype.name, wanted=lambda t: t.rank <= x.rank) if b.chance(0.5) else None
        op = b.pick("Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual")
        b.add(op, x, y if y is not None else b.integers(0, 3, dtype=x.dtype))


def logic(b: Builder) -> None:
    x = b.operand("b")
    if x is None:
        return
    if b.chance(0.3):
        b.add("Not", x)
    else:
        y = b.operand("b")
        b.add(b.pick("And", "Or", "Xor", "Equal"), x, y)


def where(b: Builder) -> None:
    flag, x = b.operand("b"), b.operand()
    if flag is not None and x is not None:
        y = b.operand(x.dtype.name)
        b.add("Where", flag, x, y if b.chance(0.5) else b.integers(0, 2, dtype=x.dtype))


def cast(b: Builder) -> None:
    x = b.operand()
    if x is None:
        return
    dtype = np.dtype(b.pick(*DTYPES))
    if dtype.kind in "iu":  # what does not fit is undefined
        info, both = np.iinfo(dtype), [v.astype(np.float64) for v in x.values]
        if any(v.size and (v.min() < info.min or v.max() > info.max) for v in both):
            return
    b.add("Cast", x, to=helper.np_dtype_to_tensor_dtype(dtype))


def extreme(b: Builder) -> None:
    x = b.operand("i", "u", "f", wanted=lambda t: t.rank > 0)
    if x is not None:
        b.add(b.pick("ArgMax", "ArgMin"), x, axis=int(b.rng.integers(-x.rank, x.rank)), keepdims=b.pick(0, 1),
              select_last_index=b.pick(0, 1))  # fmt: skip


def topk(b: Builder) -> None:
    x = b.operand("i", "f", wanted=lambda t: t.rank > 0)
    if x is None:
        return
    axis = int(b.rng.integers(x.rank))
    k = np.array([int(b.rng.integers(1, x.least(axis) + 1)) if x.least(axis) else 1], np.int64)
    b.add("TopK", x, k, results=2, axis=axis, largest=b.pick(0, 1), sorted=1)


def cumulative(b: Builder) -> None:
    x = b.operand("i", "f", wanted=lambda t: t.rank > 0)
    if x is not None:
        axis = np.array(b.rng.integers(-x.rank, x.rank), np.int64)
        b.add("CumSum", x, axis, exclusive=b.pick(0, 1), reverse=b.pick(0, 1))


def index_of(b: Builder, x: Tensor, axis: int, dtype: str | None = None) -> Tensor | None:
    """An integer tensor of the model brought into the range of an axis."""
    y = b.operand("int32", "int64", wanted=lambda t: x.least(axis) > 0)
    if y is None:
        return None
    made = b.add("Mod", y, np.array(x.least(axis), y.dtype))
    return made[0] if made else None


def one_hot(b: Builder) -> None:
    x = b.operand("int32", "int64", "float32")
    if x is not None:
        values = b.pick(np.array([0, 1], np.float32), np.array([-2, 3], np.int64), np.array([0, 1], np.int32))
        b.add("OneHot", x, np.array(b.pick(3, 5), np.int64), values, axis=int(b.rng.integers(-x.rank - 1, x.rank + 1)))


def gather(b: Builder) -> None:
    x = b.operand(wanted=lambda t: t.rank > 0)
    if x is None:
        return
    axis = int(b.rng.integers(x.rank))
    if (rows := index_of(b, x, axis)) is not None:
        b.add(b.pick("Gather", "Gather", "GatherElements"), x, rows, axis=axis - b.pick(0, x.rank))


def gather_nd(b: Builder) -> None:
    x = b.operand(wanted=lambda t: t.rank > 1 and min(t.values[i].size for i in range(len(t.values))) > 0)
    if x is None:
        return
    batch = b.pick(0, 0, 1) if 0 in x.fixed() else 0
    depth = int(b.rng.integers(1, x.rank - batch + 1))
    most = [x.least(batch + i) for i in range(depth)]
    lead = (*x.shape[:batch], *((3,) if b.chance(0.7) else ()))
    rows = np.stack([b.integers(-m, m, *lead) for m in most], -1)
    b.add("GatherND", x, rows, batch_dims=batch)


def scatter(b: Builder) -> None:
    x = b.operand("float32", "int32", "int64", wanted=lambda t: t.rank > 0 and len(t.fixed()) == t.rank)
    if x is None:
        return
    reduction = b.pick("none", "add", "mul", "max", "min")
    if b.chance(0.5):
        axis = int(b.rng.integers(x.rank))
        shape = tuple(int(b.rng.integers(1, d + 1)) for d in x.shape)
        rows = np.argsort(b.rng.random(x.shape), axis).astype(np.int64)[tuple(slice(n) for n in shape)]
        b.add("ScatterElements", x, rows, b.integers(-3, 4, *shape, dtype=x.dtype), axis=axis, reduction=reduction)
    else:
        depth = int(b.rng.integers(1, x.rank + 1))
        count = int(b.rng.integers(1, min(4, x.shape[0]) + 1))
        rows = np.stack([b.rng.permutation(x.shape[0])[:count], *(b.integers(0, d, count) for d in x.shape[1:depth])], -1)
        b.add("ScatterND", x, rows.astype(np.int64), b.integers(-3, 4, count, *x.shape[depth:], dtype=x.dtype), reduction=reduction)


def non_zero(b: Builder) -> None:
    x = b.operand("b", "i", "f", wanted=lambda t: t.rank > 0)
    if x is None:
        return
    found = b.add("NonZero", x)
    if found and b.chance(0.7):
        rows = b.add("Transpose", found[0], perm=[1, 0])
        if b.chance(0.6):
            b.add("GatherND", x, rows[0])


def compress(b: Builder) -> None:
    x, flags = b.operand(wanted=lambda t: t.rank > 0), b.operand("b", wanted=lambda t: t.rank == 1)
    if x is not None and flags is not None:
        b.add("Compress", x, flags, **({"axis": int(b.rng.integers(-x.rank, x.rank))} if b.chance(0.7) else {}))


def unique(b: Builder) -> None:
    x = b.operand("float32", "int64")
    if x is not None:
        b.add("Unique", x, results=int(b.rng.integers(1, 5)))


def extents(b: Builder, x: Tensor) -> Tensor | None:
    made = b.add("Shape", x)
    return made[0] if made else None


def shape_chain(b: Builder) -> None:
    """Shapes computed inside of the model: flattening, Expand, ConstantOfShape, Range, Size."""
    x = b.operand(wanted=lambda t: t.rank > 0)
    if x is None or (shape := extents(b, x)) is None:
        return
    axis = int(b.rng.integers(x.rank))
    one = b.add("Gather", shape, np.array([axis], np.int64), axis=0)[0]
    kind = b.pick("flat", "expand", "fill", "range", "size", "slice")
    if kind == "flat":
        target = b.add("Concat", one, np.array([-1], np.int64), axis=0)
        b.add("Reshape", x, target[0])
    elif kind == "expand":
        small = b.operand(x.dtype.name, wanted=lambda t: t.rank <= x.rank)
        if small is not None:
            b.add("Expand", small, shape)
    elif kind == "fill":
        value = helper.make_tensor("v", helper.np_dtype_to_tensor_dtype(x.dtype), [1], [1])
        b.add("ConstantOfShape", one if b.chance(0.5) else shape, value=value)
    elif kind == "range":
        scalar = b.add("Squeeze", one, np.array([0], np.int64))
        made = b.add("Range", np.array(0, np.int64), scalar[0], np.array(b.pick(1, 2), np.int64))
        if made and axis == x.rank - 1 and x.dtype == np.int64:
            b.add("Add", x, made[0])
    elif kind == "size":
        b.add("Size", x)
    else:
        half = b.add("Div", one, np.array([2], np.int64))
        b.add("Slice", x, half[0] if b.chance(0.5) else np.array([0], np.int64), one, np.array([axis], np.int64))


def tile(b: Builder) -> None:
    x = b.operand(wanted=lambda t: t.values[0].size < 2000)
    if x is not None:
        b.add("Tile", x, b.integers(1, 4, x.rank))


def blocks(b: Builder) -> None:
    x = b.operand("float32", wanted=lambda t: t.rank == 4)
    if x is not None:
        b.add(*b.pick(("DepthToSpace", x), ("SpaceToDepth", x)), blocksize=2)


def triangle(b: Builder) -> None:
    x = b.operand(wanted=lambda t: t.rank >= 2)
    if x is not None:
        b.add("Trilu", x, *((np.array(b.rng.integers(-3, 4), np.int64),) if b.chance(0.6) else ()), upper=b.pick(0, 1))


def einsum(b: Builder) -> None:
    x = b.operand("float32", wanted=lambda t: t.rank in (2, 3))
    if x is None:
        return
    if x.rank == 2:
        b.add("Einsum", *b.pick((x,), (x, x)), equation=b.pick("ij->ji", "ij->j", "ij,ik->jk", "ij,ij->i", "ij,kj->ik"))
    else:
        b.add("Einsum", x, x, equation=b.pick("bij,bik->bjk", "bij,bij->bi", "bij,bkj->bik", "bij,bij->", "bij,bik->bijk"))


def reduction(b: Builder) -> None:
    x = b.operand("f", "i", wanted=lambda t: t.rank > 0)
    if x is None:
        return
    axes = b.rng.permutation(x.rank)[: int(b.rng.integers(1, x.rank + 1))].astype(np.int64) - b.pick(0, x.rank)
    op = b.pick("ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare", "ReduceProd")
    b.add(op, x, *((axes,) if b.chance(0.8) else ()), keepdims=b.pick(0, 1))


def move(b: Builder) -> None:
    x = b.operand()
    if x is None:
        return
    kind = b.pick("Transpose", "Concat", "Slice", "Pad", "Flatten", "Unsqueeze", "Squeeze", "Split", "Expand", "Reverse")
    axis = int(b.rng.integers(x.rank)) if x.rank else 0
    at = np.array([axis], np.int64)
    if kind == "Transpose":
        b.add("Transpose", x, perm=[int(a) for a in b.rng.permutation(x.rank)])
    elif kind == "Concat":
        y = b.operand(x.dtype.name, wanted=lambda t: t.rank == x.rank)
        b.add("Concat", *[x, y][:: b.pick(1, -1)], axis=axis - b.pick(0, x.rank))
    elif kind == "Slice":
        step = b.pick(1, 2, -1, -2)
        start, end = (b.pick(0, 1), b.pick(-1, 1 << 40)) if step > 0 else (b.pick(-1, 1 << 40), b.pick(0, -(1 << 40)))
        b.add("Slice", x, np.array([start], np.int64), np.array([end], np.int64), at, np.array([step], np.int64))
    elif kind == "Pad":
        mode = b.pick("constant", "edge", "reflect", "wrap")
        low = 0 if mode != "constant" else -1
        widths = b.integers(low, 3, 2 * x.rank)
        b.add("Pad", x, widths, *((np.array(1, x.dtype),) if mode == "constant" and b.chance(0.6) else ()), mode=mode)
    elif kind == "Flatten":
        b.add("Flatten", x, axis=int(b.rng.integers(x.rank + 1)))
    elif kind == "Unsqueeze" and x.rank < 6:
        b.add("Unsqueeze", x, np.array([int(b.rng.integers(-x.rank - 1, x.rank + 1))], np.int64))
    elif kind == "Squeeze":
        b.add("Squeeze", x, *((at,) if b.chance(0.7) else ()))
    elif kind == "Split" and x.rank:
        first = int(b.rng.integers(0, x.shape[axis] + 1))
        b.add("Split", x, np.array([first, x.shape[axis] - first], np.int64), results=2, axis=axis)
    elif kind == "Expand":
        shape = [3 if i in x.fixed() and d == 1 else 1 for i, d in enumerate(x.shape)]
        b.add("Expand", x, np.array([*([2] * b.pick(0, 0, 1)), *shape], np.int64))
    elif kind == "Reverse" and x.rank >= 2 and 0 in x.fixed():
        b.add("ReverseSequence", x, b.integers(1, max(x.least(1), 1) + 1, x.shape[0]), batch_axis=0, time_axis=1)


def clip(b: Builder) -> None:
    x = b.operand("i", "f", "u")
    if x is not None:
        low, high = np.array(b.pick(0, 1), x.dtype), np.array(b.pick(2, 3), x.dtype)
        b.add("Clip", x, *b.pick((low,), (low, high), (None, high)))


STEPS = [arithmetic] * 4 + [unary, compare, compare, logic, where, where, cast, cast, cast] + [move] * 7 + [
    divide, bits, extreme, topk, cumulative, one_hot, gather, gather, gather_nd, scatter, non_zero, compress, unique,
    shape_chain, shape_chain, tile, blocks, triangle, einsum, reduction, reduction, clip,
]  # fmt: skip


def start(b: Builder) -> None:
    """Floats are multiples of a quarter: sums and products of them are exact."""
    quarters = lambda *shape: b.rng.integers(-12, 13, shape) / 4  # noqa: E731
    b.input(np.float32, "n", 6, "w", make=quarters)
    b.input(np.float32, b.pick(2, "n"), 4, b.pick(1, 2, 6), b.pick("w", 4), make=quarters)
    b.input(b.pick(np.int32, np.int64), "n", b.pick(1, 5), make=lambda *s: b.rng.integers(-9, 10, s))
    b.input(b.pick(np.uint8, np.int8, np.uint16, np.uint32, np.float16), b.pick(5, "w"), make=lambda *s: b.rng.integers(0, 9, s))
    b.input(np.bool_, b.pick(5, "w"), make=lambda *s: b.rng.integers(0, 2, s))
    if b.chance(0.5):
        b.input(np.float32, make=quarters)
    if b.chance(0.3):
        b.input(np.float32, 1, 2, 1, 3, 2, "w", make=quarters)
