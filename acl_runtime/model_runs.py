"""Executions of a model: its segments one after another, each bound to the shapes that the ones before it made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from acl_runtime.binding import Binding
from acl_runtime.executor import Executor
from acl_runtime.growing_caches import GrowingCaches
from acl_runtime.loop_runs import LoopRuns
from acl_runtime.model import LoadedPlan
from acl_runtime.plan_format import PlanValue
from acl_runtime.result_memory import ResultMemory
from acl_runtime.run_state import RunState, addresses_of
from acl_runtime.segment_runs import Arenas, SegmentRuns
from acl_runtime.state import State
from tensor_types.deadline import run_deadline
from tensor_types.dtypes import HANDLE
from tensor_types.errors import InvalidModel


class _End(NamedTuple):
    """An output of a segment: its value and number, whether it is an object, the model output that it is, if any."""

    value: PlanValue
    number: int
    is_late: bool
    result: int | None
    is_passed: bool
    """True if a later segment reads it."""


class _Tensor(NamedTuple):
    """What segments pass on: an array in physical order and its logical shape, None if its branch did not run."""

    array: np.ndarray | None
    shape: tuple[int, ...] | None


class _Lying:
    """What a run takes and gives that lies in memory with room: shapes of the inputs without it, arrays of outputs by
    number, addresses by identity of the array."""

    def __init__(self, shapes: list[tuple[int, ...]]) -> None:
        self.shapes = shapes
        self.outputs: dict[int | None, np.ndarray] = {}
        self.addresses: dict[int, int] = {}
        self.binding: Binding | None = None


class ModelRuns:
    """What a session holds of a model. Several threads may execute it at a time.

    With `keep`, no memory is used again, so that states hold every tensor of their execution.
    """

    def __init__(self, model: LoadedPlan, executor: Executor, keep: bool) -> None:
        self.plan = model.plan
        self.arenas = Arenas()
        self._bodies = [LoopRuns(ModelRuns(body, executor, False)) for body in model.bodies]
        self._memory = ResultMemory(2 * len(model.plan.results))
        self.segments = [
            SegmentRuns(
                s, executor, self.arenas, keep, () if number else model.gears, self._bodies, model.plan.own_dims
            )
            for number, s in enumerate(model.segments)
        ]
        self._keep = keep
        self._growing = None if keep or not model.plan.growing else GrowingCaches(model.plan)
        self.states = model.plan.states
        self.state = State(self.states)
        """What runs use that are given no state of their own."""
        self._n_results = len(model.plan.results)
        results = {place: number for number, place in enumerate(model.plan.results)}
        passed = {place for plan in model.plan.segments for place in plan.sources}
        self._ends = [
            [
                _End(plan.values[v], v, plan.is_late(plan.values[v]), results.get((row, n)), (row, n) in passed)
                for n, v in enumerate(plan.outputs)
            ]
            for row, plan in enumerate(model.plan.segments, 1)
        ]

    def bind(self, shapes: Sequence[tuple[int, ...]]) -> Binding:
        """The binding of the first segment, whose dims are those of the model. InvalidModel."""
        return self.segments[0].bind(tuple(shapes))

    def execute(
        self, inputs: Sequence[np.ndarray], buffers: Sequence[np.ndarray | None], timed: bool = False,
        state: State | None = None,
    ) -> tuple[list[Any], list[RunState]]:  # fmt: skip
        """The outputs, and the state of each segment, to be given to `leave` once nothing more is read of them.

        `inputs` are contiguous arrays, but for caches that grow; `buffers` has one for each output that goes to memory
        of the caller. `state` is what the model keeps from run to run; None is that of the session. InvalidModel if it
        is another model's.
        """
        if not self.states:
            if state is not None and state.arrays:
                raise _foreign()
            if self._growing is not None:
                return self._execute_growing(self._growing, inputs, buffers, timed)
            return self._execute(inputs, buffers, timed, {})
        used = self.state if state is None else state
        with used.lock:
            if not used.fits(self.states):
                raise _foreign()
            return self._execute(inputs, buffers, timed, used.arrays)

    def _execute_growing(
        self, caches: GrowingCaches, inputs: Sequence[np.ndarray], buffers: Sequence[np.ndarray | None], timed: bool
    ) -> tuple[list[Any], list[RunState]]:
        """Caches that an earlier run gave are continued where they lie, if they may be."""
        fed_back = [n for n in range(len(caches.groups)) if caches.is_fed_back(n, inputs, buffers)]
        if fed_back:
            dims = self.segments[0].solve(tuple([a.shape for a in inputs]))
            begun = [caches.begin(n, inputs, dims) for n in fed_back]
            arrays, lying = list(inputs), _Lying([a.shape for a in inputs])
            for run in begun:
                for a, array in zip(caches.pasts[run.group], run.block.arrays, strict=True):
                    arrays[a] = array
                lying.outputs.update(zip(caches.presents[run.group], run.block.arrays, strict=True))
                lying.addresses.update(run.block.address_of)
            own = {**dict.fromkeys(caches.own_dims, 0), **{k: v for run in begun for k, v in run.dims.items()}}
            try:
                lying.binding = self.segments[0].bind_dims({**dims, **own})
                results, states = self._execute(arrays, buffers, timed, {}, lying)
            except InvalidModel:
                # It may be that the model wants to overwrite rows. If the run is at fault, it fails again.
                results, states = self._execute([_in_order(a) for a in inputs], buffers, timed, {})
                for number in fed_back:
                    caches.refuse(number)
            else:
                for run in begun:
                    for b, view in zip(caches.presents[run.group], caches.end(run), strict=True):
                        results[b] = view
        else:
            results, states = self._execute([_in_order(a) for a in inputs], buffers, timed, {})
        caches.note(results)
        return results, states

    def _execute(
        self, inputs: Sequence[np.ndarray], buffers: Sequence[np.ndarray | None], timed: bool,
        held: Mapping[str, np.ndarray], lying: _Lying | None = None, known: Mapping[str, int] | None = None,
    ) -> tuple[list[Any], list[RunState]]:  # fmt: skip
        results: list[Any] = [None] * self._n_results
        states: list[RunState] = []
        try:
            with run_deadline():
                shapes = [a.shape for a in inputs] if lying is None else lying.shapes
                binding = lying.binding if lying is not None else None
                binding = binding or self.segments[0].bind(tuple(shapes), known)
                made = self._execute_segment(0, binding, inputs, buffers, results, states, timed, held, lying)
                if len(self.segments) > 1:
                    given = [_Tensor(a, s) for a, s in zip(inputs, shapes, strict=True)]
                    rows = [given, self._tensors(0, binding, made)]
                    self._execute_rest(binding, rows, buffers, results, states, timed, held, lying)
        except BaseException:
            self.leave(states)
            raise
        return results, states

    @property
    def is_one_piece(self) -> bool:
        """Whether the shapes of the inputs tell all sizes, and no tensor is an object."""
        taken = (self.plan.segments[0].is_sized(v) for v in self.plan.inputs)
        return len(self.segments) == 1 and all(taken) and not any(e.is_late for e in self._ends[0])

    def repeat(self, inputs: Sequence[np.ndarray], known: Mapping[str, int]) -> list[Any]:
        """The outputs of a body, whose dims those of its inputs and the `known` ones are."""
        results, states = self._execute(inputs, [None] * self._n_results, False, {}, known=known)
        self.leave(states)
        return results

    def prepared(
        self, inputs: Sequence[np.ndarray], buffers: Sequence[np.ndarray | None]
    ) -> Callable[[], list[np.ndarray]] | None:
        """Executions on these arrays, which are checked and addressed once; None if the model has several segments,
        states or outputs without a buffer, or if everything is kept."""
        ends = self._ends[0]
        if len(self.segments) > 1 or self.states or self._keep or any(e.is_late for e in ends):
            return None
        segment, arenas, inputs = self.segments[0], self.arenas, [_in_order(a) for a in inputs]
        binding = self.bind([a.shape for a in inputs])
        outputs: list[np.ndarray] = []
        for end in ends:
            buffer = None if end.result is None else buffers[end.result]
            if buffer is None:
                return None
            outputs.append(_fitting(end.value, binding.shapes[end.number], buffer))
        addresses = np.array(addresses_of(inputs, outputs), np.uint64)
        order = [end.result for end in ends]
        results = [outputs[order.index(n)] for n in range(self._n_results)]

        def run() -> list[np.ndarray]:
            state = segment.start(binding)
            try:
                with run_deadline():
                    state.execute(inputs, outputs, False, (), addresses)
            finally:
                arenas.give(state.arena)
                segment.give(state)
            return list(results)

        return run

    def leave(self, states: Sequence[RunState]) -> None:
        """An execution and whoever reads its tensors are done."""
        if not self._keep:
            for segment, state in zip(self.segments, states, strict=False):
                segment.give(state)

    def _execute_rest(
        self, binding: Binding, rows: list[list[_Tensor]], buffers: Sequence[np.ndarray | None], results: list[Any],
        states: list[RunState], timed: bool, held: Mapping[str, np.ndarray], lying: _Lying | None,
    ) -> None:  # fmt: skip
        """All segments behind the first one, whose binding this is."""
        known = dict(binding.dims)
        for number, segment in enumerate(self.segments[1:], 1):
            taken = [rows[row][n] for row, n in segment.plan.sources]
            binding = segment.bind(tuple([t.shape for t in taken]), known)
            known.update(binding.dims)
            inputs = [
                _unmade(segment.plan.values[v], binding.shapes[v])
                if t.array is None and v in binding.shapes
                else t.array
                for v, t in zip(segment.plan.inputs, taken, strict=True)
            ]
            made = self._execute_segment(number, binding, inputs, buffers, results, states, timed, held, lying)
            rows.append(self._tensors(number, binding, made))

    def _execute_segment(
        self, number: int, binding: Binding, inputs: Sequence[np.ndarray | None],
        buffers: Sequence[np.ndarray | None], results: list[Any], states: list[RunState], timed: bool,
        held: Mapping[str, np.ndarray], lying: _Lying | None,
    ) -> list[Any]:  # fmt: skip
        """What the segment made: arrays in physical order, or objects. Those that are the model's go to `results`."""
        ends = self._ends[number]
        state = self.segments[number].start(binding)
        states.append(state)
        try:
            there = {} if lying is None else lying.outputs
            made = [
                there[end.result] if end.result in there else self._room(n, end, state, binding, buffers)
                for n, end in enumerate(ends)
            ]
            plan = state.plan
            kept = [held[plan.values[n].name] for n in plan.states]
            state.execute(inputs, made, timed, kept, known={} if lying is None else lying.addresses)
        finally:
            if not self._keep:
                self.arenas.give(state.arena)  # what outlives the segment lies elsewhere
        for end, found in zip(ends, made, strict=True):
            if end.result is not None:
                results[end.result] = _own(end.value, found, buffers[end.result]) if end.is_late else found
        return made

    def _room(
        self, n: int, end: _End, state: RunState, binding: Binding, buffers: Sequence[np.ndarray | None]
    ) -> np.ndarray | None:
        """The array that output `n` of a segment goes to, None for an object."""
        if end.is_late:
            return None
        if end.result is None:
            return state.passed(n)
        shape, buffer = binding.shapes[end.number], buffers[end.result]
        if buffer is None:
            return self._memory.array(shape, end.value.dtype.numpy)
        return _fitting(end.value, shape, buffer)

    def _tensors(self, number: int, binding: Binding, made: Sequence[Any]) -> list[_Tensor]:
        """What a segment made, for those that follow."""
        return [
            _Tensor(found, binding.shapes[end.number])
            if not end.is_late
            else _passed(end.value, found)
            if end.is_passed
            else _Tensor(None, None)
            for end, found in zip(self._ends[number], made, strict=True)
        ]


