"""The attention problem of a Fused node: operands with the layouts of their heads, mask, scale, cache.

Layouts: operands [batch, heads, length, width] are 'bhsd'; Transposes with perm 0,2,1,3 around the Attention node, or
3-D operands with head counts, make them 'bshd'. Caches are always 'bhsd'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from codegen.kernels.operands import NotLowerable, body_of, outer_values, shape_of
from codegen.kernels.region_task import KernelTask
from codegen.tile.build import Buffer
from codegen.tile.ir import View
from graph_opt.ir.core import Node, Value
from tensor_types.dims import Dim, dim, names

_Item = TypeVar("_Item")
_HEAD_SPLIT = (0, 2, 1, 3)


@dataclass(frozen=True)
class Head:
    """An operand [batch, heads, length, width] in one of two orders."""

    value: Value
    layout: str
    batch: Dim
    heads: int
    length: Dim
    width: int
    room: Dim = 0
    """Rows behind the length that hold nothing yet (`graph_opt.fusion.fuse_caches`)."""

    def buffer(self, task: KernelTask, role: str = "in") -> Buffer:
        """The parameter in physical order."""
        batch, heads, length, width = task.extents(self.extents)
        return task.operand(self.value, role, self.in_order((batch, heads, length + task.extent(self.room), width)))

    @property
    def extents(self) -> tuple[Dim, ...]:
        """Batch, heads, length and width."""
        return self.batch, self.heads, self.length, self.width

    def in_order(self, items: Sequence[_Item]) -> list[_Item]:
        """Things that belong to batch, heads, length and width, in physical order."""
        batch, heads, length, width = items
        return [batch, heads, length, width] if self.layout == "bhsd" else [batch, length, heads, width]

    def view(self, buffer: Buffer, batch: Dim, head: Dim, row: Dim, column: Dim, shape: tuple[Dim, ...]) -> View:
        """Elements (row, column) of one head."""
        return buffer.view(*self.in_order((batch, head, row, column)), shape=shape)


@dataclass(frozen=True)
class Cache:
    """Keys or values of earlier tokens: `present` is `past` with `fresh` behind it."""

    past: Head | None
    fresh: Head
    present: Head


@dataclass(frozen=True)
class Problem:
    """An attention node with the layouts of its operands; `past` is the number of keys before the first query's own."""

    q: Head
    k: Head
    v: Head
    out: Head
    mask: Value | None
    scale: float
    softcap: float
    causal: bool
    window: int | None
    """From a query's own position, so many keys before it are seen. None: all."""
    nan_for_nothing: bool
    """A row that sees no key gives NaN, not 0."""
    past: Dim
    caches: tuple[Cache, ...]
    lengths: Value | None
    """How many keys each batch has, [batch]; the last query stands at the last of them. None: all."""
    """Results to be written before the attention reads them as K and V."""


