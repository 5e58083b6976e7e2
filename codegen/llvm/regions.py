"""Which instructions share a loop nest.

A straight-line run of statements becomes *units*: regions of element-wise, moving and reducing instructions, and single
instructions of other kinds. A region has *loop classes*: axes of its instructions that run together, found by matching
the index expressions of what is written with those of what is read. Classes that occur in all instructions, and along
which every dependence stays at one index, are the region's outer loops. Inside them stand *phases*: inner loops whose
instructions have the same classes and feed each other at the same index. A reduced result ends a phase.

A region may have a matrix product as its head: then it is one phase over the product's m and n axes, which runs on the
accumulators while they are in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from codegen.llvm.windows import Relation, Window, relate, window
from codegen.tile.instructions import INSTRUCTIONS
from codegen.tile.ir import Imm, Instr, View
from tensor_types.dims import Dim

MAX_MEMBERS = 48
"""Most instructions of one region: keeps analysis and generated code small."""


@dataclass(frozen=True)
class Step:
    """An instruction in canonical form; its axes are those of extent other than 1, a product's k axes left out."""

    instr: Instr
    extents: tuple[Dim, ...]
    reduced: frozenset[int]
    dst: Window
    srcs: tuple[Window | Imm, ...]
    reads_dst: bool

    @property
    def kind(self) -> str:
        return INSTRUCTIONS[self.instr.op].kind

    def reads(self) -> list[Window]:
        """Windows whose content the instruction needs."""
        views = [s for s in self.srcs if isinstance(s, Window)]
        return [*views, self.dst] if self.reads_dst else views


@dataclass(frozen=True)
class Member:
    """A step placed in a region: `loops[k]` is the class of its axis k."""

    step: Step
    loops: tuple[int, ...]
    reduced: frozenset[int]
    dst: Window
    srcs: tuple[Window | Imm, ...]
    """Windows over loop classes: equal windows are equal elements."""

    def reads(self) -> list[Window]:
        views = [s for s in self.srcs if isinstance(s, Window)]
        return [*views, self.dst] if self.step.reads_dst else views


@dataclass
class Phase:
    """Instructions of one inner loop nest over `loops` (outer classes included)."""

    loops: frozenset[int]
    reduced: frozenset[int]
    members: list[Member] = field(default_factory=list)


@dataclass
class Region:
    """Phases inside the outer loop classes."""

    extents: dict[int, Dim]
    outer: tuple[int, ...]
    phases: list[Phase]
    head: Member | None = None

    def members(self) -> list[Member]:
        return [m for phase in self.phases for m in phase.members]


Unit = Region | Instr
"""A region, or an instruction with code of its own."""


def canonical(instr: Instr) -> Step:
    """The step of an element-wise, moving, reducing or matmul instruction."""
    if INSTRUCTIONS[instr.op].kind == "matmul":
        kept = tuple(k for k, extent in enumerate(instr.dst.shape) if extent != 1)
        dst = window(instr.dst, kept)
        return Step(instr, dst.extents, frozenset(), dst, (), instr.op == "TMATMUL_ACC")
    shape = instr.dst.shape
    reduced: tuple[int, ...] = ()
    if INSTRUCTIONS[instr.op].kind == "reduce":
        axes = instr.attr("axes")
        assert isinstance(axes, tuple)
        reduced = axes
        source = instr.srcs[0]
        assert isinstance(source, View)
        shape = source.shape
    kept = tuple(k for k, extent in enumerate(shape) if extent != 1)
    srcs = tuple(s if isinstance(s, Imm) else window(s, kept) for s in instr.srcs)
    return Step(
        instr,
        tuple(shape[k] for k in kept),
        frozenset(kept.index(k) for k in reduced if k in kept),
        window(instr.dst, kept),
        srcs,
        bool(instr.attr("acc")),
    )


def is_fusable(instr: Instr) -> bool:
    """True for the kinds that a region's loops can run."""
    kind = INSTRUCTIONS[instr.op].kind
    return kind in ("elementwise", "reduce") or (kind == "move" and instr.attr("pad") is None)


@dataclass(frozen=True)
class _Dependence:
    """Two steps of one region touch the same elements, and at least one writes them."""

    relation: Relation
    through_reduction: bool
    """The earlier one's result is a reduction, or the later one is a reduction that writes what the earlier touched."""


