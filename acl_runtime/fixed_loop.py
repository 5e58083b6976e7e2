"""Loops whose tensors keep their shapes from run to run: what moves between two runs of the body are addresses.

A state has two buffers, which runs read and write in turns; the first run reads the initial value. Rows of sequences
are read, and rows of results written, where they lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from acl_runtime.binding import Binding
from acl_runtime.executor import aligned_zeros
from acl_runtime.loop_shape import LoopShape
from tensor_types.deadline import check_deadline
from tensor_types.errors import InvalidModel
from tensor_types.limits import require_within

if TYPE_CHECKING:
    from acl_runtime.model_runs import ModelRuns

_FIRST_ROWS = 16
"""Rows that a result has room for while nobody knows how many there will be."""


class FixedLoop:
    """One execution of such a loop. `operands` are states, sequences (their axis first) and values from outside."""

    @classmethod
    def of(
        cls, runs: ModelRuns, shape: LoopShape, operands: Sequence[np.ndarray], known: Mapping[str, int],
        wanted: Sequence[bool],
    ) -> FixedLoop | None:  # fmt: skip
        """None if a run decides a size, or a state changes its shape."""
        if not runs.is_one_piece:
            return None
        cut = slice(shape.states, shape.states + shape.scans)
        shapes = [a.shape for a in operands]
        shapes[cut] = [s[1:] for s in shapes[cut]]
        binding = runs.segments[0].bind(tuple([*[()] * shape.lead, *shapes]), known)
        results = _output_shapes(runs, binding)[shape.lead // 2 :]
        if results[: shape.states] != shapes[: shape.states]:
            return None
        return cls(runs, shape, operands, binding, wanted)

    def __init__(
        self, runs: ModelRuns, shape: LoopShape, operands: Sequence[np.ndarray], binding: Binding,
        wanted: Sequence[bool],
    ) -> None:  # fmt: skip
        self._runs, self._shape, self._binding, self._wanted = runs, shape, binding, wanted
        plan = runs.segments[0].plan
        self._step = np.zeros((), np.int64)
        self._goes_on, self._next = np.ones((), np.bool_), _room((), np.dtype(np.bool_))
        first, scans = shape.states, shape.states + shape.scans
        values = [plan.values[n] for n in plan.outputs][shape.lead // 2 :]
        self._initial = list(operands[:first])
        self._sequences = [np.ascontiguousarray(a) for a in operands[first:scans]]
        self._captured = list(operands[scans:])
        self._buffers = [[_room(a.shape, a.dtype) for a in self._initial] for _ in range(2)]
        results = _output_shapes(runs, binding)
        self._row_types = [
            (s, v.dtype.numpy) for s, v in zip(results[shape.lead // 2 + first :], values[first:], strict=True)
        ]
        self._stacks: list[np.ndarray] = []
        if shape.lead:
            self._next = _room(results[0], np.dtype(np.bool_))

    def repeat(self, trips: int | None) -> list[Any]:
        """The results, None for stacks that nobody wants; `trips` is how often the body runs at most, once at least."""
        shape, segment = self._shape, self._runs.segments[0]
        self._make_room(_FIRST_ROWS if trips is None or shape.lead else trips)
        state = segment.start(self._binding)
        step = 0
        try:
            base, strides = self._addresses()
            turns = (np.empty_like(strides), np.empty_like(strides))
            in_python = _has_python(self._runs)
            while trips is None or step < trips:
                check_deadline()
                if self._stacks and step == len(self._stacks[0]):
                    self._make_room(2 * step)
                    base, strides = self._addresses()
                self._step[()] = step
                row = turns[step % 2]
                np.multiply(strides, step, row)
                row += base[0 if not step else 1 + step % 2]
                inputs, outputs = self._arrays(step) if in_python else ((), [])
                state.execute(inputs, outputs, False, (), row.view(np.uint64))
                step += 1
                if shape.lead:
                    self._goes_on[()] = first_element(self._next)
                    if not self._goes_on:
                        break
        finally:
            self._runs.arenas.give(state.arena)
            segment.give(state)
        stacks = [
            np.moveaxis(s[:step][::-1] if back else s[:step], 0, axis) if wanted else None
            for s, axis, back, wanted in zip(
                self._stacks, shape.out_axes, shape.out_backwards, self._wanted[shape.states :], strict=True
            )
        ]
        return [*self._buffers[(step - 1) % 2], *stacks]

    def _make_room(self, rows: int) -> None:
        """Room for so many rows of each result that is wanted; those that are there stay. Others get one row."""
        wanted = self._wanted[self._shape.states :]
        room = [
            _room((rows, *shape), dtype) if is_wanted else np.broadcast_to(_room(shape, dtype), (rows, *shape))
            for (shape, dtype), is_wanted in zip(self._row_types, wanted, strict=True)
        ]
        require_within("tensor_bytes", sum(a.nbytes for a in room), "bytes that a loop stacks")
        for old, new, is_wanted in zip(self._stacks, room, wanted, strict=False):
            if is_wanted:
                new[: len(old)] = old
        self._stacks = room

    def _addresses(self) -> tuple[np.ndarray, np.ndarray]:
        """Addresses of inputs and outputs of the first run, even ones and odd ones, and what a run adds to them."""
        shape = self._shape
        own: list[np.ndarray] = [self._step, self._goes_on][: shape.lead]
        made = [self._next][: shape.lead // 2]
        even, odd = self._buffers
        still, behind = len(own) + shape.states, len(self._captured) + len(made) + shape.states
        cut = list(zip(self._sequences, shape.in_backwards, strict=True))
        steps = [-a.strides[0] if back else a.strides[0] for a, back in cut]
        moving = np.array([*[0] * still, *steps, *[0] * behind, *[a.strides[0] for a in self._stacks]], np.int64)
        begins = [a[len(a) - 1 :] if back else a for a, back in cut]
        rows = [
            [_address(a) for a in (*own, *read, *begins, *self._captured, *made, *written, *self._stacks)]
            for read, written in ((self._initial, even), (odd, even), (even, odd))
        ]
        return np.array(rows, np.uint64).view(np.int64), moving

    def _arrays(self, step: int) -> tuple[list[np.ndarray], list[Any]]:
        """The tensors of a run, for tasks in Python."""
        shape = self._shape
        own: list[np.ndarray] = [self._step, self._goes_on][: shape.lead]
        read = self._buffers[(step - 1) % 2] if step else self._initial
        places = [len(a) - 1 - step if b else step for a, b in zip(self._sequences, shape.in_backwards, strict=True)]
        cut = [a[at, ...] for a, at in zip(self._sequences, places, strict=True)]
        made = [self._next][: shape.lead // 2]
        rows = [a[step, ...] for a in self._stacks]
        return [*own, *read, *cut, *self._captured], [*made, *self._buffers[step % 2], *rows]


def first_element(value: Any) -> Any:
    """That of a trip count or condition. InvalidModel if there is none."""
    flat = np.asarray(value).reshape(-1)
    if not flat.size:
        raise InvalidModel("a trip count or condition has no element", remedy="check the model's inputs")
    return flat[0]


def _output_shapes(runs: ModelRuns, binding: Binding) -> list[tuple[int, ...]]:
    """Those of all results of a body in one piece."""
    return [binding.shapes[number] for number in runs.segments[0].plan.outputs]


def _has_python(runs: ModelRuns) -> bool:
    """Whether a run has tasks that read or write tensors in Python."""
    plan = runs.segments[0].plan
    return bool(plan.output_copies) or any(t.program is None for t in plan.tasks)


def _room(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
    return aligned_zeros(max(nbytes, 1))[:nbytes].view(dtype).reshape(shape)


def _address(array: np.ndarray) -> int:
    return int(array.ctypes.data)
