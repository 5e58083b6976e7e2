"""Caches that grow from run to run get room behind their rows, so that a run may write new rows where the old ones lie.

    %present = Concat(%past, %rows)                             past a graph input, present a graph output
    %present = TensorScatter(Pad(%past), %rows, %starts)

becomes one `append` kernel whose result has `room` rows more than the model says, and whose first `held` rows are taken
for granted. Both are dims that no input tells. They are 0, and the kernel copies the past into a result of the model's
own size; or the session has a buffer in which past and present begin at the same place, and nothing is copied
(`acl_runtime.growing_caches`).

Rules
1. Nothing but the kernel reads the past, but for its shape, and the kernel runs in every run. Inputs tell all sizes.
2. The present is read by attention alone, as keys or values; its kernel leaves the room out. Who asks for the rows of a
   Concat gets the sum of those of its parts.
3. Caches whose past and present have the same rows share the two dims.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar

from graph_opt.fusion.families import Kernels
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.core import AttrValue
from graph_opt.ir.ops.registry import is_fresh
from graph_opt.ir.outline import outline
from graph_opt.ir.passes import Declining
from graph_opt.ir.rewriter import Rewriter
from tensor_types.dims import Dim, Expr, dim, names

HELD, ROOM = "held", "room"
"""Attributes of `append` and attention kernels: the names of the dims."""


@dataclass(frozen=True)
class _Cache:
    past: Value
    present: Value
    members: tuple[Node, ...]
    axis: int


@dataclass(frozen=True)
class FuseCaches(Declining):
    """See the module. Caches that are copied in each run are told in `notes`."""

    kernels: Kernels
    name: ClassVar[str] = "fuse-caches"

    def apply(self, graph: Graph) -> bool:
        groups: dict[tuple[Dim, Dim], list[_Cache]] = defaultdict(list)
        for present in dict.fromkeys(graph.outputs):
            found = _cache(graph, present)
            if found is not None and found.past.shape is not None and present.shape is not None:
                groups[found.past.shape[found.axis], present.shape[found.axis]].append(found)
        fused = False
        for caches in groups.values():
            held, room = (_free_dim(graph, kind) for kind in (HELD, ROOM))
            graph.dims[held], graph.dims[room] = (0, None), (0, None)
            reasons = [_fuse(graph, self.kernels, cache, held, room) for cache in caches]
            for cache, reason in zip(caches, reasons, strict=True):
                if reason is not None:
                    self.declined[cache.members[-1].name] = reason
            if None in reasons:
                fused = True
            else:
                del graph.dims[held], graph.dims[room]
        return fused


def _free_dim(graph: Graph, kind: str) -> str:
    number = 0
    while f"rows_{kind}{number}" in graph.dims:
        number += 1
    return f"rows_{kind}{number}"


def _cache(graph: Graph, present: Value) -> _Cache | None:
    """The cache that a graph output continues."""
    node = present.producer
    if node is None or node.guards or present.shape is None:
        return None
    if node.op == "Concat" and len(node.inputs) == 2:
        past, members = node.inputs[0], (node,)
        axis = int(node.attrs["axis"]) % present.rank  # type: ignore[call-overload]
    elif node.op == "TensorScatter" and node.inputs[0] is not None:
        pad = node.inputs[0].producer
        if pad is None or pad.op != "Pad" or pad.guards or len(node.inputs[0].uses) != 1:
            return None
        past, members = pad.inputs[0], (pad, node)
        axis = int(node.attrs.get("axis", -2)) % present.rank  # type: ignore[call-overload]
        if graph.is_output(node.inputs[0]) or not _pads_behind(pad, axis):
            return None
    else:
        return None
    if past is None or past not in graph.inputs or past.name in graph.states or past.shape is None:
        return None
    rows = past.shape[axis]
    is_read = any(user is not members[0] and user.op != "Shape" for user, _ in past.uses) or graph.is_output(past)
    if is_read or not isinstance(rows, Expr) or not rows.is_name:
        return None
    if any(is_fresh(name) for extent in (*past.shape, *present.shape) for name in names(extent)):
        return None  # a session knows no sizes that only the run decides
    return _Cache(past, present, members, axis)


def _pads_behind(pad: Node, axis: int) -> bool:
    """True if the node adds zeros behind one axis alone."""
    pads, fill, axes = (pad.input(index) for index in (1, 2, 3))
    if pads is None or fill is not None or pad.attrs.get("mode", "constant") != "constant":
        return False
    rank, content = pad.output.rank, _numbers(pads)
    padded = range(rank) if axes is None else [int(a) % rank for a in _numbers(axes) or () if isinstance(a, int)]
    if content is None or len(content) != 2 * len(padded) or axis not in padded:
        return False
    at = list(padded).index(axis) + len(padded)
    return all(p == 0 for k, p in enumerate(content) if k != at)


def _numbers(value: Value) -> tuple[Dim, ...] | None:
    """The elements of a small tensor, as far as they are known at convert time."""
    return value.content if value.recipe is None else tuple(int(p) for p in value.recipe.array().reshape(-1))


def _fuse(graph: Graph, kernels: Kernels, cache: _Cache, held: str, room: str) -> str | None:
    """Puts the kernel in the place of the cache's nodes; why not, if there is none and all is as it was."""
    present, before = cache.present, cache.present.shape
    assert before is not None
    counts = [user for user, _ in present.uses if cache.members[0].op == "Concat" and _counts_rows(user, cache.axis)]
    readers = list(dict.fromkeys(user for user, _ in present.uses if user not in counts))
    known = [reader.attrs.get(ROOM) for reader in readers]
    for reader, room_of in zip(readers, known, strict=True):
        if not _reads_as_keys(reader, present):
            return f"{reader.name} reads it, which is no attention over it as it lies"
        if room_of not in (None, room):
            return f"{reader.name} reads caches of other sizes"
    attrs = {HELD: held, ROOM: room}
    present.shape = tuple(n + dim(room) if k == cache.axis else n for k, n in enumerate(before))
    for reader in readers:
        _follow(reader, present, room)
    asked = [outline(graph, cache.members, "append", attrs).node, *readers]
    reason = next((why for node in asked if (why := kernels.why_not(node)) is not None), None)
    if reason is None:
        rewriter = Rewriter(graph)
        for node in counts:
            parts = [
                rewriter.insert("Shape", [part], node.attrs, before=node, name=f"{node.name}/part").output
                for part in cache.members[0].inputs
            ]
            total = rewriter.insert("Add", parts, before=node, name=node.name, instead=node.output)
            rewriter.replace(node.output, total.output)
            rewriter.erase_dead([node])
        rewriter.fuse(cache.members, "append", attrs, name=cache.members[-1].name)
        return None
    present.shape = before
    for reader, room_of in zip(readers, known, strict=True):
        _follow(reader, present, room_of)
    return reason


def _counts_rows(user: Node, axis: int) -> bool:
    """True for a Shape of the axis alone."""
    return user.op == "Shape" and user.attrs.get("start", 0) == axis and user.attrs.get("end") == axis + 1


def _reads_as_keys(user: Node, present: Value) -> bool:
    """True for an attention kernel that takes the value as keys or values, as it lies, and for nothing else."""
    if user.op != "Fused" or user.attrs.get("family") != "attention":
        return False
    inner = _inside(user, present)
    return all(n.op == "Attention" and index in (1, 2) for v in inner for n, index in v.uses)


def _follow(reader: Node, present: Value, room: AttrValue) -> None:
    """Gives the value its shape in the body of a reader as well, which is told of the room in it."""
    for inner in _inside(reader, present):
        inner.shape = present.shape
    reader.attrs.pop(ROOM, None)
    if room is not None:
        reader.attrs[ROOM] = room


def _inside(reader: Node, value: Value) -> list[Value]:
    """The value in the body of a fused node."""
    pairs = zip(reader.inputs, reader.subgraphs["body"].inputs, strict=True)
    return [inner for outer, inner in pairs if outer is value]
