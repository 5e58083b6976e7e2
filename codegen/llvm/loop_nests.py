"""Which instructions share a loop nest.

A straight-line run of statements becomes *units*: loop nests of element-wise, moving and reducing instructions, and
single instructions of other kinds. A nest has *loop classes*: axes of its instructions that run together, found by
matching the index expressions of what is written with those of what is read. Classes that occur in all instructions,
and along which every dependence stays at one index, are the nest's outer loops. Inside them stand *phases*: inner loops
whose instructions have the same classes and feed each other at the same index. A reduced result ends a phase.

A nest may have a matrix product as its head: then it is one phase over the product's m and n axes, which runs on the
accumulators while they are in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from codegen.llvm.linked_steps import LinkedSteps
from codegen.llvm.windows import Relation, Window, relate, window
from codegen.tile.instructions import INSTRUCTIONS
from codegen.tile.ir import Imm, Instr, View
from tensor_types.dims import Dim


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

    @cached_property
    def read_bases(self) -> frozenset[str]:
        """Names of the bases that it reads."""
        return frozenset(w.base for w in self.reads())

    @cached_property
    def shared_reads(self) -> list[Window]:
        """Of an element-wise step, the windows that it reads along all of its axes: another step that reads one, too,
        has its axes in the same order."""
        if self.kind != "elementwise":
            return []
        every = frozenset(range(len(self.extents)))
        return [w for w in self.reads() if w.loops() == every]

    def meets(self, later: Step) -> bool:
        """True if both touch one base which one of them writes."""
        return self.dst.base == later.dst.base or self.dst.base in later.read_bases or later.dst.base in self.read_bases


@dataclass(frozen=True)
class Member:
    """A step placed in a loop nest: `loops[k]` is the class of its axis k."""

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
    reducing: bool = False
    """A member is a reduction, be it over axes of extent 1."""

    def add(self, member: Member) -> None:
        """Appends a member; the phase reduces what it reduces."""
        if member.reduced:
            self.reduced = member.reduced
        self.reducing = self.reducing or member.step.kind == "reduce"
        self.members.append(member)


@dataclass
class LoopNest:
    """Phases inside the outer loop classes."""

    extents: dict[int, Dim]
    outer: tuple[int, ...]
    phases: list[Phase]
    head: Member | None = None

    def members(self) -> list[Member]:
        return [m for phase in self.phases for m in phase.members]


Unit = LoopNest | Instr
"""A loop nest, or an instruction with code of its own."""


def place(step: Step, loops: tuple[int, ...]) -> Member:
    """The step with its axes mapped to loop classes."""
    srcs = tuple(w if isinstance(w, Imm) else w.mapped(loops) for w in step.srcs)
    return Member(step, loops, frozenset(loops[k] for k in step.reduced), step.dst.mapped(loops), srcs)


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
    """True for the kinds that the loops of a nest can run."""
    kind = INSTRUCTIONS[instr.op].kind
    return kind in ("elementwise", "reduce") or (kind == "move" and instr.attr("pad") is None)


@dataclass(frozen=True)
class Dependence:
    """Two steps of one loop nest touch the same elements, and at least one writes them."""

    relation: Relation
    through_reduction: bool
    """The earlier one's result is a reduction, or the later one is a reduction that writes what the earlier touched."""


def dependences_between(first: Step, second: Step) -> list[Dependence]:
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
            found.append(Dependence(relation, through))
    return found


def analyse(linked: LinkedSteps, head: bool, member: Callable[[Step, tuple[int, ...]], Member]) -> LoopNest | None:
    """The nest of these steps in order; None if they gain nothing from one or cannot share it.

    `member` places a step; it may remember what it gave before.
    """
    steps, dependences = linked.steps, linked.dependences
    classes = [linked.classes(i) for i in range(len(steps))]
    if any(len(set(mine)) != len(mine) for mine in classes):
        return None
    numbers: dict[int, int] = {}
    extents: dict[int, Dim] = {}
    # Classes are numbered from the longest instruction, so that their order is the natural one of its axes.
    for i in sorted(range(len(steps)), key=lambda i: (-len(steps[i].extents), i)):
        for found, extent in zip(classes[i], steps[i].extents, strict=True):
            extents[numbers.setdefault(found, len(numbers))] = extent
    loops = [tuple(numbers[found] for found in mine) for mine in classes]
    blocked: set[int] = set()
    for j, earlier in enumerate(dependences):
        for i, found in earlier:
            if found.relation.first_blocked:
                blocked.update(loops[i][k] for k in found.relation.first_blocked)
            if found.relation.second_blocked:
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
        if set(outer) != set(loops[0]) or any(not d.relation.pointwise for rows in dependences for _, d in rows):
            return None
    members = [member(s, mine) for s, mine in zip(steps, loops, strict=True)]
    if head:
        phase = Phase(frozenset(outer), frozenset(), members[1:])
        return LoopNest(extents, outer, [phase], members[0])
    phases: list[Phase] = []
    where: list[int] = []
    together = [frozenset(mine) for mine in loops]
    for j, placed in enumerate(members):
        earliest = 0
        for i, found in dependences[j]:
            same = found.relation.pointwise and not found.through_reduction and together[i] == together[j]
            earliest = max(earliest, where[i] + (0 if same else 1))
        place = next((p for p in range(earliest, len(phases)) if _joins(phases[p], placed)), len(phases))
        if place == len(phases):
            phases.append(Phase(frozenset(placed.loops), placed.reduced))
        phases[place].add(placed)
        where.append(place)
    if len(phases) > 1 and not outer and any(len(mine) > 1 for mine in loops):
        return None
    return LoopNest(extents, outer, phases)


def _joins(phase: Phase, member: Member) -> bool:
    """True if the phase has the member's loops, and its reductions (if both have any) run over the same classes."""
    same = not phase.reducing or member.step.kind != "reduce" or member.reduced == phase.reduced
    return phase.loops == frozenset(member.loops) and same
