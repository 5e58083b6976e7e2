"""Element-wise operators over tensors that are cut and joined: one pass over memory, piece by piece.

Slice, Split, Concat, Transpose, Squeeze, Unsqueeze and a Reshape that makes the last two axes one move nothing here.
Followed from the result back to what is read, they only change where an element is looked for; a Concat cuts the index
space of the result, a Reshape takes every m-th column of it. In each piece every value has one affine index per axis,
and the piece is an element-wise kernel.

    y = x * cos + Concat(-x[.., d/2:], x[.., :d/2]) * sin        two pieces of d/2 columns: rotary embedding
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import TypeVar

from codegen.kernels.attached import Attached, store_results
from codegen.kernels.block_emitter import immediate
from codegen.kernels.elementwise import ElementwiseEmitter, can_emit
from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.movement import first_index
from codegen.kernels.movement_copy import Walk
from codegen.kernels.operands import NotLowerable, body_of, outer_inputs, outer_outputs, shape_of
from codegen.kernels.region import RegionTiling, blocks, grid_blocks, region_tilings
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling, first_fit
from codegen.targets.target import Target
from codegen.tile.ir import View, axis
from graph_opt.ir.core import Graph, Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, ceildiv, dmin, product

Place = tuple[Walk, ...]
"""Where a value is read: one walk per axis over the axes of the result."""


@dataclass(frozen=True)
class Box:
    """A piece of the result: start, extent and step along every axis."""

    starts: tuple[int, ...]
    extents: tuple[Dim, ...]
    steps: tuple[int, ...]

    def place(self, shape: Sequence[Dim]) -> Place:
        """The result itself, of this shape, in the piece."""
        return tuple(Walk(size, k, self.starts[k], self.steps[k]) for k, size in enumerate(shape))

    def halves(self, loop: int, at: int) -> list[Box]:
        """The piece before and from position `at` of an axis on."""
        extent = self._static(loop)
        return [replace(self, extents=_with(self.extents, loop, at)), self._part(loop, at, extent - at, 1)]

    def phases(self, loop: int, count: int) -> list[Box]:
        """Every `count`-th position of an axis, from each of the first on."""
        extent = self._static(loop)
        return [self._part(loop, i, -(-(extent - i) // count), count) for i in range(min(count, extent))]

    def _static(self, loop: int) -> int:
        extent = self.extents[loop]
        assert isinstance(extent, int)
        return extent

    def _part(self, loop: int, first: int, extent: int, step: int) -> Box:
        start = self.starts[loop] + first * self.steps[loop]
        return Box(_with(self.starts, loop, start), _with(self.extents, loop, extent),
                   _with(self.steps, loop, step * self.steps[loop]))  # fmt: skip


_Item = TypeVar("_Item")


def _with(items: tuple[_Item, ...], index: int, item: _Item) -> tuple[_Item, ...]:
    return (*items[:index], item, *items[index + 1 :])


class _Body:
    """The body of a Fused node, read through its views."""

    def __init__(self, node: Node) -> None:
        self.outer: Mapping[str, Value] = outer_inputs(node)
        self.nodes, self.ranges = body_of(node).nodes, body_of(node).dims
        if refused := [n for n in self.nodes if n.op not in _SOURCES and n.op != "Concat" and not can_emit(n)]:
            raise NotLowerable(f"{refused[0].op} has no tile instructions for its dtypes")

    def numbers(self, node: Node, index: int) -> tuple[int, ...] | None:
        """A constant integer input; None if it is absent."""
        value = node.input(index)
        if value is None:
            return None
        data = self.outer[value.name].data if value.name in self.outer else None
        if data is None:
            raise NotLowerable(f"{node.op} with run-time parameters")
        return tuple(int(v) for v in data.reshape(-1))

    def operands(self, value: Value, place: Place, extents: Sequence[Dim]) -> list[tuple[Value | None, Place]]:
        """What the producer of `value` reads for it at `place`."""
        node = value.producer
        assert node is not None
        if node.op == "Concat":
            part, walk = _part(node, place, extents)
            where = _axis(node, value.rank)
            return [(part, _with(place, where, walk))]
        if node.op in _SOURCES:
            return [(node.inputs[0], _SOURCES[node.op](self, node, value, place))]
        return [(v, () if v is None else _aligned(v, shape_of(value), place)) for v in node.inputs]

    def divided(self, value: Value, place: Place, box: Box, seen: set[tuple[str, Place]]) -> list[Box] | None:
        """The parts of a box in which no operand changes on the way to `value`; None if it has to be divided nowhere.

        One step of it: the parts may have to be divided again.
        """
        node = value.producer
        if node is None or (value.name, place) in seen:
            return None
        seen.add((value.name, place))
        if node.op == "Concat":
            walk = place[_axis(node, value.rank)]
            start, count = _static(walk, box.extents)
            for edge in _edges(node):
                at = -(-(edge - start) // walk.step)
                if 0 < at < count:
                    assert walk.loop is not None
                    return box.halves(walk.loop, at)
        if node.op == "Reshape" and (phases := _phases(node, place[-1])) > 1:
            assert place[-1].loop is not None
            return box.phases(place[-1].loop, phases)
        found = (self.divided(v, p, box, seen) for v, p in self.operands(value, place, box.extents) if v is not None)
        return next((parts for parts in found if parts is not None), None)

    def boxes(self, result: Value) -> list[Box]:
        """The pieces of a result: within each, every value is read from one place."""
        shape = shape_of(result)
        pending, done = [Box((0,) * len(shape), shape, (1,) * len(shape))], []
        while pending:
            box = pending.pop(0)
            parts = self.divided(result, box.place(shape), box, set())
            if parts is None:
                done.append(box)
            else:
                pending[:0] = parts
        return done


def _axis(node: Node, rank: int) -> int:
    return int(node.attrs.get("axis", 0)) % rank  # type: ignore[call-overload]


def _static(walk: Walk, extents: Sequence[Dim]) -> tuple[int, int]:
    """Start and count of the indices along an axis that a Concat joins; they rise."""
    count = 1 if walk.loop is None else extents[walk.loop]
    if walk.step < 1 or not isinstance(count, int) or not isinstance(walk.start, int):
        raise NotLowerable("a Concat seen backwards or at run-time positions")
    return walk.start, count


def _phases(node: Node, walk: Walk) -> int:
    """In how many ways the last of the axes that a Reshape merges is met along a walk over the merged one."""
    (*_, inner) = shape_of(node.inputs[0])  # type: ignore[arg-type]
    assert isinstance(inner, int)
    return 1 if walk.loop is None else inner // gcd(inner, walk.step)


def _edges(node: Node) -> list[int]:
    """Positions along its axis at which a Concat goes from one operand to the next."""
    sizes = [shape_of(v)[_axis(node, v.rank)] for v in node.inputs if v is not None]
    if not all(isinstance(s, int) for s in sizes):
        raise NotLowerable("a Concat of run-time sizes")
    return [sum(sizes[:i]) for i in range(1, len(sizes))]  # type: ignore[arg-type]


def _part(node: Node, place: Place, extents: Sequence[Dim]) -> tuple[Value, Walk]:
    """The operand of a Concat that a piece without cuts reads, and the walk along the joined axis."""
    parts = [v for v in node.inputs if v is not None]
    where = _axis(node, parts[0].rank)
    walk = place[where]
    assert isinstance(walk.start, int)
    starts = [0, *_edges(node)]
    index = max(i for i, s in enumerate(starts) if s <= walk.start and shape_of(parts[i])[where] != 0)
    return parts[index], replace(walk, size=shape_of(parts[index])[where], start=walk.start - starts[index])


def _aligned(value: Value, result: Sequence[Dim], place: Place) -> Place:
    """An operand of an element-wise node by ONNX broadcasting, from the right."""
    shape = shape_of(value)
    lead = len(result) - len(shape)
    walks = []
    for k, size in enumerate(shape):
        if size == result[lead + k]:
            walks.append(place[lead + k])
        elif size == 1:
            walks.append(Walk(1, None))
        else:
            raise NotLowerable("an extent may or may not broadcast")
    return tuple(walks)


def _slice(body: _Body, node: Node, value: Value, place: Place) -> Place:
    shape = shape_of(node.inputs[0])  # type: ignore[arg-type]
    starts, axes, steps = body.numbers(node, 1), body.numbers(node, 3), body.numbers(node, 4)
    assert starts is not None
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    walks = list(place)
    for start, where, step in zip(starts, axes, steps, strict=True):
        where %= len(shape)
        walk = walks[where]
        first = first_index(shape[where], start, step, body.ranges)
        walks[where] = Walk(shape[where], walk.loop, first + step * walk.start, step * walk.step)
    return tuple(walks)


def _split(body: _Body, node: Node, value: Value, place: Place) -> Place:
    where = _axis(node, value.rank)
    before = [shape_of(v)[where] for v in node.outputs[: node.outputs.index(value)]]
    size = shape_of(node.inputs[0])[where]  # type: ignore[arg-type]
    walk = place[where]
    return _with(place, where, replace(walk, size=size, start=sum(before, walk.start)))


def _transpose(body: _Body, node: Node, value: Value, place: Place) -> Place:
    perm = node.attrs.get("perm") or tuple(reversed(range(len(place))))
    walks = dict(zip((int(p) for p in perm), place, strict=True))  # type: ignore[union-attr]
    return tuple(walks[k] for k in range(len(place)))


def _units(body: _Body, node: Node, value: Value, place: Place) -> Place:
    """Squeeze and Unsqueeze: the axes of extent 1 are all that differs."""
    walks = iter(w for w, size in zip(place, shape_of(value), strict=True) if size != 1)
    return tuple(Walk(1, None) if size == 1 else next(walks) for size in shape_of(node.inputs[0]))  # type: ignore[arg-type]


def _reshape(body: _Body, node: Node, value: Value, place: Place) -> Place:
    """The last two axes become one; called where the walk over it meets one position of the inner axis."""
    (*_, outer, inner) = shape_of(node.inputs[0])  # type: ignore[arg-type]
    walk = place[-1]
    if not isinstance(inner, int) or not isinstance(walk.start, int):
        raise NotLowerable("a Reshape of run-time sizes")
    first = Walk(outer, walk.loop, walk.start // inner, walk.step // inner)
    return (*place[:-1], first, Walk(inner, None, walk.start % inner))


_SOURCES: dict[str, Callable[[_Body, Node, Value, Place], Place]] = {
    "Slice": _slice, "Split": _split, "Transpose": _transpose, "Squeeze": _units, "Unsqueeze": _units,
    "Reshape": _reshape,
}  # fmt: skip
"""Operators that give elements of their first input: where they look for them."""


class _Piece:
    """The element-wise graph of one piece: `leaves` are the values read, by name, each at one place."""

    def __init__(self, body: _Body, result: Value, box: Box) -> None:
        self.body, self.box = body, box
        self.graph = Graph("piece")
        self.leaves: dict[str, tuple[Value, Place]] = {}
        self._known: dict[tuple[str, Place], Value] = {}
        self.result = self._value(result, box.place(shape_of(result)))

    def _value(self, value: Value, place: Place) -> Value:
        key = (value.name, place)
        if key not in self._known:
            self._known[key] = self._made(value, place)
        return self._known[key]

    def _made(self, value: Value, place: Place) -> Value:
        node, name = value.producer, f"v{len(self._known)}"
        if node is None:
            outer = self.body.outer[value.name]
            self.leaves[name] = (outer, place)
            return self.graph.add_value(name, outer.dtype, outer.shape, data=outer.recipe)
        operands = self.body.operands(value, place, self.box.extents)
        if node.op in _SOURCES or node.op == "Concat":
            ((source, there),) = operands
            assert source is not None
            return self._value(source, there)
        inputs = [None if v is None else self._value(v, p) for v, p in operands]
        result = self.graph.add_value(f"v{len(self._known)}", value.dtype, value.shape)
        self.graph.add_node(node.op, inputs, [result], node.attrs, name=node.name)
        return result


def lower_piecewise(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node of element-wise operators and views; NotLowerable says why there is none."""
    ((name, output),) = outer_outputs(node)
    shape = shape_of(output)
    body = _Body(node)
    if any(d == 0 for d in shape):
        return []
    if not all(v.format.is_plain for v in (*body.outer.values(), output)):
        raise NotLowerable("operands in plain order only")
    result = body_of(node).values[name]
    pieces = [_Piece(body, result, box) for box in body.boxes(result)]

    def emit(chosen: RegionTiling) -> list[Record]:
        task = _emit(node, target, output, pieces, chosen.elements)
        return [task.record(work=product(task.extent(d) for d in shape) * len(body.nodes))]

    return first_fit(region_tilings(1), emit, tiling)


