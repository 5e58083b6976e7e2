"""Operators that move elements: every one becomes copies between views, or a gather with checked indices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from codegen.kernels.movement_chip import gather_on_chip, running_sum_on_chip
from codegen.kernels.movement_copy import MovementTiling, Walk, emit_copy, movement_tilings, program_dim
from codegen.kernels.operands import NotLowerable, body_of, outer_inputs, same_bytes, shape_of
from codegen.kernels.ranges import lower_range
from codegen.kernels.region import grid_blocks
from codegen.kernels.region_space import order
from codegen.kernels.region_task import KernelTask
from codegen.kernels.resize import lower_resize
from codegen.kernels.shapes import lower_sizes
from codegen.kernels.tiling import Tiling, first_fit
from codegen.targets.target import Target
from codegen.tile.ir import axis
from graph_opt.ir.core import Node, Value
from graph_opt.ir.ops.movement import OPEN_END
from graph_opt.plan.records import AliasRecord, Record
from tensor_types.dims import Dim, dmax, dmin, has_extrema, product
from tensor_types.proofs import Range, prove_le

_MANY_PARTS = 32
"""From as many parts of a Concat or Split on their copies share programs, which take places as data."""


class Move:
    """A movement node with its outer values; makes one task per copy."""

    def __init__(self, node: Node, target: Target, tiling: MovementTiling) -> None:
        self.node, self.target, self.explicit = node, target, target.explicit_memory
        self.tiling = tiling
        body = body_of(node)
        if len(body.nodes) != 1:
            raise NotLowerable("movement kernels hold one operator")
        self.op = body.nodes[0]
        known = outer_inputs(node)
        self.inputs = [None if v is None else known.get(v.name, v) for v in self.op.inputs]
        self.ranges = body.dims
        made = {inner.name: outer for inner, outer in zip(body.outputs, node.outputs, strict=True)}
        self.outputs = [made.get(v.name) for v in self.op.outputs]
        self.records: list[Record] = []

    def input(self, index: int) -> Value:
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise NotLowerable(f"{self.op.op} lacks an input")
        return value

    @property
    def output(self) -> Value:
        value = self.outputs[0]
        if value is None:
            raise NotLowerable("an output is missing")
        return value

    def dims(self, index: int) -> tuple[Dim, ...] | None:
        """The content of a small integer input as dims; None if it is absent, NotLowerable if only the run knows it."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None or (value.shape is not None and 0 in value.shape):
            return None
        if value.data is not None:
            return tuple(int(v) for v in value.data.reshape(-1))
        if value.content is not None:
            return value.content
        raise NotLowerable(f"{value.name} is known at run time only")

    def numbers(self, index: int) -> tuple[int, ...] | None:
        """As `dims`, but numbers."""
        found = self.dims(index)
        if found is not None and not all(isinstance(d, int) for d in found):
            raise NotLowerable(f"{self.op.op} with run-time parameters")
        return found  # type: ignore[return-value]

    def attr(self, name: str, default: int) -> int:
        value = self.op.attrs.get(name, default)
        return int(value)  # type: ignore[arg-type]

    def copy(
        self, source: Value, target: Value, extents: Sequence[Dim], reads: Sequence[Walk], writes: Sequence[Walk],
        pad: float | int | None = None,
    ) -> None:  # fmt: skip
        """Appends a copy; `reads` and `writes` are in logical order of the values' axes."""
        if any(e == 0 for e in extents):
            return
        task = KernelTask(self.node, "movement", self.target)
        physical = [[walks[a] for a in order(v.format, len(walks))] for v, walks in ((source, reads), (target, writes))]
        emit_copy(task, self.tiling, source, target, extents, physical[0], physical[1], pad)
        self.records.append(task.record(work=product(program_dim(task, e) for e in extents)))


def walks(shape: Sequence[Dim]) -> list[Walk]:
    """Loop k over the whole of axis k."""
    return [Walk(size, k) for k, size in enumerate(shape)]


