"""Single tasks of a run again, on other inputs: what a kernel makes of given tensors, whatever came before it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from acl_runtime.executor import TaskFailed, aligned_zeros
from acl_runtime.run_state import RunState
from tensor_types.errors import OpenAtcError


class IsolatedTasks:
    """The tasks of a run whose tensors were kept, each with memory of its own; the run's tensors stay as they are."""

    def __init__(self, states: Sequence[RunState]) -> None:
        self._tasks: dict[str, list[tuple[RunState, int]]] = {}
        self._numbers: list[tuple[RunState, dict[str, int]]] = []
        for state in states:
            placed = {v.name: n for n, v in enumerate(state.plan.values) if v.place is not None}
            self._numbers.append((state, placed))
            for number, task in enumerate(state.plan.tasks):
                self._tasks.setdefault(task.node, []).append((state, number))

    def has(self, node: str) -> bool:
        """False for a node that no task computes: its output is its input under another name."""
        return node in self._tasks

    def program(self, node: str) -> int | None:
        """Number of the last program that computes a node, None if the AI CPU does or nothing."""
        numbers = [s.plan.tasks[n].program for s, n in self._tasks.get(node, ())]
        return next((p for p in reversed(numbers) if p is not None), None)

    def facts(self, node: str) -> tuple[Mapping[str, int], str] | None:
        """The dims and the tiling with which the one native task of a node ran; None if it has not just one."""
        native = [(s, s.plan.tasks[n]) for s, n in self._tasks.get(node, ()) if s.plan.tasks[n].program is not None]
        if len(native) != 1 or native[0][0].binding is None:
            return None
        return native[0][0].binding.dims, native[0][1].tiling

    def run(self, node: str, inputs: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, Any] | None:
        """Copies of a node's outputs, by name, when its tensors of these names hold `inputs`, in logical order.

        Names without memory are left out of both; tensors of the caller and constants keep their content. None if the
        node cannot be run alone: it has no task, keeps a state or fails on these inputs.
        """
        tasks = self._tasks.get(node, [])
        owners = {id(state): state for state, _ in tasks}
        if len(owners) != 1:
            return None
        (state,) = owners.values()
        placed = next(names for owner, names in self._numbers if owner is state)
        if any(p.space == "state" for _, n in tasks for p in state.plan.tasks[n].operands):
            return None
        is_first = state is self._numbers[0][0]
        taken = {
            placed[name]: value
            for name, value in inputs.items()
            if name in placed and _is_ours(state, placed[name], is_first)
        }
        made = [placed[name] for name in outputs if name in placed]
        try:
            with _restored(state, [*taken, *made]):
                for number, value in taken.items():
                    _put(state, number, value)
                for _, number in tasks:
                    _call(state, number)
                return {state.plan.values[n].name: _copied(state.value(n)) for n in made}
        except (OpenAtcError, TaskFailed, KeyError, ValueError):
            return None  # inputs of another shape than the run's, or what this task cannot take


def _is_ours(state: RunState, number: int, is_first: bool) -> bool:
    """False for tensors that must not be written: constants, inputs of the caller."""
    place = state.plan.values[number].place
    assert place is not None
    return place.space in ("arena", "output", "object") or (place.space == "input" and not is_first)


@contextmanager
def _restored(state: RunState, numbers: Sequence[int]) -> Iterator[None]:
    """Gives tensors their bytes back in the end."""
    objects = dict(state.objects)
    kept = []
    for number in numbers:
        place = state.plan.values[number].place
        if place is not None and place.space != "object":
            view = state.physical(number)
            kept.append((view, view.copy()))
    try:
        yield
    finally:
        for view, content in reversed(kept):
            view[...] = content
        state.objects.clear()
        state.objects.update(objects)


def _put(state: RunState, number: int, value: Any) -> None:
    plan_value = state.plan.values[number]
    assert plan_value.place is not None
    if plan_value.place.space == "object":
        state.objects[plan_value.place.index] = value
        return
    assert state.binding is not None
    array = np.asarray(value)
    if array.shape != state.binding.shapes[number]:
        raise ValueError(f"shape {list(array.shape)}, the run had {list(state.binding.shapes[number])}")
    with np.errstate(all="ignore"):  # what a narrow dtype cannot hold becomes infinite, as in the kernel before
        state.physical(number)[...] = plan_value.format.to_physical(array.astype(plan_value.dtype.numpy))


def _call(state: RunState, number: int) -> None:
    """One task on one thread. TaskFailed if the kernel refuses its inputs."""
    record = state.run.records[number]
    if state.plan.tasks[number].program is None or not record["fn"]:
        state.host_task(number)
        return
    if record["grid"] <= 0:
        return
    scratch = aligned_zeros(max(state.binder.segment.graph.scratch_bytes, 64))
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    kernel = ctypes.CFUNCTYPE(count, pointer, pointer, count, count, pointer)(int(record["fn"]))
    status = kernel(int(record["args"]), int(record["dims"]), 0, int(record["grid"]), scratch.ctypes.data)
    if status:
        raise TaskFailed(number, status & 255, status >> 8)


def _copied(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else np.array(value)