def _dependences(first: Step, second: Step) -> list[_Dependence]:
    found = []
    pairs = [(first.dst, second.dst, True, True)]
    pairs += [(first.dst, w, True, False) for w in second.reads()]
    pairs += [(w, second.dst, False, True) for w in first.reads()]
    for a, b, first_writes, second_writes in pairs:
        if a.base != b.base:
            continue
        relation = relate(a, b)
        if relation is not None:
            through = (first_writes and bool(first.kind == "reduce")) or (second_writes and second.kind == "reduce")
            found.append(_Dependence(relation, through))
    return found


class _Group:
    """A region while it grows."""

    def __init__(self, steps: list[Step], head: bool = False, closed: bool = False) -> None:
        self.steps = steps
        self.head = head
        self.closed = closed
        self.region: Region | None = None


class RegionBuilder:
    """Partitions one straight-line run of instructions."""

    def __init__(self) -> None:
        self._groups: list[_Group] = []
        self._others: dict[int, Instr] = {}
        self._known: dict[tuple[int, int], list[_Dependence]] = {}
        self._steps: list[Step] = []

    def add(self, instr: Instr) -> None:
        """Appends the next instruction of the run."""
        kind = INSTRUCTIONS[instr.op].kind
        if kind == "sync":
            return
        if not is_fusable(instr) and kind != "matmul":
            group = _Group([], closed=True)
            self._others[id(group)] = instr
            self._groups.append(group)
            return
        step = canonical(instr)
        if kind == "matmul":
            group = _Group([step], head=True)
            group.region = _analyse([step], True, self._between)
            assert group.region is not None
            self._groups.append(group)
            return
        self._place(step)

    def _place(self, step: Step) -> None:
        earlier = [i for i, g in enumerate(self._groups) if self._depends(g, step)]
        if earlier:
            last = earlier[-1]
            for chosen in (self._movable(earlier, last), [last]):
                groups = [self._groups[i] for i in chosen]
                if any(g.closed for g in groups) or sum(g.head for g in groups) > 1:
                    continue
                steps = [s for g in groups for s in g.steps]
                head = any(g.head for g in groups)
                if head and not groups[0].head:
                    continue
                region = _analyse([*steps, step], head, self._between) if len(steps) < MAX_MEMBERS else None
                if region is not None:
                    merged = _Group([*steps, step], head)
                    merged.region = region
                    self._groups[last] = merged
                    self._groups = [g for i, g in enumerate(self._groups) if i == last or i not in chosen]
                    return
                if len(chosen) == 1:
                    break
        group = _Group([step])
        group.region = _analyse([step], False, self._between)
        assert group.region is not None
        self._groups.append(group)

    def _movable(self, earlier: list[int], last: int) -> list[int]:
        """Those of the `earlier` groups that may run as late as `last`."""
        chosen = [last]
        for i in reversed(earlier[:-1]):
            between = [g for j, g in enumerate(self._groups) if i < j <= last and j not in chosen]
            if not self._groups[i].closed and not any(self._order_matters(self._groups[i], g) for g in between):
                chosen.append(i)
        return sorted(chosen)

    def _between(self, first: Step, second: Step) -> list[_Dependence]:
        key = (id(first), id(second))
        if key not in self._known:
            self._known[key] = _dependences(first, second)
            self._steps += [first, second]  # keeps both alive, so that their ids stay theirs
        return self._known[key]

    def _depends(self, group: _Group, step: Step) -> bool:
        if id(group) in self._others:
            return _touches(self._others[id(group)], step.instr)
        if group.head and _touches(group.steps[0].instr, step.instr):
            return True
        return any(self._between(s, step) for s in group.steps)

    def _order_matters(self, first: _Group, second: _Group) -> bool:
        one = [self._others[id(first)]] if id(first) in self._others else [s.instr for s in first.steps]
        two = [self._others[id(second)]] if id(second) in self._others else [s.instr for s in second.steps]
        return any(_touches(a, b) for a in one for b in two)

    def units(self) -> list[Unit]:
        """The run in execution order."""
        result: list[Unit] = []
        for group in self._groups:
            if id(group) in self._others:
                result.append(self._others[id(group)])
            else:
                assert group.region is not None
                result.append(group.region)
        return result


def _bases(instr: Instr) -> tuple[set[str], set[str]]:
    reads = {s.base for s in instr.srcs if isinstance(s, View)}
    return reads, {instr.dst.base}


