"""`plan`: the way from records in program order to a task graph with places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from graph_opt.plan.dependencies import Access, predecessors, reduce_transitively
from graph_opt.plan.offsets import Interval, Placed, assign_offsets
from graph_opt.plan.records import AicpuRecord, AliasRecord, KernelRecord, TaskOperand
from graph_opt.plan.storages import Roots, find_roots, output_roots, versions_of
from graph_opt.plan.task_graph import (
    Constant,
    Operand,
    Place,
    Plan,
    PlanInput,
    Scheduled,
    Storage,
    Task,
    ValueInfo,
)
from tensor_types.dims import Dim, dmax
from tensor_types.errors import InvalidModel

COPY_GUARD = """program copy_guard () {
  param in p0: u8[1]
  param out p1: u8[1]
  tile t0: u8[32] UB
  body {
    TLOAD t0[_0]{1}, p0[_0]{1}
    TSTORE p1[_0]{1}, t0[_0]{1}
  }
}
"""
"""Copies a bool into a guard byte of the executor, on any target: rows of a chip's tiles have 32 bytes. A skipped copy
leaves 'skip' there: nested guards need no 'and'."""


def plan(model: PlanInput) -> Plan:
    """Plans a model: aliases resolved, values placed, equal programs merged, tasks ordered by the bytes they touch.

    InvalidModel if the records contradict each other, UnsupportedOperator if a native task takes a late-sized tensor.
    """
    return _Planner(model).run()


@dataclass
class _Draft:
    """A storage before it has an offset: the tasks that touch it, and the root value it belongs to (None: scratch)."""

    bytes: Dim
    tasks: list[int] = field(default_factory=list)


class _Planner:
    def __init__(self, model: PlanInput) -> None:
        self.model = model
        self.values: dict[str, ValueInfo] = {v.name: v for v in model.values}
        if len(self.values) != len(model.values):
            raise InvalidModel("two values have the same name")
        self.roots: Roots = find_roots(model, self.values)
        self.outputs = output_roots(model.outputs, self.values, self.roots)
        self.inputs = {name: number for number, name in enumerate(model.inputs)}
        self.states = {name: number for number, name in enumerate(model.states)}
        self.versions = versions_of(model)
        self.results = frozenset(model.outputs)
        self.programs: dict[str, int] = {}
        self.constants: dict[Constant, int] = {}
        self.objects: dict[str, int] = {}
        self.storages: dict[str, int] = {}
        self.drafts: list[_Draft] = []
        self.guards: dict[tuple[object, ...], int] = {}
        """Guard byte by (outer guards..., condition)."""
        self.tasks: list[Task] = []
        self.in_place: list[tuple[int, int, int]] = []
        """(task, storage written, storage read) that may lie on the same bytes."""

    def run(self) -> Plan:
        for scheduled in self.model.records:
            if not isinstance(scheduled.record, AliasRecord):
                guard = self._guard(scheduled.guards, scheduled.record.node)
                self._add(scheduled, guard)
        requirements = tuple((d, self._guard(d.guards, d.node)) for d in self.model.requirements)
        places = {name: self._place(name) for name in self.values if self._is_placed(name)}
        copies = self._output_copies()
        placed, group_of, arena, spans = self._assign(places)
        edges = reduce_transitively(predecessors([self._accesses(t, placed, group_of) for t in self.tasks]))
        tasks = tuple(replace(t, after=a) for t, a in zip(self.tasks, edges, strict=True))
        storages = tuple(
            Storage(draft.bytes, placed[group_of[n]].offset, *spans[n]) for n, draft in enumerate(self.drafts)
        )
        return Plan(
            dims=dict(self.model.dims),
            values=self.values,
            inputs=self.model.inputs,
            outputs=self.model.outputs,
            programs=tuple(self.programs),
            constants=tuple(self.constants),
            tasks=tasks,
            storages=storages,
            places=places,
            arena=arena,
            n_guards=len(self.guards),
            n_objects=len(self.objects),
            output_copies=copies,
            states=self.model.states,
            versions=self.versions,
            requirements=requirements,
        )

    # Tasks

    def _add(self, scheduled: Scheduled, guard: tuple[int, int] | None) -> None:
        record, task = scheduled.record, len(self.tasks)
        if isinstance(record, KernelRecord):
            operands: list[Operand | None] = [self._operand(o, record, task) for o in record.operands]
            for out, source in record.may_alias:
                self._may_share(task, operands[out], operands[source])
            self.tasks.append(
                Task(
                    record.node, record.family, tuple(operands), self._program(record.program), record.dims,
                    record.grid, record.work, guard=guard, may_alias=record.may_alias,
                    tiling=record.tiling,
                )
            )  # fmt: skip
        elif isinstance(record, AicpuRecord):
            inputs = [None if name is None else self._aicpu_operand(name, "in", record) for name in record.inputs]
            outputs = [self._aicpu_operand(name, "out", record) for name in record.outputs]
            self.tasks.append(
                Task(record.node, "aicpu", (*inputs, *outputs), op=record.op, attrs=dict(record.attrs), guard=guard,
                     body=record.body)  # fmt: skip
            )

    def _program(self, text: str) -> int:
        return self.programs.setdefault(text, len(self.programs))

    def _operand(self, operand: TaskOperand, record: KernelRecord, task: int) -> Operand:
        if operand.value is None:
            self.drafts.append(_Draft(operand.bytes))
            return Operand(Place("arena", len(self.drafts) - 1), operand.bytes, "workspace")
        value = self._value(operand.value, record.node)
        if value.kind == "constant":
            if operand.role != "in":
                raise InvalidModel("a task writes a constant", where={"node": record.node, "tensor": value.name})
            constant = Constant(value.name, operand.permute, operand.reshape, operand.packing)
            number = self.constants.setdefault(constant, len(self.constants))
            return Operand(Place("constant", number), _packed_bytes(constant, value), "in", value.name)
        self._check_writable(value, operand.role, record.node)
        return Operand(self._place(value.name), value.bytes, operand.role, value.name)

    def _aicpu_operand(self, name: str, role: str, record: AicpuRecord) -> Operand:
        value = self._value(name, record.node)
        if value.kind == "constant":
            number = self.constants.setdefault(Constant(name), len(self.constants))
            return Operand(Place("constant", number), 0 if value.dtype.kind == "handle" else value.bytes, role, name)
        self._check_writable(value, role, record.node)
        size = 0 if name in self.roots.objects else value.bytes
        return Operand(self._place(name), size, role, name)

    def _value(self, name: str, node: str) -> ValueInfo:
        if name not in self.values:
            raise InvalidModel("a task takes a value that does not exist", where={"node": node, "tensor": name})
        return self.values[name]

    def _check_writable(self, value: ValueInfo, role: str, node: str) -> None:
        if role == "in" or value.name in self.roots.objects:
            return
        root = self.values[self.roots.of[value.name][0]]
        if root.name in self.states and self.versions.get(value.name, ("", None))[1] is None:
            raise InvalidModel("a task writes a state without an update", where={"node": node, "tensor": value.name})
        if root.kind in ("input", "constant"):
            raise InvalidModel("a task writes a model input or a constant", where={"node": node, "tensor": value.name})

    def _place(self, name: str) -> Place:
        """Where a value is; gives it a storage when it is met first."""
        if name in self.inputs:
            return Place("input", self.inputs[name])
        if name in self.roots.objects:
            if self.values[name].kind != "constant":
                return Place("object", self.objects.setdefault(name, len(self.objects)))
            return Place("constant", self.constants.setdefault(Constant(name), len(self.constants)))
        root, offset = self.roots.of[name]
        if root in self.inputs:
            return Place("input", self.inputs[root], offset)
        if root in self.states:
            return Place("state", self.states[root], offset)
        if self.values[root].kind == "constant":
            return Place("constant", self.constants.setdefault(Constant(root), len(self.constants)), offset)
        if root in self.outputs:
            return Place("output", self.outputs[root], offset)
        if root not in self.storages:
            self.storages[root] = len(self.drafts)
            self.drafts.append(_Draft(self.roots.bytes[root]))
        return Place("arena", self.storages[root], offset)

    def _is_placed(self, name: str) -> bool:
        """True unless nothing touches the value: it lives inside a kernel, or nobody needs it."""
        if name in self.inputs or name in self.results or name in self.objects:
            return True
        root = self.roots.of[name][0] if name in self.roots.of else name
        if self.values[root].kind == "constant":
            return Constant(root) in self.constants
        return any(root in placed for placed in (self.inputs, self.states, self.outputs, self.storages))

    def _guard(self, guards: Sequence[tuple[str, int]], node: str) -> tuple[int, int] | None:
        """The guard byte for nested guards; adds the tasks that write it and the bytes around it."""
        guard: tuple[int, int] | None = None
        for depth, (name, wanted) in enumerate(guards):
            key = (*guards[:depth], name)
            if key not in self.guards:
                value = self._value(name, node)
                self.guards[key] = len(self.guards)
                source = Operand(self._place(name), value.bytes, "in", name)
                target = Operand(Place("guard", self.guards[key]), 1, "out")
                self.tasks.append(Task(node, "guard", (source, target), self._program(COPY_GUARD), guard=guard))
            guard = (self.guards[key], wanted)
        return guard

    def _may_share(self, task: int, out: Operand | None, source: Operand | None) -> None:
        if out is None or source is None or out.value is None or source.value is None:
            return
        if out.place.space != "arena" or source.place.space != "arena" or out.place.index == source.place.index:
            return
        # Views of part of a storage keep their own bytes: only whole storages may coincide.
        sizes = {out.bytes, source.bytes, self.drafts[out.place.index].bytes, self.drafts[source.place.index].bytes}
        if len(sizes) == 1 and out.place.offset == 0 and source.place.offset == 0:
            self.in_place.append((task, out.place.index, source.place.index))

    def _output_copies(self) -> tuple[tuple[int, str], ...]:
        """Outputs that no task writes through their own buffer."""
        direct = set(self.outputs.values())
        return tuple((n, name) for n, name in enumerate(self.model.outputs) if n not in direct)

    # Places

    def _assign(self, places: Mapping[str, Place]) -> tuple[list[Placed], list[int], Dim, list[tuple[int, int]]]:
        """Offsets of groups of storages that lie on the same bytes, and the span of tasks of every storage."""
        for number, task in enumerate(self.tasks):
            for operand in task.operands:
                if operand is not None and operand.place.space == "arena":
                    self.drafts[operand.place.index].tasks.append(number)
        for _, name in self._output_copies():
            place = places[name]
            if place.space == "arena":  # it has to last until the end of the run
                self.drafts[place.index].tasks.append(max(len(self.tasks) - 1, 0))
        spans = [(min(d.tasks, default=0), max(d.tasks, default=-1)) for d in self.drafts]
        group_of = list(range(len(self.drafts)))
        members = [[n] for n in group_of]
        last = [end for _, end in spans]
        for at, out, source in self.in_place:
            group = group_of[source]
            # The input must end here, the output begin here.
            if last[group] == at and spans[out][0] == at and group_of[out] == out and len(members[out]) == 1:
                group_of[out] = group
                members[group].append(out)
                last[group] = spans[out][1]
        groups = [g for g in range(len(self.drafts)) if group_of[g] == g]
        intervals = []
        for group in groups:
            size = self.drafts[group].bytes
            for other in members[group][1:]:
                size = dmax(size, self.drafts[other].bytes)
            # A storage that no task touches takes no room.
            used = last[group] >= spans[group][0]
            intervals.append(Interval(size if used else 0, spans[group][0], max(last[group], spans[group][0])))
        placed, arena = assign_offsets(intervals)
        index = {group: n for n, group in enumerate(groups)}
        return placed, [index[g] for g in group_of], arena, spans

    def _accesses(self, task: Task, placed: Sequence[Placed], group_of: Sequence[int]) -> list[Access]:
        """What the task touches. Parts of a storage count as the whole: their offsets may be expressions."""
        found: list[Access] = []
        for operand in task.operands:
            if operand is None or operand.place.space in ("input", "constant"):
                continue
            place, write = operand.place, operand.role != "in"
            if place.space == "arena":
                where = placed[group_of[place.index]]
                found.append(Access(("arena", where.block), where.start, where.end, write))
            else:
                found.append(Access((place.space, place.index), 0, 1, write))
        if task.guard is not None:
            found.append(Access(("guard", task.guard[0]), 0, 1, False))
        return found


def _packed_bytes(constant: Constant, value: ValueInfo) -> Dim:
    shape = value.shape or ()
    if constant.permute is not None:
        shape = tuple(shape[p] for p in constant.permute)
    if constant.reshape is not None:
        shape = constant.reshape
    return ValueInfo("", value.dtype, shape, "constant", constant.packing).bytes
