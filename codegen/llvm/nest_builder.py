"""Grows loop nests along a straight-line run of instructions: each joins the groups that it depends on, if they can
share a loop nest with it, or begins a group of its own.

What an instruction can depend on is looked up by the names of the bases that it touches, and what was found out about a
pair of instructions or the place of one in a nest is kept, so the work of a run grows with its length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from codegen.llvm.linked_steps import LinkedSteps
from codegen.llvm.loop_nests import (
    Dependence,
    LoopNest,
    Member,
    Step,
    Unit,
    analyse,
    canonical,
    dependences_between,
    is_fusable,
    place,
)
from codegen.llvm.windows import Window
from codegen.tile.instructions import INSTRUCTIONS
from codegen.tile.ir import Instr, View

MAX_MEMBERS = 48
"""Most instructions of one loop nest: keeps analysis and generated code small."""


class _Group:
    """A loop nest while it grows, or one instruction with code of its own (`closed`)."""

    def __init__(self, position: int, instr: Instr | None = None) -> None:
        self.position = position
        self.closed = instr
        self.linked = LinkedSteps(dependences_between)
        self.head = False
        self.nest: LoopNest | None = None
        self.reads: set[str] = set()
        self.writes: set[str] = set()

    def touch(self, instrs: Iterable[Instr]) -> None:
        """Notes the names of the bases that the instructions read and write."""
        for instr in instrs:
            self.reads.update(s.base for s in instr.srcs if isinstance(s, View))
            self.writes.add(instr.dst.base)


class _Bases:
    """Which groups read and write a base."""

    def __init__(self) -> None:
        self._readers: dict[str, dict[int, _Group]] = {}
        self._writers: dict[str, dict[int, _Group]] = {}

    def add(self, group: _Group) -> None:
        for base in group.reads:
            self._readers.setdefault(base, {})[group.position] = group
        for base in group.writes:
            self._writers.setdefault(base, {})[group.position] = group

    def remove(self, group: _Group) -> None:
        for base in group.reads:
            self._readers[base].pop(group.position, None)
        for base in group.writes:
            self._writers[base].pop(group.position, None)

    def conflicting(self, group: _Group) -> list[_Group]:
        """The groups whose order with this one matters, judged by the names of bases; earliest first."""
        found: dict[int, _Group] = {}
        for base in group.writes:
            found.update(self._readers.get(base, ()))
            found.update(self._writers.get(base, ()))
        for base in group.reads:
            found.update(self._writers.get(base, ()))
        return [found[position] for position in sorted(found)]


class NestBuilder:
    """Partitions one straight-line run of instructions."""

    def __init__(self) -> None:
        self._groups: dict[int, _Group] = {}
        """By position, which is also the order in which they run."""
        self._bases = _Bases()
        self._readers: dict[Window, _Group] = {}
        """By a window that is read along all axes: the last group that does."""
        self._next = 0
        self._known: dict[tuple[int, int], Sequence[Dependence]] = {}
        self._placed: dict[tuple[int, tuple[int, ...]], Member] = {}
        self._steps: list[Step] = []
        """All of them: what is known goes by their ids."""

    def add(self, instr: Instr) -> None:
        """Appends the next instruction of the run."""
        kind = INSTRUCTIONS[instr.op].kind
        if kind == "sync":
            return
        if kind == "hint":
            self._group(instr)  # its place is its own, but it keeps no other from moving
            return
        if not is_fusable(instr) and kind != "matmul":
            group = self._group(instr)
            group.touch([instr])
            self._bases.add(group)
            return
        step = canonical(instr)
        self._steps.append(step)
        if kind == "matmul" or not self._join(step):
            self._begin(step, head=kind == "matmul")

    def units(self) -> list[Unit]:
        """The run in execution order."""
        result: list[Unit] = []
        for position in sorted(self._groups):
            group = self._groups[position]
            unit = group.closed or group.nest
            assert unit is not None
            result.append(unit)
        return result

    def _group(self, instr: Instr | None = None) -> _Group:
        group = self._groups[self._next] = _Group(self._next, instr)
        self._next += 1
        return group

    def _begin(self, step: Step, head: bool) -> None:
        linked = LinkedSteps(self._between, [step])
        self._fill(self._group(), linked, head, analyse(linked, head, self._place))

    def _fill(self, group: _Group, linked: LinkedSteps, head: bool, nest: LoopNest | None) -> None:
        assert nest is not None
        group.linked, group.head, group.nest = linked, head, nest
        group.touch(s.instr for s in linked.steps)
        self._bases.add(group)
        self._readers.update((w, group) for s in linked.steps for w in s.shared_reads)

    def _join(self, step: Step) -> bool:
        """Puts the step into a loop nest with groups that it depends on; False if that cannot be."""
        alone = _Group(self._next)
        alone.touch([step.instr])
        earlier = [g for g in self._bases.conflicting(alone) if self._depends(g, step)]
        if not earlier:
            return self._join_sibling(step, -1)
        last = earlier[-1]
        movable = self._movable(earlier, last)
        for chosen in (movable, [last]):
            if any(g.closed for g in chosen) or sum(g.head for g in chosen) > 1:
                continue
            head = any(g.head for g in chosen)
            if head and not chosen[0].head:
                continue
            if sum(len(g.linked.steps) for g in chosen) >= MAX_MEMBERS:
                linked = None
            elif len(chosen) == 1:
                linked = last.linked.with_step(step)
            else:
                linked = LinkedSteps(self._between, [*(s for g in chosen for s in g.linked.steps), step])
            nest = None if linked is None else analyse(linked, head, self._place)
            if linked is not None and nest is not None:
                for group in chosen:
                    self._bases.remove(group)
                    if group is not last:
                        del self._groups[group.position]
                self._fill(last, linked, head, nest)
                return True
            if len(chosen) == 1:
                break
        return self._join_sibling(step, last.position)

    def _join_sibling(self, step: Step, after: int) -> bool:
        """Puts a step into the last nest that reads an operand of its, so that both load it once. The step depends
        on no group behind the position `after`; False if there is no such nest there."""
        found = [self._readers[w] for w in step.shared_reads if w in self._readers]
        found = [g for g in found if g.position > after and self._groups.get(g.position) is g]
        group = max(found, key=lambda g: g.position, default=None)
        if group is None or group.head or len(group.linked.steps) >= MAX_MEMBERS:
            return False
        linked = group.linked.with_step(step)
        nest = analyse(linked, False, self._place)
        if nest is None or len(nest.phases) > 1:
            return False
        self._bases.remove(group)
        self._fill(group, linked, False, nest)
        return True

    def _movable(self, earlier: Sequence[_Group], last: _Group) -> list[_Group]:
        """`last` and those of the `earlier` groups that fit a loop nest with it and may run as late."""
        chosen = [last]
        size = len(last.linked.steps) + 1
        for group in reversed(earlier[:-1]):
            if group.closed or size + len(group.linked.steps) > MAX_MEMBERS:
                continue
            between = [g for g in self._bases.conflicting(group) if group.position < g.position <= last.position]
            if all(g in chosen for g in between):
                chosen.append(group)
                size += len(group.linked.steps)
        return sorted(chosen, key=lambda g: g.position)

    def _depends(self, group: _Group, step: Step) -> bool:
        """True if the step touches what a conflicting group touches."""
        if group.closed or (group.head and _touches(group.linked.steps[0].instr, step.instr)):
            return True
        return any(s.meets(step) and self._between(s, step) for s in reversed(group.linked.steps))

    def _between(self, first: Step, second: Step) -> Sequence[Dependence]:
        key = (id(first), id(second))
        if key not in self._known:
            self._known[key] = dependences_between(first, second)
        return self._known[key]

    def _place(self, step: Step, loops: tuple[int, ...]) -> Member:
        key = (id(step), loops)
        if key not in self._placed:
            self._placed[key] = place(step, loops)
        return self._placed[key]


def _touches(first: Instr, second: Instr) -> bool:
    """True if the order of two instructions matters, judged by the names of their bases."""
    one, two = _Group(0), _Group(1)
    one.touch([first])
    two.touch([second])
    return bool(one.writes & (two.reads | two.writes) or one.reads & two.writes)
