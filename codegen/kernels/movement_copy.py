"""Copies between views: one loop nest from a description of which loop walks which axis of source and destination."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from codegen.kernels.operands import body_of
from codegen.kernels.region import grid_blocks
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling, halvings
from codegen.tile.ir import View, axis
from graph_opt.ir.core import Value
from tensor_types.dims import Dim, Expr, dim, dmax, names, substitute

_RUN_TIME_ROW = 1 << 10
"""Elements of a row whose length only the run decides."""


@dataclass(frozen=True)
class MovementTiling(Tiling, kind="movement"):
    """`elements` of a block at most; `cross` is its extent along both innermost axes of a transposing copy."""

    elements: int
    cross: int


def movement_tilings() -> Iterator[MovementTiling]:
    """Tilings of copies, gathers and running sums, by falling preference."""
    return (MovementTiling(elements, 64) for elements in halvings(1 << 13, 32))


@dataclass(frozen=True)
class Walk:
    """One physical axis of `size` elements: index `start + step * loop`; without a loop it stays at `start`.

    With `varies` start and size are data of the task even where they are numbers, so that copies that differ in them
    alone have one program.
    """

    size: Dim
    loop: int | None
    start: Dim = 0
    step: int = 1
    varies: bool = False

    def is_full(self, extent: Dim) -> bool:
        """True if the loop of this extent runs over the whole axis."""
        return self.loop is not None and self.start == 0 and self.step == 1 and self.size == extent


def program_dim(task: KernelTask, value: Dim) -> Dim:
    """A graph dim over program dims for the names in it, so that relations between extents stay provable.

    The program's dims are as low as the graph's, or an extent such as 2*n - 1 might be negative.
    """
    lows = {name: low for name, (low, _) in body_of(task.node).dims.items()}
    return substitute(value, {name: task.extent(dim(name), lows.get(name, 0)) for name in sorted(names(value))})


class _Extents:
    """Program dims of a copy: what differs from a known extent by a number is that extent plus the number.

    Other expressions with divisions or differences are dims of their own.
    """

    def __init__(self, task: KernelTask) -> None:
        self.task = task
        self.known: dict[Dim, Dim] = {}
        self.data: dict[Walk, Dim] = {}
        """Starts of walks that vary."""

    def start(self, walk: Walk) -> Dim:
        """The first index of a walk."""
        if walk.varies and walk not in self.data:
            self.data[walk] = self.task.datum(walk.start)
        return self.data[walk] if walk.varies else self(walk.start)

    def size(self, walk: Walk, extents: Sequence[Dim], low: int) -> Dim:
        """The size of an axis. One that a loop covers partly is start, way and rest, which proves the accesses."""
        extent = 1 if walk.loop is None else extents[walk.loop]
        if walk.varies:
            return self.start(walk) + self(extent) + self.task.datum(walk.size - walk.start - extent)
        if walk.is_full(extent) or isinstance(extent, int) and isinstance(walk.start, int):
            return self(walk.size, low)
        stride, start = abs(walk.step), walk.start
        if stride > 1 and isinstance(extent, Expr) and extent not in self.known:
            self.known[extent] = self.task.extent(extent, 1)
        way, reach = stride * (self(extent) - 1), stride * (extent - 1)
        if walk.step < 0:  # the walk ends at its start less the way
            self.known[start] = self(start - reach) + way
            rest = walk.size - start - 1  # -1 of an empty axis, which has no index to start from
            return self(start) + 1 + self(rest if isinstance(rest, int) else dmax(rest, 0))
        return self(start) + way + 1 + self(walk.size - start - reach - 1)

    def __call__(self, value: Dim, low: int = 0) -> Dim:
        if isinstance(value, int):
            return value
        for other, made in self.known.items():
            distance = value - other
            if isinstance(distance, int):
                return made + distance
        plain = all(a.kind == "dim" for m, _ in value.terms for a in m) and all(f > 0 for _, f in value.terms)
        if plain and not value.is_name:
            self.known[value] = program_dim(self.task, value)
            return self.known[value]
        self.known[value] = self.task.extent(value, low)
        return self.known[value]


def merged(
    extents: Sequence[Dim], source: Sequence[Walk], target: Sequence[Walk]
) -> tuple[list[Dim], list[Walk], list[Walk]]:
    """The same copy with fewer loops: neighbours in the target that are neighbours in the source too become one."""
    sizes = dict(enumerate(extents))
    source, target = list(source), list(target)
    while True:
        pair = next(
            (
                (target[i].loop, target[i + 1].loop)
                for i in range(len(target) - 1)
                if _joins(sizes, target, target[i].loop, target[i + 1].loop)
                and _joins(sizes, source, target[i].loop, target[i + 1].loop, absent=True)
            ),
            None,
        )
        if pair is None:
            break
        a, b = pair
        assert a is not None and b is not None
        source, target = _join(sizes, source, a, b), _join(sizes, target, a, b)
        sizes[a] = sizes[a] * sizes.pop(b)
    number = {old: new for new, old in enumerate(sizes)}

    def renumbered(walks: Sequence[Walk]) -> list[Walk]:
        return [replace(w, loop=None if w.loop is None else number[w.loop]) for w in walks]

    return list(sizes.values()), renumbered(source), renumbered(target)


def _joins(sizes: dict[int, Dim], walks: Sequence[Walk], a: int | None, b: int | None, absent: bool = False) -> bool:
    if a is None or b is None:
        return False
    places = [w.loop for w in walks]
    if absent and a not in places and b not in places:
        return True
    if places.count(a) != 1 or places.count(b) != 1 or places.index(b) != places.index(a) + 1:
        return False
    return walks[places.index(a)].step == 1 and walks[places.index(b)].is_full(sizes[b])


def _join(sizes: dict[int, Dim], walks: list[Walk], a: int, b: int) -> list[Walk]:
    places = [w.loop for w in walks]
    if a not in places:
        return walks
    at, inner = places.index(a), walks[places.index(b)]
    outer = walks[at]
    joined = replace(outer, size=outer.size * inner.size, loop=a, start=outer.start * inner.size)
    return [*walks[:at], joined, *walks[at + 2 :]]


def emit_copy(
    task: KernelTask, tiling: MovementTiling, source: Value, target: Value, extents: Sequence[Dim],
    reads: Sequence[Walk], writes: Sequence[Walk], pad: float | int | None = None,
) -> None:  # fmt: skip
    """Appends a copy as the task's whole body; with `pad`, source positions outside the axes read as that number.

    Extents, sizes and starts are graph dims. Axes of one element on both sides are dropped.
    """
    if pad is None:
        extents, reads, writes = merged(extents, *(_without_units(w, extents) for w in (reads, writes)))
    size_of = _Extents(task)
    if pad is None:
        source_shape = [size_of.size(w, extents, _least(w, extents)) for w in reads]
    else:
        source_shape = [size_of(w.size) for w in reads]
    target_shape = [size_of.size(w, extents, 0) for w in writes]
    sizes = [size_of(e) for e in extents]
    # Rows of a chip's tiles are whole blocks of its memory.
    row = max(1, 32 // source.dtype.bytes) if task.target.explicit_memory else 1
    block = _blocks(sizes, reads, writes, tiling)
    padded = (*block[:-1], -(-(block or (1,))[-1] // row) * row)
    starts, counts = grid_blocks(task, sizes, block)
    x = task.operand(source, shape=source_shape)
    y = task.operand(target, "out", target_shape)

    def first(walk: Walk) -> Dim:
        if pad is None or isinstance(walk.start, int):
            return size_of.start(walk)
        # In front of the axis or within it, as the run decides: a dim of a program is never negative.
        return size_of(dmax(walk.start, 0)) - size_of(dmax(0 - walk.start, 0))

    def index(walks: Sequence[Walk]) -> list[Dim]:
        return [first(w) + (0 if w.loop is None else w.step * (starts[w.loop] + axis(w.loop))) for w in walks]

    tile = task.tile("t", source.dtype, padded)
    shape = tuple(counts) or (1,)
    held = tile.view(*(axis(i) for i in range(len(tile.shape))), shape=shape)
    task.instr("TLOAD", held, View(x.name, tuple(index(reads)), shape), **({} if pad is None else {"pad": pad}))
    task.store(View(y.name, tuple(index(writes)), shape), held)


def _least(walk: Walk, extents: Sequence[Dim]) -> int:
    """The least run-time size of an axis at which the positions that are read exist."""
    extent = None if walk.loop is None else extents[walk.loop]
    reach = abs(walk.step) * (extent - 1) if isinstance(extent, int) else 0
    behind = walk.start - walk.size
    if isinstance(behind, int):
        low = (reach if walk.step < 0 else 0) - behind
    else:
        low = walk.start + (reach if walk.step > 0 else 0) + 1 if isinstance(walk.start, int) else 1
        low = low if isinstance(extent, int) or walk.loop is None else max(0, low - 1)
    return max(0, low)


def _without_units(walks: Sequence[Walk], extents: Sequence[Dim]) -> list[Walk]:
    """Walks without axes of one element; loops of extent 1 become their start."""
    result = []
    for w in walks:
        if w.size == 1 and (w.loop is None or extents[w.loop] == 1):
            continue
        result.append(replace(w, loop=None) if w.loop is not None and extents[w.loop] == 1 else w)
    return result


def _blocks(
    extents: Sequence[Dim], reads: Sequence[Walk], writes: Sequence[Walk], tiling: MovementTiling
) -> tuple[int, ...]:
    """Block extents: long along the target's innermost loop, and along the source's if that is another."""
    block = [1] * len(extents)
    inner = [next((w.loop for w in reversed(walks) if w.loop is not None), None) for walks in (writes, reads)]
    crossing = inner[0] is not None and inner[1] is not None and inner[0] != inner[1]
    first = [i for i in dict.fromkeys(inner) if i is not None]
    rest = [w.loop for w in reversed(writes) if w.loop is not None and w.loop not in first]
    left = tiling.elements
    for i in [*first, *rest]:
        extent = extents[i]
        most = min(left, tiling.cross) if crossing and i in first else left
        if isinstance(extent, int):
            block[i] = max(1, min(extent, most))
        else:
            block[i] = max(1, min(most, _RUN_TIME_ROW if len(extents) > 1 else most))
        left = max(1, left // block[i])
    if crossing:
        # What is left lengthens the target's rows.
        i = first[0]
        extent = extents[i]
        block[i] = min(extent, block[i] * left) if isinstance(extent, int) else block[i] * left
    return tuple(block)
