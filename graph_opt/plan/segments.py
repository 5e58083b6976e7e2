"""Segments: a model whose sizes partly only a run decides is planned as a row of plans, run one after another.

A late dim is known once an AI CPU task has made a tensor that has it as an extent. A segment is what can run natively
with the dims known at its start: its records are those whose operands the segments before it, or itself, make, and
whose sizes are known. Between segments, tensors are passed on; the next one is bound to their actual shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from graph_opt.ir.data_dependent_sizes import decided
from graph_opt.plan.planner import plan
from graph_opt.plan.records import AicpuRecord, AliasRecord, KernelRecord, Record
from graph_opt.plan.storages import versions_of
from graph_opt.plan.task_graph import Growing, Plan, PlanInput, Scheduled, ValueInfo
from tensor_types.dims import Dim, names
from tensor_types.errors import InvalidModel, UnsupportedOperator

MODEL_INPUTS = 0
"""Row of the tensors that the caller gives; row s + 1 holds the outputs of segment s."""


@dataclass(frozen=True)
class Segment:
    """A plan, and for each of its inputs where it comes from: (row, number in it)."""

    plan: Plan
    sources: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ModelPlan:
    """Segments in order; `outputs` tells for each output of the model its (row, number in it); `bodies` are the models
    that its loops repeat; `growing` the caches, with their numbers among inputs and outputs of the model."""

    segments: tuple[Segment, ...]
    outputs: tuple[tuple[int, int], ...]
    bodies: tuple[ModelPlan, ...] = ()
    growing: tuple[tuple[Growing, tuple[tuple[int, int], ...]], ...] = ()

    @property
    def programs(self) -> tuple[str, ...]:
        """Texts of all programs, each once, in order of first use."""
        own = [p for s in self.segments for p in s.plan.programs]
        return tuple(dict.fromkeys([*own, *(p for body in self.bodies for p in body.programs)]))


def plan_model(model: PlanInput) -> ModelPlan:
    """Splits a model at the sizes that only a run decides (`PlanInput.late_dims`) and plans each segment.

    InvalidModel if records contradict each other, UnsupportedOperator if a native task needs a size that no AI CPU task
    before it decides.
    """
    return _Splitter(model).split()


def taken_and_given(record: Record) -> tuple[set[str], set[str]]:
    """Names of the values that a record takes and gives."""
    if isinstance(record, AliasRecord):
        return {record.input}, {record.output}
    if isinstance(record, AicpuRecord):
        return {n for n in record.inputs if n}, set(record.outputs)
    takes = {o.value for o in record.operands if o.value and o.role in ("in", "inout")}
    return takes, {o.value for o in record.operands if o.value and o.role in ("out", "inout")}


class _Splitter:
    def __init__(self, model: PlanInput) -> None:
        self.model = model
        self.values: dict[str, ValueInfo] = {v.name: v for v in model.values}
        for name in (*model.inputs, *model.outputs):
            if name in self.values and not self.values[name].format.is_plain:
                raise InvalidModel("an end of the model has a format of its own", where={"tensor": name})
        self.given = {name: number for number, name in enumerate(model.inputs)}
        self.touched = [taken_and_given(s.record) for s in model.records]
        self.all_made = frozenset().union(*(gives for _, gives in self.touched))
        self.in_state = versions_of(model)
        """Values that lie in states. What touches states stays in one segment, so that order within it is all."""
        self.witness = self._witnesses()
        """The tensor whose shape tells a late dim."""
        self.made: dict[str, int] = {}
        """Segment that makes a value; model inputs and constants are there from the start."""

    def split(self) -> ModelPlan:
        place = self._place_records()
        count = max(place, default=0) + 1
        records = [[s for s, at in zip(self.model.records, place, strict=True) if at == n] for n in range(count)]
        late = [self._late_dims(rows, n) for n, rows in enumerate(records)]
        inputs = [self.model.inputs, *(self._inputs(records[n], late[n], n) for n in range(1, count))]
        wanted = set().union(*inputs[1:])
        outputs: list[tuple[str, ...]] = []
        for n in range(count):
            results = [name for name in self.model.outputs if self.made.get(name, 0) == n]
            passed = dict.fromkeys(v for s in records[n] for v in sorted(taken_and_given(s.record)[1]) if v in wanted)
            known = set(results)
            outputs.append((*results, *(v for v in passed if v not in known)))
        segments = [
            Segment(
                plan(self._part(records[n], inputs[n], outputs[n], late[n], late[:n])),
                tuple(self._source(name, outputs) for name in inputs[n]),
            )
            for n in range(count)
        ]
        at = [0] * count
        ends = []
        for name in self.model.outputs:  # they come first in their segments, in the model's order
            segment = self.made.get(name, 0)
            ends.append((segment + 1, at[segment]))
            at[segment] += 1
        bodies = tuple(plan_model(body) for body in self.model.bodies)
        results = {name: number for number, name in enumerate(self.model.outputs)}
        growing = [(g, tuple((self.given[a], results[b]) for a, b in g.pairs)) for g in self.model.growing]
        return ModelPlan(tuple(segments), tuple(ends), bodies, tuple(growing))

    def _witnesses(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for scheduled in self.model.records:
            if isinstance(scheduled.record, AicpuRecord):
                for name in scheduled.record.outputs:
                    value = self.values.get(name)
                    if value is not None:
                        late = decided(value.dtype, value.shape) & self.model.late_dims.keys()
                        found.update((d, name) for d in late - found.keys())
        return found

    def _place_records(self) -> list[int]:
        """The segment of each record: the first one in which it can run. Writers of one value stay together."""
        place = [0] * len(self.model.records)
        if not self.model.late_dims:
            self.made.update((name, 0) for _, gives in self.touched for name in gives)
            return place
        needs = [self._needed(s) for s in self.model.records]
        changed = True
        while changed:
            changed = False
            together = max((place[n] for n, t in enumerate(self.touched) if self._touches_state(t)), default=0)
            for number, scheduled in enumerate(self.model.records):
                takes, gives = self.touched[number]
                operands = (*takes, *gives, *(name for name, _ in scheduled.guards))
                at = max((self.made.get(v, 0) for v in operands), default=0)
                if self._touches_state(self.touched[number]):
                    at = max(at, together)
                    changed |= at > together
                place[number] = max(at, *(self.made.get(self.witness[d], 0) + 1 for d in needs[number]), 0)
                if place[number] > len(place):
                    raise InvalidModel(
                        "a tensor is written before and after a size that depends on it",
                        where={"node": scheduled.record.node},
                    )
                for name in gives:
                    if self.made.get(name, -1) < place[number]:
                        self.made[name] = place[number]
                        changed = True
        return place

    def _touches_state(self, touched: tuple[set[str], set[str]]) -> bool:
        return any(name in self.in_state for values in touched for name in values)

    def _needed(self, scheduled: Scheduled) -> frozenset[str]:
        """The late dims that have to be known before a record can run.

        The AI CPU takes what comes, but for tensors of no elements, which nobody makes: their extents have to be known.
        """
        record = scheduled.record
        touched = set().union(*taken_and_given(record))
        if isinstance(record, AicpuRecord):
            touched = taken_and_given(record)[0] - self.given.keys() - self.all_made
        sizes: list[Dim] = []
        for name in touched:
            sizes.extend(self.values[name].shape or () if name in self.values else ())
        sizes.extend(_sizes(record))
        needed = _names(sizes) & self.model.late_dims.keys()
        if needed - self.witness.keys():
            raise UnsupportedOperator(
                f"a native task needs the size {min(needed - self.witness.keys())}, which only the run decides",
                where={"node": record.node},
                remedy="lower the node for the AI CPU",
            )
        return frozenset(needed)

    def _late_dims(self, records: Sequence[Scheduled], segment: int) -> dict[str, tuple[int, int | None]]:
        """The late dims that are known in a segment and that something in it depends on."""
        shapes = (self.values[v].shape or () for v in _touched(records) if v in self.values)
        used = _names([*(d for shape in shapes for d in shape), *(d for s in records for d in _sizes(s.record))])
        known = {d for d, tensor in self.witness.items() if self.made[tensor] < segment}
        return {d: bounds for d, bounds in self.model.late_dims.items() if d in used & known}

    def _inputs(self, records: Iterable[Scheduled], late: Iterable[str], segment: int) -> tuple[str, ...]:
        """What a segment takes from those before it: operands, and the tensors that tell its late dims."""
        outside = [v for v in _touched(records) if self._is_ready(v, segment)]
        return tuple(dict.fromkeys((*(self.witness[d] for d in late), *outside)))

    def _is_ready(self, name: str, segment: int) -> bool:
        """True if a segment before this one, or the caller, gives the value. Values of no elements nobody makes."""
        return name in self.given or (name in self.made and self.made[name] < segment)

    def _source(self, name: str, outputs: list[tuple[str, ...]]) -> tuple[int, int]:
        if name in self.given:
            return MODEL_INPUTS, self.given[name]
        return self.made[name] + 1, outputs[self.made[name]].index(name)

    def _part(
        self, records: list[Scheduled], inputs: tuple[str, ...], outputs: tuple[str, ...],
        late: Mapping[str, tuple[int, int | None]], before: list[dict[str, tuple[int, int | None]]],
    ) -> PlanInput:  # fmt: skip
        """One segment as a model of its own.

        A requirement is checked in the first segment that knows its dims, one with guards wherever records have them.
        """
        touched = {*inputs, *outputs, *_touched(records)}
        dims = {**self.model.dims, **late}
        old = [{*self.model.dims, *known} for known in before]
        guards = {s.guards for s in records}
        requirements = []
        for requirement in self.model.requirements:
            wanted = names(requirement.left) | names(requirement.right)
            here = requirement.guards in guards if requirement.guards else not any(wanted <= known for known in old)
            if wanted <= dims.keys() and here:
                requirements.append(requirement)
        states = tuple(name for name in self.model.states if name in touched)
        kinds = {**dict.fromkeys(outputs, "output"), **dict.fromkeys(inputs, "input"), **dict.fromkeys(states, "state")}
        values = []
        for value in self.model.values:
            if value.name in touched:
                kind = value.kind if value.kind == "constant" else kinds.get(value.name, "temporary")
                values.append(value if value.kind == kind else replace(value, kind=kind))
        return PlanInput(tuple(values), tuple(records), inputs, outputs, dims, tuple(requirements), states=states)


def _sizes(record: Record) -> list[Dim]:
    """What a record is measured in beside the shapes of its values."""
    if isinstance(record, KernelRecord):
        return [*record.dims, record.grid, *(o.bytes for o in record.operands)]
    return [record.byte_offset] if isinstance(record, AliasRecord) else []


def _touched(records: Iterable[Scheduled]) -> list[str]:
    """Names of all values that records take or give, and of their conditions, each once, in order."""
    found: dict[str, None] = {}
    for scheduled in records:
        takes, gives = taken_and_given(scheduled.record)
        found.update(dict.fromkeys((*sorted(takes), *sorted(gives), *(name for name, _ in scheduled.guards))))
    return list(found)


def _names(sizes: Iterable[Dim]) -> set[str]:
    return set().union(*map(names, sizes))
