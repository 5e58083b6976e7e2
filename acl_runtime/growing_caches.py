"""Caches that a caller feeds back: the present of a run comes as the past of the next one, and is continued in place.

A *block* holds the caches of one sequence with room behind their rows; the arrays that runs give are views of its first
rows. When all of them come back and are the longest that the block has, new rows are written behind theirs. Rows that
an array shows are never written again, so that arrays of earlier runs keep their content: views are read-only, and
whatever else comes (an older array, a slice, one of another session, a second thread) is copied into another block.

The first arrays that come back are ordinary ones, which the caller may have written to: they are copied once.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from acl_runtime.executor import aligned_zeros
from acl_runtime.plan_format import Growing, ModelPlan
from tensor_types.dims import Dim, evaluate

_ALIGNMENT = 128
_LEAST_ROOM = 128
"""Rows of room at least; beyond that a quarter of the rows, so that copies into larger blocks are rare."""


class Block:
    """Memory of the caches of one sequence, of `capacity` rows each; `rows` of them are in use or being written."""

    def __init__(self, pasts: Sequence[np.ndarray], axis: int, capacity: int, rows: int) -> None:
        self.axis, self.capacity, self.rows = axis, capacity, rows
        self.lock = threading.Lock()
        forms: dict[tuple[tuple[int, ...], np.dtype], list[int]] = {}
        for number, past in enumerate(pasts):
            forms.setdefault((_with_rows(past.shape, axis, capacity), past.dtype), []).append(number)
        # Caches of one form are one array, of which numpy makes views faster than of many.
        sizes = [-(-len(n) * prod(shape) * t.itemsize // _ALIGNMENT) * _ALIGNMENT for (shape, t), n in forms.items()]
        self.memory = aligned_zeros(sum(sizes))
        self._stacks: list[np.ndarray] = []
        for (shape, dtype), at, numbers in zip(forms, accumulate(sizes, initial=0), forms.values(), strict=False):
            whole = (len(numbers), *shape)
            self._stacks.append(self.memory[at : at + prod(whole) * dtype.itemsize].view(dtype).reshape(whole))
        order = [number for numbers in forms.values() for number in numbers]
        self._order = None if order == sorted(order) else np.argsort(order).tolist()
        self.arrays = self._sorted([array for stack in self._stacks for array in stack])
        """The caches with their room."""
        self._strides = [a.strides for a in self.arrays]
        self.addresses = [a.ctypes.data for a in self.arrays]
        self.address_of = {id(a): address for a, address in zip(self.arrays, self.addresses, strict=True)}
        """By identity of the array."""
        self._views: list[weakref.ref[np.ndarray]] = []
        self._shapes: list[tuple[int, ...]] = []
        """The arrays of the longest version that was given, and their shapes."""
        self.versions: dict[int, weakref.ref[_Version]] = {}
        """What lives of the versions that were given away, by identity."""

    def _sorted(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        return arrays if self._order is None else [arrays[n] for n in self._order]

    def fill(self, pasts: Sequence[np.ndarray]) -> None:
        """Takes the rows of a past."""
        for array, past in zip(self.arrays, pasts, strict=True):
            np.copyto(array[(slice(None),) * self.axis + (slice(past.shape[self.axis]),)], past)

    def shows(self, pasts: Sequence[np.ndarray]) -> bool:
        """Whether the arrays are views of all rows of the block's caches, in order."""
        if [p.strides for p in pasts] != self._strides or [p.shape for p in pasts] != self._shapes:
            return False
        return all(
            view() is past or past.ctypes.data == address
            for view, past, address in zip(self._views, pasts, self.addresses, strict=True)
        )

    def extend(self, before: int, after: int) -> bool:
        """Takes the rows from `before` to `after` for one run; False if another has them, or there is no room."""
        with self.lock:
            if self.rows != before or after > self.capacity:
                return False
            self.rows = after
            return True

    def give(self, rows: int, last: Any) -> list[np.ndarray]:
        """Read-only views of the first rows; `last` is called with the block once nobody holds any version."""
        version = _Version(self.memory)
        held = np.asarray(version)
        key = id(version)
        self.versions[key] = weakref.ref(version, lambda _: self._ended(key, last))
        first = self.memory.ctypes.data
        views = self._sorted([
            view for stack in self._stacks
            for view in np.ndarray(_with_rows(stack.shape, self.axis + 1, rows), stack.dtype, held,
                                   stack.ctypes.data - first, stack.strides)
        ])  # fmt: skip
        if rows == self.rows:
            self._views, self._shapes = list(map(weakref.ref, views)), [v.shape for v in views]
        return views

    def _ended(self, version: int, last: Any) -> None:
        self.versions.pop(version, None)
        if not self.versions:
            last(self)