def lower_movement(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """Tasks of a Fused node with one moving operator; NotLowerable says why there are none."""
    return first_fit(movement_tilings(), lambda chosen: _emit(Move(node, target, chosen)), tiling)


def _emit(move: Move) -> list[Record]:
    rule = _RULES.get(move.op.op)
    if rule is None:
        raise NotLowerable(f"{move.op.op} has no kernel")
    for value in (*move.inputs, *move.outputs):
        if value is not None and value.dtype.kind in ("handle", "complex"):
            raise NotLowerable(f"{value.dtype} has no tile instructions")
    rule(move)
    return move.records


def _identity(m: Move) -> None:
    x, y = m.input(0), m.output
    shape = shape_of(x)
    if same_bytes(x, y, range(len(shape))) and not x.is_constant:
        m.records.append(AliasRecord(y.name, x.name, m.node.name))
        return
    m.copy(x, y, shape, walks(shape), walks(shape))


def _transpose(m: Move) -> None:
    x, y = m.input(0), m.output
    shape = shape_of(x)
    perm = m.op.attrs.get("perm") or tuple(reversed(range(len(shape))))
    perm = tuple(int(p) for p in perm)  # type: ignore[union-attr]
    if same_bytes(x, y, perm) and not x.is_constant:
        m.records.append(AliasRecord(y.name, x.name, m.node.name))
        return
    reads: list[Walk] = [Walk(d, perm.index(a)) for a, d in enumerate(shape)]
    extents = [shape[p] for p in perm]
    m.copy(x, y, extents, reads, walks(extents))


def _expand(m: Move) -> None:
    x, y = m.input(0), m.output
    source, result = shape_of(x), shape_of(y)
    lead = len(result) - len(source)
    reads = [Walk(d, None) if d == 1 and result[lead + i] != 1 else Walk(d, lead + i) for i, d in enumerate(source)]
    if any(w.loop is not None and w.size != result[w.loop] for w in reads):
        raise NotLowerable("an extent may or may not broadcast")
    m.copy(x, y, result, reads, walks(result))


def _tile(m: Move) -> None:
    x, y = m.input(0), m.output
    shape, repeats = shape_of(x), m.dims(1)
    if not x.format.is_plain or not y.format.is_plain or repeats is None:
        raise NotLowerable("Tile in this format")
    extents: list[Dim] = []
    writes: list[Walk] = []
    for size, count in zip(shape, repeats, strict=True):
        writes += [Walk(count, len(extents)), Walk(size, len(extents) + 1)]
        extents += [count, size]
    m.copy(x, y, extents, [Walk(d, 2 * i + 1) for i, d in enumerate(shape)], writes)


def _blocks_of(m: Move, to_space: bool) -> None:
    x, y = m.input(0), m.output
    if not x.format.is_plain or not y.format.is_plain:
        raise NotLowerable(f"{m.op.op} in this format")
    n, c, h, w = shape_of(x)
    b = m.attr("blocksize", 1)
    crd = str(m.op.attrs.get("mode", "DCR")) == "CRD"
    if to_space:
        assert isinstance(c, int)
        extents: list[Dim] = [n, c // (b * b), h, b, w, b]
        loops = [0, 1, 3, 5, 2, 4] if crd else [0, 3, 5, 1, 2, 4]
        reads = [Walk(extents[k], k) for k in loops]
        writes = [Walk(e, k) for k, e in enumerate(extents)]
    else:
        _, _, oh, ow = shape_of(y)
        extents = [n, c, b, b, oh, ow] if crd else [n, b, b, c, oh, ow]
        loops = [0, 1, 4, 2, 5, 3] if crd else [0, 3, 4, 1, 5, 2]
        reads = [Walk(extents[k], k) for k in loops]
        writes = [Walk(e, k) for k, e in enumerate(extents)]
    m.copy(x, y, extents, reads, writes)


def _slice(m: Move) -> None:
    x, y = m.input(0), m.output
    shape, result = shape_of(x), shape_of(y)
    starts, axes, steps = m.dims(1), m.numbers(3), m.numbers(4)
    if starts is None:
        raise NotLowerable("Slice without starts")
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    reads = walks(shape)
    for start, where, step in zip(starts, axes, steps, strict=True):
        where %= len(shape)
        reads[where] = Walk(shape[where], where, first_index(shape[where], start, step, m.ranges), step)
    m.copy(x, y, result, reads, walks(result))


def first_index(size: Dim, start: Dim, step: int, ranges: Mapping[str, Range]) -> Dim:
    """The first index that a slice takes, if it takes any."""
    if prove_le(start, -1, ranges):
        first = dmax(size + start, 0)
        return first if step > 0 else dmin(first, size - 1)
    if step > 0:
        return start
    return size - 1 if isinstance(start, int) and start >= OPEN_END else dmin(start, size - 1)


def _concat(m: Move) -> None:
    y = m.output
    result = shape_of(y)
    where = m.attr("axis", 0) % len(result)
    start: Dim = 0
    for value in m.inputs:
        if value is None:
            continue
        shape = shape_of(value)
        writes = _with_part(result, where, start, len(m.inputs))
        m.copy(value, y, shape, walks(shape), writes)
        start = start + shape[where]


def _split(m: Move) -> None:
    x = m.input(0)
    shape = shape_of(x)
    where = m.attr("axis", 0) % len(shape)
    start: Dim = 0
    for inner, value in zip(m.op.outputs, m.outputs, strict=True):
        part = shape_of(inner if value is None else value)
        if value is not None:
            reads = _with_part(shape, where, start, len(m.outputs))
            m.copy(x, value, part, reads, walks(part))
        start = start + part[where]


def _with_part(shape: Sequence[Dim], where: int, start: Dim, parts: int) -> list[Walk]:
    """The walks over one of so many parts of a tensor, which begins at `start` of axis `where`."""
    result = walks(shape)
    result[where] = Walk(shape[where], where, start, varies=parts >= _MANY_PARTS)
    return result


def _pad(m: Move) -> None:
    x, y = m.input(0), m.output
    shape, result = shape_of(x), shape_of(y)
    rank = len(shape)
    pads, axes = m.dims(1), m.numbers(3)
    if pads is None:
        raise NotLowerable("Pad without pads")
    axes = tuple(range(rank)) if axes is None else tuple(a % rank for a in axes)
    before: list[Dim] = [0] * rank
    after: list[Dim] = [0] * rank
    for i, where in enumerate(axes):
        before[where], after[where] = pads[i], pads[len(axes) + i]
    mode = str(m.op.attrs.get("mode", "constant"))
    if mode == "constant":
        value: float | int = 0
        held = m.inputs[2] if len(m.inputs) > 2 else None
        if held is not None:
            if held.data is None:
                raise NotLowerable("Pad with a run-time value")
            value = float(held.data.reshape(())) if x.dtype.is_float else int(held.data.reshape(()))
        reads = [Walk(d, k, 0 - before[k]) for k, d in enumerate(shape)]
        m.copy(x, y, result, reads, walks(result), value)
        return
    # Rectangles: per padded axis the part in front, the middle, and the part behind.
    choices: list[list[tuple[Dim, Walk, Dim]]] = []
    for k, size in enumerate(shape):
        parts: list[tuple[Dim, Walk, Dim]] = [(size, Walk(size, k), before[k])]
        if before[k] != 0 or after[k] != 0:
            if not all(isinstance(p, int) and p >= 0 for p in (before[k], after[k])):
                raise NotLowerable(f"Pad {mode} that crops or depends on the run")
            front, behind = int(before[k]), int(after[k])  # type: ignore[arg-type]
            if mode == "edge":
                ends = [Walk(size, None, 0), Walk(size, None, size - 1)]
            elif mode == "reflect":
                if isinstance(size, int) and max(front, behind) >= size:
                    raise NotLowerable("Pad reflects more than once")
                ends = [Walk(size, k, front, -1), Walk(size, k, size - 2, -1)]
            elif mode == "wrap":
                if not isinstance(size, int) or max(front, behind) > size:
                    raise NotLowerable("Pad may wrap more than once")
                ends = [Walk(size, k, size - front), Walk(size, k, 0)]
            else:
                raise NotLowerable(f"Pad {mode}")
            parts += [(front, ends[0], 0)] if front else []
            parts += [(behind, ends[1], size + front)] if behind else []
        choices.append(parts)
    rectangles: list[list[tuple[Dim, Walk, Dim]]] = [[]]
    for parts in choices:
        rectangles = [[*r, p] for r in rectangles for p in parts]
    for rectangle in rectangles:
        extents = [count for count, _, _ in rectangle]
        writes = [Walk(result[k], k, start) for k, (_, _, start) in enumerate(rectangle)]
        m.copy(x, y, extents, [w for _, w, _ in rectangle], writes)


def _gather(m: Move) -> None:
    x, indices, y = m.input(0), m.input(1), m.output
    shape = shape_of(x)
    where = m.attr("axis", 0) % len(shape)
    if not (x.format.is_plain and indices.format.is_plain and y.format.is_plain):
        raise NotLowerable("Gather in this format")
    # No index is right for an axis without elements: what gathers from it checks that when it runs.
    if indices.data is not None and indices.data.size == 1 and isinstance(shape[where], int) and shape[where]:
        at = int(indices.data.reshape(()))
        reads = [Walk(d, None, at % int(d)) if k == where else Walk(d, k if k < where else k - 1)  # type: ignore[arg-type]
                 for k, d in enumerate(shape)]  # fmt: skip
        rest = [d for k, d in enumerate(shape) if k != where]
        if -int(shape[where]) <= at < int(shape[where]):  # type: ignore[arg-type]
            m.copy(x, y, rest, reads, walks(rest)) if indices.rank == 0 else m.copy(
                x, y, rest, reads, _with_units(rest, where, indices.rank)
            )
            return
    _gather_along(m, where)


def _gather_nd(m: Move) -> None:
    if m.attr("batch_dims", 0) or shape_of(m.input(1))[-1:] != (1,):
        raise NotLowerable("GatherND by several axes")
    if not all(v.format.is_plain for v in (m.input(0), m.input(1), m.output)):
        raise NotLowerable("GatherND in this format")
    _gather_along(m, 0)


def _gather_along(m: Move, where: int) -> None:
    """Whole slices of the data at run-time indices along one axis."""
    x, indices, y = m.input(0), m.input(1), m.output
    shape = shape_of(x)
    task = KernelTask(m.node, "movement", m.target)
    outer, count, inner = product(shape[:where]), product(shape_of(indices)), product(shape[where + 1 :])
    if any(d == 0 for d in (outer, count, inner)):
        return
    # An extremum of sizes is taken as the run has it: too little is proven of one.
    extents = [task.extent(d) if has_extrema(d) else program_dim(task, d) for d in (outer, count, inner)]
    size = task.extent(shape[where])  # whatever it is: every index is checked against it
    if m.explicit:
        gather_on_chip(task, m.tiling, x, indices, y, extents, size, False)
        m.records.append(task.record(work=product(extents)))
        return
    table = task.operand(x, shape=(extents[0], size, extents[2]))
    index = task.operand(indices, shape=(extents[1],))
    out = task.operand(y, "out", extents)
    width = extents[2]
    rows = max(1, m.tiling.elements // (width if isinstance(width, int) else 1 << 10))
    starts, counts = grid_blocks(task, extents[:2], (1, rows))
    block = (*counts, width)
    place = (starts[0] + axis(0), starts[1] + axis(1), axis(2))
    task.instr(
        "TGATHER", out.view(*place, shape=block),
        table.view(starts[0] + axis(0), axis(1), axis(2), shape=(counts[0], size, width)),
        index.view(starts[1] + axis(1), shape=block), axis=1, wrap=1,
    )  # fmt: skip
    m.records.append(task.record(work=product(extents)))


def _with_units(rest: Sequence[Dim], where: int, units: int) -> list[Walk]:
    result = walks(rest)
    return [*result[:where], *(Walk(1, None) for _ in range(units)), *result[where:]]


def _gather_elements(m: Move) -> None:
    x, indices, y = m.input(0), m.input(1), m.output
    shape, wanted = shape_of(x), shape_of(indices)
    where = m.attr("axis", 0) % len(shape)
    if not all(v.format.is_plain for v in (x, indices, y)):
        raise NotLowerable("GatherElements in this format")
    if any(a != b for k, (a, b) in enumerate(zip(shape, wanted, strict=True)) if k != where):
        raise NotLowerable("GatherElements of a corner")
    if any(d == 0 for d in wanted):
        return
    task = KernelTask(m.node, "movement", m.target)
    if m.explicit:
        groups = (wanted[:where], wanted[where : where + 1], wanted[where + 1 :])
        whole = [program_dim(task, product(d)) for d in groups]
        gather_on_chip(task, m.tiling, x, indices, y, whole, program_dim(task, shape[where]), True)
        m.records.append(task.record(work=product(whole)))
        return
    sizes, extents = [[program_dim(task, d) for d in s] for s in (shape, wanted)]
    table, index = task.operand(x, shape=sizes), task.operand(indices, shape=extents)
    out = task.operand(y, "out", extents)
    task.instr("TGATHER", out.whole(), table.whole(), index.whole(), axis=where, wrap=1)
    m.records.append(task.record(work=product(extents)))


def _cumsum(m: Move) -> None:
    x, y = m.input(0), m.output
    shape, where = shape_of(x), m.numbers(1)
    if where is None or not x.format.is_plain or not y.format.is_plain:
        raise NotLowerable("CumSum along a run-time axis")
    if any(d == 0 for d in shape):
        return
    task = KernelTask(m.node, "movement", m.target)
    at = where[0] % len(shape)
    sizes = [program_dim(task, d) for d in (product(shape[:at]), shape[at], product(shape[at + 1 :]))]
    source, out = task.operand(x, shape=sizes), task.operand(y, "out", sizes)
    if m.explicit:
        running_sum_on_chip(task, m.tiling, source, out, bool(m.attr("exclusive", 0)), bool(m.attr("reverse", 0)))
        m.records.append(task.record(work=product(sizes)))
        return
    g = task.grid("g", sizes[0])
    window = ((g, 0, 0), (1, sizes[1], sizes[2]))
    task.instr(
        "TCUMSUM", out.window(*window), source.window(*window), axis=1,
        exclusive=m.attr("exclusive", 0), reverse=m.attr("reverse", 0),
    )  # fmt: skip
    m.records.append(task.record(work=product(sizes)))


def _range(m: Move) -> None:
    record = lower_range(m.node, m.inputs, m.output, m.target, m.tiling)
    if record is not None:
        m.records.append(record)


def _sizes(m: Move) -> None:
    record = lower_sizes(m.node, m.op, m.output, m.target)
    if record is not None:
        m.records.append(record)


def _resize(m: Move) -> None:
    m.records += lower_resize(m.node, m.op, m.input(0), m.output, m.target, m.tiling)


_RULES: dict[str, Callable[[Move], None]] = {
    "Relayout": _identity,
    "Identity": _identity,
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "DepthToSpace": lambda m: _blocks_of(m, True),
    "SpaceToDepth": lambda m: _blocks_of(m, False),
    "Slice": _slice,
    "Concat": _concat,
    "Split": _split,
    "Pad": _pad,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "GatherElements": _gather_elements,
    "CumSum": _cumsum,
    "Range": _range,
    "Shape": _sizes,
    "Size": _sizes,
    "Resize": _resize,
}
