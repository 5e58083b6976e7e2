"""Writes operators that are about positions as arithmetic on counted axes, which fuses with what is around it.

    Trilu(x, k)                   -> Where(column - row >= k, x, 0)        lower: <=
    EyeLike(x) {k}                -> Cast(column - row == k)
    OneHot(indices, depth, v)     -> Where(wrapped indices == 0..depth-1, v[1], v[0])
    GatherND(x, indices)          -> Gather(x with its leading axes as one, position in that axis)
    ReverseSequence(x, lengths)   -> the same, the position in time being length - 1 - t where t < length, else t

Rules
1. Positions count from 0 along an axis: Range(0, extent, 1); an extent that only the run knows is that of Shape.
2. GatherND: indices of two axes or more, no batch axes. An index that is out of range on its own axis becomes one
   that is out of range of all, so that it is refused and never reads another row.
3. OneHot: the depth is a number of the model.
4. ReverseSequence: a length that is negative or longer than time is refused as such an index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.fusion.position_writer import NOWHERE, Writer
from graph_opt.ir.patterns import Declined, Match, any_value, attribute, op, optional
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.rules import Rule, RulePass
from graph_opt.simplify.shape_targets import reshape_target
from tensor_types.dims import Dim, product

_X, _INDICES = any_value("x"), any_value("indices")


def _trilu(rewriter: Rewriter, match: Match) -> Declined | None:
    x, w = match["x"], Writer(rewriter, match)
    if x.shape is None or len(x.shape) < 2 or x.dtype.kind not in ("float", "int", "uint", "bool"):
        return Declined("its rank or dtype")
    k = match.get("k") or w.number(0)
    compare = "GreaterOrEqual" if attribute(match.root, "upper") else "LessOrEqual"
    zero = rewriter.constant(np.zeros((), x.dtype.numpy), f"{w.name}/zero", x.dtype)
    match.become(rewriter, "Where", [w(compare, w.diagonals(x), k), x, zero])
    return None


def _eye_like(rewriter: Rewriter, match: Match) -> Declined | None:
    x, w = match["x"], Writer(rewriter, match)
    if x.shape is None or len(x.shape) != 2 or match.root.output.dtype.kind not in ("float", "int", "uint", "bool"):
        return Declined("its rank or dtype")
    ones = w("Equal", w.diagonals(x), w.number(int(match.root.attrs.get("k", 0))))  # type: ignore[call-overload]
    match.become(rewriter, "Cast", [ones], {"to": match.root.output.dtype.onnx})
    return None


def _one_hot(rewriter: Rewriter, match: Match) -> Declined | None:
    indices, depth, values, w = match["indices"], match["depth"], match["values"], Writer(rewriter, match)
    result = match.root.output
    if depth.data is None or indices.shape is None or result.shape is None or values.dtype.kind == "handle":
        return Declined("its depth is known at run time only")
    count, rank = int(depth.data.reshape(-1)[0]), len(result.shape)
    axis = int(match.root.attrs.get("axis", -1)) % rank  # type: ignore[call-overload]
    index = w("Unsqueeze", w.wrapped(w.as_i64(indices), w.number(count)), w.number([axis]))
    shape = [-1 if k == axis else 1 for k in range(rank)]
    classes = rewriter.constant(np.arange(count, dtype=np.int64).reshape(shape), f"{w.name}/classes")
    off, on = (w("Gather", values, w.number(k, "which"), axis=0) for k in (0, 1))
    match.become(rewriter, "Where", [w("Equal", index, classes), on, off])
    return None


def _gather_nd(rewriter: Rewriter, match: Match) -> Declined | None:
    x, indices, w = match["x"], match["indices"], Writer(rewriter, match)
    if attribute(match.root, "batch_dims") or x.shape is None or indices.shape is None:
        return Declined("batch axes, or an unknown rank")
    count = indices.shape[-1]
    if not isinstance(count, int) or not 2 <= count <= len(x.shape):
        return Declined("indices of one axis have a kernel")
    merged: tuple[Dim, ...] = (product(x.shape[:count]), *x.shape[count:])
    target = reshape_target(x.shape, merged)
    if target is None:
        return Declined("the shape of its slices is known at run time only")
    index = w.as_i64(indices)
    parts = [w("Gather", index, w.number(k, "which"), axis=-1) for k in range(count)]
    position, outside = None, None
    for k, part in enumerate(parts):
        extent = w.extent(x, k)
        part = w.wrapped(part, extent)
        wrong = w("Or", w("Less", part, w.number(0)), w("GreaterOrEqual", part, extent))
        outside = wrong if outside is None else w("Or", outside, wrong)
        position = part if position is None else w("Add", w("Mul", position, extent), part)
    assert position is not None and outside is not None
    checked = w("Where", outside, w.number(NOWHERE, "nowhere"), position)
    match.become(rewriter, "Gather", [w("Reshape", x, w.number(target, "merged")), checked], {"axis": 0})
    return None


def _reverse_sequence(rewriter: Rewriter, match: Match) -> Declined | None:
    x, w = match["x"], Writer(rewriter, match)
    if x.shape is None or len(x.shape) < 2 or 0 in x.shape:
        return Declined("its shape")
    target = w.number([-1], "rows")
    if len(x.shape) > 2:
        target = w("Concat", target, w("Shape", x, start=2), axis=0)
    time = int(attribute(match.root, "time_axis"))  # type: ignore[call-overload]
    extent = w.extent(x, time)
    across = w.number([1 - time], "axis")
    steps = w("Unsqueeze", w.positions(x, time), across)
    length = w("Unsqueeze", w.as_i64(match["lengths"]), w.number([time], "axis"))
    step = w("Where", w("Less", steps, length), w("Sub", w("Sub", length, w.number(1)), steps), steps)
    other = w("Unsqueeze", w.positions(x, 1 - time), w.number([time], "axis"))
    first, second = (step, other) if time == 0 else (other, step)
    position = w("Add", w("Mul", first, w.extent(x, 1)), second)
    wrong = w("Or", w("Less", length, w.number(0)), w("Less", extent, length))
    checked = w("Where", wrong, w.number(NOWHERE, "nowhere"), position)
    rows = w("Reshape", checked, w.number([-1], "rows"))
    taken = w("Gather", w("Reshape", x, target), rows, axis=0)
    match.become(rewriter, "Reshape", [taken, w("Shape", x)], {"allowzero": 1})
    return None


@dataclass(frozen=True)
class ExpandPositions(RulePass):
    """See the module."""

    name: ClassVar[str] = "expand-positions"
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("triangle", op("Trilu", _X, optional(any_value("k"))), _trilu),
        Rule("eye", op("EyeLike", _X), _eye_like),
        Rule("one-hot", op("OneHot", _INDICES, any_value("depth"), any_value("values")), _one_hot),
        Rule("reverse-sequence", op("ReverseSequence", _X, any_value("lengths")), _reverse_sequence),
        Rule("gather-nd", op("GatherND", _X, _INDICES), _gather_nd),
    )
