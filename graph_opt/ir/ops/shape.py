"""Operators that make shapes and constants: Shape, Size, Range, ConstantOfShape, random fills."""

from __future__ import annotations

from typing import cast

import numpy as np

from graph_opt.ir.ops.registry import (
    CONTENT_LIMIT,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    STRING,
    STRINGS,
    TENSOR,
    Inference,
    declare,
)  # fmt: skip
from tensor_types.dims import Dim, ceildiv, dmax, product
from tensor_types.dtypes import F32, I64, STR, DType, from_numpy, from_onnx


def _shape(ctx: Inference) -> None:
    shape = ctx.shape()
    if shape is None:
        return ctx.set(0, I64, (ctx.fresh(),))
    end = ctx.attr("end")
    part = shape[slice(int(ctx.attr("start")), None if end is None else int(end))]
    ctx.set(0, I64, (len(part),), part)


def _size(ctx: Inference) -> None:
    shape = ctx.shape()
    ctx.set(0, I64, (), None if shape is None else (product(shape),))


def _constant(ctx: Inference) -> None:
    attrs = ctx.node.attrs
    if "value" in attrs:
        array = np.asarray(attrs["value"])
        dtype = from_numpy(array.dtype)
        whole = array.size <= CONTENT_LIMIT and dtype.kind in ("int", "uint", "bool")
        return ctx.set(0, dtype, array.shape, tuple(int(v) for v in array.reshape(-1)) if whole else None)
    for suffix, dtype in (("float", F32), ("int", I64), ("string", STR)):
        if f"value_{suffix}" in attrs:
            number = attrs[f"value_{suffix}"]
            return ctx.set(0, dtype, (), (number,) if isinstance(number, int) else None)
        if f"value_{suffix}s" in attrs:
            several = cast("tuple[int, ...]", attrs[f"value_{suffix}s"])
            return ctx.set(0, dtype, (len(several),), several if dtype is I64 else None)
    raise ctx.error("no value")


def _constant_of_shape(ctx: Inference) -> None:
    value = ctx.attr("value")
    dtype: DType = F32 if value is None else from_numpy(np.asarray(value).dtype)
    number = 0 if value is None else np.asarray(value).reshape(-1)[0]
    shape, length = ctx.content(0), ctx.shape(0)
    if shape is None:
        rank = length[0] if length else None
        return ctx.set(0, dtype, ctx.fresh_shape(rank) if isinstance(rank, int) else None)
    count = product(shape)
    small = isinstance(count, int) and count <= CONTENT_LIMIT and float(number).is_integer()
    ctx.set(0, dtype, shape, [int(number)] * cast(int, count) if small else None)


def _whole(ctx: Inference, index: int) -> tuple[Dim, ...] | None:
    """The content of a bound, that of the integers which a Cast made floats of included."""
    value = ctx.value(index)
    if value.data is not None and value.dtype.is_float:
        number = float(value.data.reshape(-1)[0])
        return (int(number),) if number.is_integer() else None
    cast_from = value.producer.inputs[0] if value.producer is not None and value.producer.op == "Cast" else None
    return ctx.content(index) if cast_from is None or not value.dtype.is_float else cast_from.content


def _range(ctx: Inference) -> None:
    bounds = [_whole(ctx, i) for i in range(3)]
    if any(b is None for b in bounds):
        values = [ctx.value(i).data for i in range(3)]
        if any(v is None for v in values):
            return ctx.set(0, ctx.dtype(), (ctx.fresh(),))
        first, limit, delta = (float(v.reshape(-1)[0]) for v in values if v is not None)
        return ctx.set(0, ctx.dtype(), (max(int(np.ceil((limit - first) / delta)), 0),))
    start, stop, step = (b[0] for b in bounds if b is not None)
    if not isinstance(step, int):
        return ctx.set(0, ctx.dtype(), (ctx.fresh(),))
    if step == 0:
        raise ctx.error("a delta of 0")
    span = stop - start if step > 0 else start - stop
    count: Dim = ceildiv(span, abs(step))
    count = count if ctx.proves(0, count) else dmax(count, 0)
    small = isinstance(count, int) and count <= CONTENT_LIMIT
    content = [start + step * i for i in range(cast(int, count))] if small else None
    ctx.set(0, ctx.dtype(), (count,), content)


def _random(ctx: Inference) -> None:
    ctx.set(0, from_onnx(int(ctx.attr("dtype"))), [int(d) for d in ctx.attr("shape")])


def _multinomial(ctx: Inference) -> None:
    shape = ctx.shape()
    batch = ctx.fresh() if shape is None else shape[0]
    ctx.set(0, from_onnx(int(ctx.attr("dtype"))), (batch, int(ctx.attr("sample_size"))))


declare("Shape", "data", "shape", _shape, {"start": 0, "end": INT})
declare("Size", "data", "shape", _size)
declare(
    "Constant", "", "shape", _constant,
    {"value": TENSOR, "sparse_value": TENSOR, "value_float": FLOAT, "value_floats": FLOATS, "value_int": INT,
     "value_ints": INTS, "value_string": STRING, "value_strings": STRINGS},
)  # fmt: skip
declare("ConstantOfShape", "input", "movement", _constant_of_shape, {"value": TENSOR})
declare("Range", "start limit delta", "movement", _range, {"stash_type": 1})
declare(
    "RandomNormal", "", "aicpu", _random, {"shape": INTS, "dtype": 1, "seed": FLOAT, "scale": 1.0, "mean": 0.0},
    deterministic=False,
)  # fmt: skip
declare(
    "RandomUniform", "", "aicpu", _random, {"shape": INTS, "dtype": 1, "seed": FLOAT, "high": 1.0, "low": 0.0},
    deterministic=False,
)  # fmt: skip
declare(
    "Multinomial", "input", "aicpu", _multinomial, {"dtype": 6, "seed": FLOAT, "sample_size": 1}, deterministic=False
)