def problem_of(node: Node) -> Problem:
    """Reads the body: an Attention node, head transposes around it. NotLowerable for anything else."""
    body = body_of(node)
    values = outer_values(node)
    anchors = [n for n in body.nodes if n.op == "Attention"]
    if len(anchors) != 1 or any(n.op not in ("Attention", "Transpose") for n in body.nodes):
        raise NotLowerable("the body is not one attention with head transposes")
    anchor = anchors[0]
    if any(v.name in values for v in anchor.outputs[3:]):
        raise NotLowerable("scores as a result")
    left, right = (int(anchor.attrs.get(f"{side}_window_size", -1)) for side in ("left", "right"))  # type: ignore[call-overload]
    if right >= 0:
        raise NotLowerable("a window that reaches behind a query's own position")
    if any(tuple(n.attrs.get("perm", ())) != _HEAD_SPLIT for n in body.nodes if n.op == "Transpose"):  # type: ignore[arg-type]
        raise NotLowerable("a transpose other than that of heads")
    room: Dim = dim(str(node.attrs["room"])) if "room" in node.attrs else 0
    q, k, v = (_operand(values, anchor, index, room if index else 0) for index in range(3))
    caches = [c for index, fresh in ((1, k), (2, v)) if (c := _cache(values, anchor, index, fresh)) is not None]
    past: Dim = 0
    inner_lengths = anchor.input(6)
    lengths = None if inner_lengths is None else values.get(inner_lengths.name, inner_lengths)
    if lengths is not None and (caches or not lengths.dtype.is_integer or not lengths.format.is_plain):
        raise NotLowerable("lengths beside a cache of earlier keys")
    if anchor.input(4) is not None:
        if len(caches) != 2 or caches[0].past is None:
            raise NotLowerable("a cache without its results")
        k, v = (c.present for c in caches)
        past = caches[0].past.length
    result = next((o for o in body.outputs if o is anchor.output or _turned(o) is anchor.output), None)
    if result is None:
        raise NotLowerable("the result is not that of the attention")
    bshd = (len(shape_of(anchor.output)) == 3) != (result is not anchor.output)
    out = Head(values[result.name], "bshd" if bshd else "bhsd", q.batch, q.heads, q.length, v.width)
    if q.heads % k.heads or k.heads != v.heads or q.width != k.width:
        raise NotLowerable("head counts or sizes do not belong together")
    inner_mask = anchor.input(3)
    mask = None if inner_mask is None else values.get(inner_mask.name, inner_mask)
    scale = anchor.attrs.get("scale")
    softcap = float(anchor.attrs.get("softcap", 0.0) or 0.0)  # type: ignore[arg-type]
    factor = q.width**-0.5 if scale is None else float(scale)  # type: ignore[arg-type]
    causal = bool(anchor.attrs.get("is_causal", 0))
    nan = node.attrs.get("softmax_of_nothing") == "nan"
    window = left if left >= 0 else None
    return Problem(q, k, v, out, mask, factor, softcap, causal, window, nan, past, tuple(caches), lengths)


def _turned(value: Value) -> Value | None:
    """What a head transpose that makes the value reads; None where there is none."""
    node = value.producer
    return node.inputs[0] if node is not None and node.op == "Transpose" else None


def _operand(values: Mapping[str, Value], anchor: Node, index: int, room: Dim) -> Head:
    """Q, K or V, taken before a head transpose. Its length is without the room of a cache."""
    inner = anchor.inputs[index]
    assert inner is not None
    source = _turned(inner)
    shape, layout = shape_of(inner), "bhsd" if source is None else "bshd"
    if len(shape) == 3:
        count, hidden = anchor.attrs["kv_num_heads" if index else "q_num_heads"], shape[2]
        if source is not None or not isinstance(hidden, int) or not isinstance(count, int):
            raise NotLowerable("the hidden size is not static")
        shape, layout = (shape[0], count, shape[1], hidden // count), "bshd"
    return _head(values[(source or inner).name], layout, shape, room if names(room) & names(shape[2]) else 0)


def _head(value: Value, layout: str, shape: Sequence[Dim], room: Dim = 0) -> Head:
    batch, heads, length, width = shape
    if not isinstance(heads, int) or not isinstance(width, int):
        raise NotLowerable("heads and head size must be static")
    if not value.format.is_plain:
        raise NotLowerable("operands in plain order only")
    return Head(value, layout, batch, heads, length - room, width, room)


def _cache(values: Mapping[str, Value], anchor: Node, index: int, fresh: Head) -> Cache | None:
    """The cache of K (1) or V (2); None if its result is not asked for."""
    if len(anchor.outputs) <= index or anchor.outputs[index].name not in values:
        return None
    inner, past = anchor.outputs[index], anchor.input(3 + index)
    before = None if past is None else _head(values[past.name], "bhsd", shape_of(past))
    return Cache(before, fresh, _head(values[inner.name], "bhsd", shape_of(inner)))