def _emit(node: Node, target: Target, output: Value, pieces: Sequence[_Piece], most: int) -> KernelTask:
    """The task with blocks of at most so many elements: a grid over the axes that no piece cuts, pieces in turn."""
    shape = shape_of(output)
    task = KernelTask(node, "piecewise", target)
    paths = MemoryPaths(task, target)
    extents = task.extents(shape)
    whole = [k for k, size in enumerate(shape) if all(p.box.extents[k] == size for p in pieces)]
    cut = [k for k in range(len(shape)) if k not in whole]
    widest = {k: max(p.box.extents[k] for p in pieces) for k in cut}  # type: ignore[type-var]
    inner = dict(zip(cut, blocks([widest[k] for k in cut], most), strict=True))
    outer = dict(zip(whole, blocks([extents[k] for k in whole], max(1, most // prod(inner.values()))), strict=True))
    at = dict(zip(whole, zip(*grid_blocks(task, [extents[k] for k in whole], list(outer.values())), strict=True),
                  strict=True))  # fmt: skip
    for number, piece in enumerate(pieces):
        with ExitStack() as loops:
            start: list[Dim] = []
            count: list[Dim] = []
            bounds: list[int] = []
            for k in range(len(shape)):
                if k in at:
                    start.append(at[k][0])
                    count.append(at[k][1])
                    bounds.append(outer[k])
                    continue
                extent = piece.box.extents[k]
                assert isinstance(extent, int)
                parts = ceildiv(extent, inner[k])
                i = 0 if parts == 1 else loops.enter_context(task.loop(f"l{k}", parts))
                start.append(inner[k] * i)
                count.append(min(inner[k], extent) if extent <= inner[k] or extent % inner[k] == 0
                             else dmin(inner[k], extent - inner[k] * i))  # fmt: skip
                bounds.append(min(inner[k], extent))
            _emit_piece(task, paths, output, piece, f"e{number}_", start, count or [1], bounds or [1])
    return task


def _emit_piece(
    task: KernelTask, paths: MemoryPaths, output: Value, piece: _Piece, prefix: str, start: Sequence[Dim],
    count: Sequence[Dim], bounds: Sequence[int],
) -> None:  # fmt: skip
    """One block of a piece, `start` within it."""

    def view(value: Value, place: Place, role: str = "in") -> View:
        walks = [w for w in place if w.size != 1]
        buffer = task.operand(value, role, task.extents([w.size for w in walks]))
        index = [w.start + (0 if w.loop is None else w.step * (start[w.loop] + axis(w.loop))) for w in walks]
        return buffer.view(*index, shape=count)

    tiles = list(bounds)
    if paths.explicit:
        tiles[-1] = -(-tiles[-1] // 32) * 32
    def leaf(value: Value) -> View:
        return view(*piece.leaves[value.name])

    emitter = ElementwiseEmitter(task, tiles, count, prefix=prefix)
    operands = Attached(piece.graph.nodes, {}).emit(emitter, paths, leaf, {}, [piece.result])
    name = piece.result.name
    if name in piece.leaves:
        operands[name] = immediate(piece.result) or paths.vector_input(leaf(piece.result), tiles, output.dtype)
    result = [(name, output)]
    store_results(paths, emitter, result, operands, lambda value: view(value, piece.box.place(shape_of(value)), "out"))
