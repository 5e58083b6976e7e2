"""Steps that may share a loop nest, grown one by one: what depends on what, and which axes run together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from codegen.llvm.loop_nests import Dependence, Step
    from codegen.llvm.windows import Window

Between = Callable[["Step", "Step"], Sequence["Dependence"]]


class LinkedSteps:
    """A sequence of steps with their dependences, and classes of axes (union-find over the axes of all steps).

    A step costs as much as it has relatives, so that a run of steps is not linked anew for each that is tried.
    """

    def __init__(self, between: Between, steps: Iterable[Step] = ()) -> None:
        self.steps: list[Step] = []
        self.dependences: list[list[tuple[int, Dependence]]] = []
        """For each step the earlier ones that it depends on, in order, and how."""
        self._between = between
        self._first: list[int] = []
        """Number of each step's first axis; its others follow."""
        self._parent: list[int] = []
        self._touching: dict[str, tuple[list[int], list[int]]] = {}
        """By base: numbers of the steps that write it, and of those that read it."""
        self._readers: dict[Window, int] = {}
        """By a window that is read along all axes: the number of the first step that does."""
        for step in steps:
            self.add(step)

    def with_step(self, step: Step) -> LinkedSteps:
        """These steps and one more; these stay as they are."""
        grown = LinkedSteps(self._between)
        grown.steps = self.steps.copy()
        grown.dependences = self.dependences.copy()
        grown._first = self._first.copy()
        grown._parent = self._parent.copy()
        grown._touching = {base: (w.copy(), r.copy()) for base, (w, r) in self._touching.items()}
        grown._readers = self._readers.copy()
        grown.add(step)
        return grown

    def add(self, step: Step) -> None:
        """Appends a step and links its axes with those of the steps that it depends on, and of those that read the
        same elements at the same indices."""
        number, first = len(self.steps), len(self._parent)
        self.steps.append(step)
        self._first.append(first)
        self._parent.extend(range(first, first + len(step.extents)))
        found: list[tuple[int, Dependence]] = []
        for i in self._relatives(step):
            for dependence in self._between(self.steps[i], step):
                found.append((i, dependence))
                for a, b in dependence.relation.pairs:
                    self._parent[self._find(self._first[i] + a)] = self._find(first + b)
        for read in step.shared_reads:
            sibling = self._readers.setdefault(read, number)
            for k in range(len(step.extents)):
                self._parent[self._find(self._first[sibling] + k)] = self._find(first + k)
        self.dependences.append(found)
        self._touching.setdefault(step.dst.base, ([], []))[0].append(number)
        for base in step.read_bases:
            self._touching.setdefault(base, ([], []))[1].append(number)

    def classes(self, number: int) -> list[int]:
        """For each axis of a step a number that is the same for axes that run together."""
        first = self._first[number]
        return [self._find(k) for k in range(first, first + len(self.steps[number].extents))]

    def _relatives(self, step: Step) -> list[int]:
        """Steps that touch one base with this one which either of them writes."""
        none: tuple[list[int], list[int]] = ([], [])
        writers, readers = self._touching.get(step.dst.base, none)
        found = {*writers, *readers}
        for base in step.read_bases:
            found.update(self._touching.get(base, none)[0])
        return sorted(found)

    def _find(self, axis: int) -> int:
        parent = self._parent
        while parent[axis] != axis:
            parent[axis] = parent[parent[axis]]
            axis = parent[axis]
        return axis
