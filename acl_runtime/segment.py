"""A segment in memory: its plan with the kernels and constants that its tasks take, and the graph to execute."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from acl_runtime.chip_programs import ChipKernel
from acl_runtime.constant_forms import Constants
from acl_runtime.executor import Graph, task_records
from acl_runtime.kernels import Kernel
from acl_runtime.om import PackageError
from acl_runtime.plan_format import PlanRequirement, PlanTask, SegmentPlan
from tensor_types.dims import Dim, names, substitute

_DAMAGED = "the file is damaged: copy it again or convert the model again"


class LoadedSegment:
    """What all sessions share of a segment; immutable.

    kernels: those of all programs of the model. constants: arrays in the plan's order, in kernel form.
    graph: the task graph with its edges; addresses, dims and grids belong to a binding.
    """

    def __init__(
        self, plan: SegmentPlan, kernels: Sequence[Kernel | ChipKernel], constants: Constants
    ) -> None:
        self.plan = plan
        self.constants = constants
        self._kernels = kernels
        self.graph = self._graph()

    def kernel(self, task: PlanTask) -> Kernel | ChipKernel:
        """The kernel of a native task."""
        assert task.program is not None
        return self._kernels[task.program]

    def in_model_dims(self, task: PlanTask, *sizes: Dim) -> tuple[Dim, ...]:
        """Expressions over the dims of the task's program as ones over the dims of the segment."""
        facts = self.kernel(task).facts
        known = {name: value for (name, _, _), value in zip(facts.dims, task.dims, strict=True)}
        return tuple(size if isinstance(size, int) else substitute(size, known) for size in sizes)

    def requirements(self) -> list[PlanRequirement]:
        """What a run requires of the dims whatever its branches: by the plan, and by the least sizes of kernels."""
        least: dict[tuple[Dim, int], PlanRequirement] = {}
        for task in self.plan.tasks:
            if task.program is None or task.guard is not None:
                continue
            for value, (_, low, _) in zip(task.dims, self.kernel(task).facts.dims, strict=True):
                if names(value):
                    least.setdefault((value, low), PlanRequirement(value, low, "window", task.node, None))
        return [r for r in self.plan.requirements if r.guard is None] + list(least.values())

    def _graph(self) -> Graph:
        tasks = self.plan.tasks
        records = task_records(len(tasks))
        successors: list[list[int]] = [[] for _ in tasks]
        for number, task in enumerate(tasks):
            for before in sorted(set(task.after)):
                successors[before].append(number)
            records["n_predecessors"][number] = len(set(task.after))
            if task.guard is not None:
                records["guard_offset"][number], records["guard_value"][number] = task.guard
            if task.program is not None:
                self._check_task(task)
                records["fn"][number] = self.kernel(task).address
        flat = [s for row in successors for s in row]
        counts = np.array([len(row) for row in successors], np.int32)
        records["n_successors"] = counts
        records["first_successor"] = np.cumsum(counts, dtype=np.int32) - counts
        scratch = max((self.kernel(t).facts.scratch_bytes for t in tasks if t.program is not None), default=0)
        return Graph(records, np.array(flat, np.int32), self.plan.n_guards, scratch)

    def _check_task(self, task: PlanTask) -> None:
        """Counts and roles of a task against its program."""
        facts = self.kernel(task).facts
        if len(task.operands) != len(facts.params) or len(task.dims) != len(facts.dims):
            raise PackageError(
                "a task does not give what its program takes", where={"node": task.node}, remedy=_DAMAGED
            )
        for place, (role, _) in zip(task.operands, facts.params, strict=True):
            if place.space == "object" or (role != "in" and place.space in ("input", "constant")):
                raise PackageError(
                    f"a task uses its {place.space} as {role}", where={"node": task.node}, remedy=_DAMAGED
                )