class _Version:
    """What all views of a version hold: memory that numpy lets nobody write to."""

    def __init__(self, memory: np.ndarray) -> None:
        self._memory = memory
        interface = memory.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], True)}


@dataclass(frozen=True)
class Continued:
    """A run that continues caches in place. `dims` are those of the plan that say so; `rows` behind the run."""

    group: int
    block: Block
    dims: Mapping[str, int]
    rows: int


class GrowingCaches:
    """The blocks of a session. Any number of threads may use it at the same time."""

    def __init__(self, plan: ModelPlan) -> None:
        self.groups: tuple[Growing, ...] = plan.growing
        self.own_dims = plan.own_dims
        self.pasts, self.presents = ([[pair[k] for pair in g.pairs] for g in plan.growing] for k in (0, 1))
        """Numbers of inputs and outputs of each group."""
        self._totals: list[Dim] = [plan.outputs[g.pairs[0][1]].shape[g.axis] for g in plan.growing]  # type: ignore[index]
        self._refused = [False] * len(plan.growing)
        self._blocks: list[dict[int, Block]] = [{} for _ in plan.growing]
        self._given: list[dict[int, weakref.ref[np.ndarray]]] = [{} for _ in plan.growing]
        """Arrays that runs gave and that lie in no block, by identity: the first one of each group."""

    def is_fed_back(self, number: int, inputs: Sequence[np.ndarray], buffers: Sequence[np.ndarray | None]) -> bool:
        """Whether the caches of a group come from an earlier run, and the caller has no memory for the next ones."""
        first = inputs[self.groups[number].pairs[0][0]]
        if self._refused[number] or not first.size or any(buffers[b] is not None for _, b in self.groups[number].pairs):
            return False
        known = self._given[number].get(id(first))
        return (known is not None and known() is first) or self._block(number, first) is not None

    def begin(self, number: int, inputs: Sequence[np.ndarray], dims: Mapping[str, int]) -> Continued:
        """Continues the caches of a group, in place if they are the longest of a block, else in a new one."""
        group = self.groups[number]
        pasts = [inputs[a] for a in self.pasts[number]]
        before, after = pasts[0].shape[group.axis], evaluate(self._totals[number], dims)
        block = self._block(number, pasts[0])
        if block is None or not block.shows(pasts) or not block.extend(before, after):
            block = Block(pasts, group.axis, max(before, after) + max(after // 4, _LEAST_ROOM), after)
            block.fill(pasts)
        return Continued(number, block, {group.held: before, group.room: block.capacity - after}, after)

    def end(self, run: Continued) -> list[np.ndarray]:
        """The presents of a run that has succeeded, in the order of the group."""
        self._blocks[run.group][run.block.addresses[0]] = run.block
        return run.block.give(run.rows, lambda block: self._drop(run.group, block))

    def refuse(self, number: int) -> None:
        """A run in place failed where an ordinary one did not: it would have overwritten rows."""
        self._refused[number] = True

    def note(self, results: Sequence[Any]) -> None:
        """Remembers the presents of an ordinary run."""
        for group, given in zip(self.groups, self._given, strict=True):
            first = results[group.pairs[0][1]]
            key = id(first)
            given[key] = weakref.ref(first, lambda _, given=given, key=key: given.pop(key, None))  # type: ignore[misc]

    def _block(self, number: int, first: np.ndarray) -> Block | None:
        blocks = self._blocks[number]
        return blocks.get(first.ctypes.data) if blocks else None

    def _drop(self, number: int, block: Block) -> None:
        if self._blocks[number].get(block.addresses[0]) is block and not block.versions:
            del self._blocks[number][block.addresses[0]]


def _with_rows(shape: tuple[int, ...], axis: int, rows: int) -> tuple[int, ...]:
    return (*shape[:axis], rows, *shape[axis + 1 :])