def _in_order(array: np.ndarray) -> np.ndarray:
    return array if array.flags.c_contiguous else np.array(array, order="C")


def _foreign() -> InvalidModel:
    return InvalidModel("the state belongs to another model", remedy="give one that new_state() of this session made")


def _own(value: PlanValue, found: Any, buffer: np.ndarray | None) -> Any:
    """An object as the caller's own: in its buffer, or no view of anything else."""
    if buffer is not None:
        np.copyto(_fitting(value, np.shape(found), buffer), found, casting="no")
        return buffer
    is_whole = isinstance(found, list) or found is None  # a sequence, an empty optional
    return found if is_whole else np.array(found)


def _fitting(value: PlanValue, shape: tuple[int, ...], buffer: np.ndarray) -> np.ndarray:
    if buffer.shape != shape:
        raise InvalidModel(
            f"an output buffer does not fit: its shape is {list(buffer.shape)}, expected {list(shape)}",
            where={"tensor": value.name},
            remedy="give a fitting buffer",
        )
    return buffer


def _unmade(value: PlanValue, shape: tuple[int, ...]) -> np.ndarray:
    """What stands for a tensor whose branch did not run: only tasks that do not run either read it."""
    return np.zeros(value.format.physical_shape(shape), value.dtype.numpy)  # type: ignore[arg-type]


def _passed(value: PlanValue, found: object) -> _Tensor:
    """A late-sized result as the input of another segment. InvalidModel if it is not of the planned dtype and rank."""
    if value.dtype == HANDLE:
        box = np.empty((), object)
        box[()] = found
        return _Tensor(box, None)
    if found is None:
        return _Tensor(None, None)
    array = np.asarray(found, object if value.dtype.kind == "handle" else None)
    rank = array.ndim if value.shape is None else len(value.shape)
    if array.ndim != rank or array.dtype != value.dtype.numpy:
        raise InvalidModel(
            f"the AI CPU made {array.dtype} of rank {array.ndim}, planned was {value.dtype} of rank {rank}",
            where={"tensor": value.name},
            remedy="this is a fault of the compiler: report it with the model",
        )
    return _Tensor(np.asarray(value.format.to_physical(array), order="C"), array.shape)