def _touches(first: Instr, second: Instr) -> bool:
    """True if the order of two instructions matters, judged by the names of their bases."""
    reads_a, writes_a = _bases(first)
    reads_b, writes_b = _bases(second)
    return bool(writes_a & (reads_b | writes_b) or reads_a & writes_b)


def _find(parent: dict[tuple[int, int], tuple[int, int]], node: tuple[int, int]) -> tuple[int, int]:
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


def _analyse(steps: Sequence[Step], head: bool, between: object) -> Region | None:
    """The region of these steps in order; None if they gain nothing from one loop nest or cannot share one."""
    assert callable(between)
    parent = {(i, k): (i, k) for i, s in enumerate(steps) for k in range(len(s.extents))}
    dependences: list[tuple[int, int, _Dependence]] = []
    for j in range(len(steps)):
        for i in range(j):
            for found in between(steps[i], steps[j]):
                dependences.append((i, j, found))
                for a, b in found.relation.pairs:
                    parent[_find(parent, (i, a))] = _find(parent, (j, b))
    numbers: dict[tuple[int, int], int] = {}
    loops: list[tuple[int, ...]] = []
    extents: dict[int, Dim] = {}
    # Classes are numbered from the longest instruction, so that their order is the natural one of its axes.
    order = sorted(range(len(steps)), key=lambda i: (-len(steps[i].extents), i))
    for i in order:
        for k, extent in enumerate(steps[i].extents):
            number = numbers.setdefault(_find(parent, (i, k)), len(numbers))
            extents[number] = extent
    for i, step in enumerate(steps):
        mine = tuple(numbers[_find(parent, (i, k))] for k in range(len(step.extents)))
        if len(set(mine)) != len(mine):
            return None
        loops.append(mine)
    blocked: set[int] = set()
    for i, j, found in dependences:
        blocked.update(loops[i][k] for k in found.relation.first_blocked)
        blocked.update(loops[j][k] for k in found.relation.second_blocked)
    for step, mine in zip(steps, loops, strict=True):
        blocked.update(mine[k] for k in step.reduced)
    shared = set(extents)
    for mine in loops:
        shared &= set(mine)
    outer = tuple(sorted(shared - blocked))

    if head:
        # Epilogue: every instruction has the product's axes and stays at one index.
        product = steps[0].instr
        for step, mine in zip(steps[1:], loops[1:], strict=True):
            inputs = {s.base for s in product.srcs if isinstance(s, View)}
            if set(mine) != set(loops[0]) or step.kind == "reduce" or step.dst.base in inputs:
                return None
        if set(outer) != set(loops[0]) or any(not d.relation.pointwise for _, _, d in dependences):
            return None
    members = [
        Member(s, mine, frozenset(mine[k] for k in s.reduced), s.dst.mapped(mine),
               tuple(w if isinstance(w, Imm) else w.mapped(mine) for w in s.srcs))
        for s, mine in zip(steps, loops, strict=True)
    ]  # fmt: skip
    if head:
        phase = Phase(frozenset(outer), frozenset(), members[1:])
        return Region(extents, outer, [phase], members[0])
    phases: list[Phase] = []
    where: list[int] = []
    for j, member in enumerate(members):
        earliest = 0
        for i, k, found in dependences:
            if k != j:
                continue
            same = found.relation.pointwise and not found.through_reduction and set(loops[i]) == set(loops[j])
            earliest = max(earliest, where[i] + (0 if same else 1))
        place = next((p for p in range(earliest, len(phases)) if _joins(phases[p], member)), len(phases))
        if place == len(phases):
            phases.append(Phase(frozenset(member.loops), member.reduced))
        if member.reduced:
            phases[place].reduced = member.reduced
        phases[place].members.append(member)
        where.append(place)
    if len(phases) > 1 and not outer and any(len(mine) > 1 for mine in loops):
        return None
    return Region(extents, outer, phases)


def _joins(phase: Phase, member: Member) -> bool:
    """True if the phase has the member's loops, and its reductions (if both have any) run over the same classes."""
    reducing = any(m.step.kind == "reduce" for m in phase.members)
    same = not reducing or member.step.kind != "reduce" or member.reduced == phase.reduced
    return phase.loops == frozenset(member.loops) and same
