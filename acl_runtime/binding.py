"""Binds a segment to the dims of its inputs: every offset, size, grid and kernel dim as a number, checked.

Memory is a list of *slots*: storages of the arena, then inputs, outputs, states, constants and guard bytes. An argument
of a task is (slot, byte offset), so its address is `base[slot] + offset`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from acl_runtime.expressions import ExpressionTable
from acl_runtime.om import PackageError
from acl_runtime.plan_format import Place, PlanValue, SegmentPlan
from acl_runtime.segment import LoadedSegment
from codegen.tile.arithmetic import LARGEST
from tensor_types.dims import Dim, names, product
from tensor_types.errors import InvalidModel, OpenAtcError, ResourceLimit
from tensor_types.limits import VARIABLE, limit, require_within, shown
from tensor_types.relations import broken, holds

ALIGNMENT = 64
_UNBOUNDED = np.iinfo(np.int64).max
_CHUNK_WORK = 1 << 15
"""Scalar operations that make a chunk worth handing to another thread."""
_LARGEST_CHUNK = 1 << 29
"""Scalar operations, at most, that a chunk has if the grid can be cut so fine: between chunks a run can be stopped."""
_CHUNKS_PER_THREAD = 8


class _Extents(Mapping[int, tuple[int, ...]]):
    """The shape of each value in memory, by number. Most are never asked for."""

    def __init__(self, values: np.ndarray, numbers: Mapping[int, list[int]]) -> None:
        self._values, self._numbers = values, numbers
        self._known: dict[int, tuple[int, ...]] = {}

    def __getitem__(self, number: int) -> tuple[int, ...]:
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = tuple(self._values[self._numbers[number]].tolist())
        return found

    def __contains__(self, number: object) -> bool:
        return number in self._numbers

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


@dataclass(frozen=True, eq=False)
class Binding:
    """A segment bound to dims.

    dims: the dims; one that only a branch decides which did not run is missing and counts as 0.
    arena_bytes: size of the arena. storage_offsets: i64 per storage.
    offsets: i64 per argument, to be added to the base address of its slot. kernel_dims: i64, tasks' dims end to end.
    grid, grain: i64 per task. shapes: logical shape of each value in memory, by value number.
    output_shapes: shape of each output, None if the run decides.
    """

    dims: Mapping[str, int]
    arena_bytes: int
    storage_offsets: np.ndarray
    offsets: np.ndarray
    kernel_dims: np.ndarray
    grid: np.ndarray
    grain: np.ndarray
    operations: int
    shapes: Mapping[int, tuple[int, ...]]
    output_shapes: tuple[tuple[int, ...] | None, ...]
    places: dict[int, int]
    """Byte offset of each value within its slot, by value number."""
    faults: dict[int, OpenAtcError]
    """Why tasks of branches must not run with these dims: the error of a run that reaches one."""


class Binder:
    """What binding needs of a segment, prepared once.

    first_arg, first_dim: position of each task's first argument and dim, of which there are n_dims. slots: slot of
    each argument.
    first_slot: first slot of each space.
    """

    def __init__(self, segment: LoadedSegment) -> None:
        plan = segment.plan
        self.segment = segment
        self.table = table = ExpressionTable()
        counts = {
            "arena": len(plan.storages),
            "input": len(plan.inputs),
            "output": len(plan.outputs),
            "state": len(plan.states),
            "constant": len(plan.constants),
            "guard": plan.n_guards,
        }
        self.first_slot: dict[str, int] = {}
        self.n_slots = 0
        for space, count in counts.items():
            self.first_slot[space] = self.n_slots
            self.n_slots += count
        lists: list[list[int]] = [[] for _ in range(13)]
        slots, offsets, needs, owners, dims, lows, highs, dim_owners, grids, works, program_grids, sizes, ops = lists
        self.first_arg: list[int] = []
        self.first_dim: list[int] = []
        known: dict[tuple[int, tuple[Dim, ...]], tuple[int, ...]] = {}
        for number, task in enumerate(plan.tasks):
            self.first_arg.append(len(slots))
            self.first_dim.append(len(dims))
            grids.append(table.add(task.grid))
            works.append(table.add(task.work))
            if task.program is None:
                for per_program in (program_grids, sizes, ops):
                    per_program.append(table.add(0))
                continue
            facts = segment.kernel(task).facts
            found = known.get((task.program, task.dims))
            if found is None:  # many tasks share a program and its dims
                sizes_in_bytes = (size for _, size in facts.params)
                wanted = segment.in_model_dims(task, facts.bounds.size, facts.bounds.work, facts.grid, *sizes_in_bytes)
                found = known[task.program, task.dims] = tuple(map(table.add, wanted))
            for per_program, index in zip((sizes, ops, program_grids), found, strict=False):
                per_program.append(index)
            needs += found[3:]
            for place in task.operands:
                slots.append(self.slot(place))
                offsets.append(table.add(place.offset))
                owners.append(number)
            for value, (_, low, high) in zip(task.dims, facts.dims, strict=True):
                dims.append(table.add(value))
                lows.append(low)
                highs.append(_UNBOUNDED if high is None else high)
                dim_owners.append(number)
        self.slots = np.array(slots, np.int64)
        self._offsets, self._needs, self._owners = (np.array(a, np.int64) for a in (offsets, needs, owners))
        self._requirements = [(table.add(r.left), table.add(r.right)) for r in plan.requirements]
        self.n_dims = len(dims)
        self._dims, self._dim_owners = np.array(dims, np.int64), np.array(dim_owners, np.int64)
        self._lows, self._highs = np.array(lows, np.int64), np.array(highs, np.int64)
        self._grids, self._works = np.array(grids, np.int64), np.array(works, np.int64)
        self._program_grids = np.array(program_grids, np.int64)
        self._kernel_sizes, self._kernel_work = np.array(sizes, np.int64), np.array(ops, np.int64)
        self._storage_bytes = np.array([table.add(b) for b, _ in plan.storages], np.int64)
        self._storage_offsets = np.array([table.add(o) for _, o in plan.storages], np.int64)
        self._arena = table.add(plan.arena)
        in_memory = [(n, v) for n, v in enumerate(plan.values) if _in_memory(plan, v)]
        self._shapes = {n: [table.add(d) for d in v.shape or ()] for n, v in in_memory}
        placed = [(n, v, v.place) for n, v in in_memory if v.place is not None]
        self._placed = [n for n, _, _ in placed]
        self._places = np.array([table.add(place.offset) for _, _, place in placed], np.int64)
        self._value_slots = np.array([self.slot(place) for _, _, place in placed], np.int64)
        self._value_bytes = np.array([table.add(_bytes(v)) for _, v, _ in placed], np.int64)
        self._native = np.array([t.program is not None for t in plan.tasks], bool)
        self._outputs = [
            None if s is None or _names(s) - plan.dims.keys() else [table.add(d) for d in s]
            for s in (plan.values[o].shape for o in plan.outputs)
        ]
        ends = (plan.inputs, plan.outputs, plan.states)
        inputs, outputs, states = ([plan.values[n] for n in numbers] for numbers in ends)
        # No task may touch the bytes of an object: there are none.
        present = [*((v, plan.is_sized(v)) for v in inputs), *((v, not plan.is_late(v)) for v in outputs)]
        present += [(v, True) for v in states]
        self._slot_bytes = np.array([table.add(_bytes(v) if has_bytes else 0) for v, has_bytes in present], np.int64)

    def slot(self, place: Place) -> int:
        """The slot of a place."""
        return self.first_slot[place.space] + place.index

    def bind(self, dims: Mapping[str, int], threads: int, keep: bool = False) -> Binding:
        """The binding for these dims; those that are missing count as 0, and nothing is demanded of them.

        `keep` gives every storage bytes of its own, so that all values can be read after a run. InvalidModel if a dim
        is outside what a kernel was made for, PackageError if the plan would let a task leave its memory. In a branch
        that is a fault of the task: it may not run at all.
        """
        plan = self.segment.plan
        missing = plan.dims.keys() - dims.keys()
        values = self.table.evaluate({**dict.fromkeys(missing, 0), **dims})
        faults: dict[int, OpenAtcError] = {}

        def refuse(tasks: Iterable[int], error: OpenAtcError, guard: object) -> None:
            if guard is None:
                raise error
            for number in tasks:
                faults.setdefault(number, error)

        for rule, (a, b) in zip(plan.requirements, self._requirements, strict=True):
            is_known = missing.isdisjoint(names(rule.left) | names(rule.right))
            if not is_known or holds(rule.relation, values[a], values[b]):
                continue
            text, remedy = broken(rule.relation, rule.left, rule.right, dims)
            error = InvalidModel(text, where={"node": rule.node}, remedy=remedy)
            refuse((n for n, t in enumerate(plan.tasks) if t.guard == rule.guard), error, rule.guard)
        storage_bytes, storage_offsets = values[self._storage_bytes], values[self._storage_offsets]
        arena = int(values[self._arena])
        if keep:
            room = -(-storage_bytes // ALIGNMENT) * ALIGNMENT
            ends = np.cumsum(room)
            storage_offsets = ends - room
            arena = int(ends[-1]) if len(ends) else 0
        bad = (storage_bytes < 0) | (storage_offsets < 0) | (storage_offsets > arena - storage_bytes)
        if bad.any() or arena < 0:
            raise PackageError("a storage of the plan leaves the arena", remedy="convert the model again")
        require_within("arena_bytes", arena, "bytes for intermediate tensors", "use smaller input shapes")
        sizes = np.concatenate(
            [
                storage_bytes,
                values[self._slot_bytes],
                self.segment.constants.nbytes,
                np.ones(plan.n_guards, np.int64),
            ]
        )
        offsets, needs = values[self._offsets], values[self._needs]
        bad = (offsets < 0) | (needs < 0) | (offsets > sizes[self.slots] - needs)
        grid = values[self._grids]
        idle = grid[self._owners] <= 0  # a task without work touches nothing
        for owner in self._owners[bad & ~idle].tolist():
            task = plan.tasks[owner]
            reason = "a task would leave the memory of its tensor"
            damaged = PackageError(reason, where={"node": task.node}, remedy="convert the model again")
            refuse([owner], damaged, task.guard)
        kernel_dims = values[self._dims]
        bad = (kernel_dims < self._lows) | (kernel_dims > self._highs)
        for at in np.flatnonzero(bad & (grid[self._dim_owners] > 0)).tolist():
            owner = int(self._dim_owners[at])
            task = plan.tasks[owner]
            error = InvalidModel(
                f"a kernel was made for sizes {self._lows[at]} to {self._highs[at]} and gets {kernel_dims[at]}",
                where={"node": task.node},
                remedy="convert the model again with a range that holds these input shapes",
            )
            refuse([owner], error, task.guard)
        # The proof of a program holds for dims within its bounds, and a launch has a budget, as the run has.
        operations, most = values[self._kernel_work], limit("launch_work")
        bad = (grid > 0) & ((values[self._kernel_sizes] > LARGEST) | (operations > most))
        for owner in np.flatnonzero(bad).tolist():
            task = plan.tasks[owner]
            reason = "a size or index of a kernel is beyond the integers of a machine"
            if operations[owner] > most:
                reason = f"a kernel would take {shown(int(operations[owner]))} operations, {shown(most)} are allowed"
            remedy = f"use smaller input shapes; {VARIABLE}=launch_work=... raises the limit of operations"
            too_large = ResourceLimit(reason, where={"node": task.node}, remedy=remedy)
            refuse([owner], too_large, task.guard)
        total = sum(int(n) for n in operations[(grid > 0) & ~bad])
        require_within("run_work", total, "operations of all kernels of a run", "use smaller input shapes")
        if (self._native & (grid > 0) & (grid != values[self._program_grids])).any() or (grid < 0).any():
            raise PackageError("the grid of a task is not that of its program", remedy="convert the model again")
        work = np.maximum(values[self._works], 1)
        per_chunk = np.minimum(_CHUNK_WORK * grid.astype(np.float64) / work, 1e15).astype(np.int64)
        most_at_once = np.minimum(_LARGEST_CHUNK * grid.astype(np.float64) / np.maximum(operations, 1), 1e15)
        grain = np.maximum(per_chunk, grid // (threads * _CHUNKS_PER_THREAD))
        grain = np.maximum(np.minimum(grain, most_at_once.astype(np.int64)), 1)
        outputs = tuple(None if ids is None else tuple(int(values[i]) for i in ids) for ids in self._outputs)
        for value, shape in zip((plan.values[n] for n in plan.outputs), outputs, strict=True):
            if min(shape or (), default=0) < 0:
                raise InvalidModel(
                    f"a size of {list(shape or ())} is negative for these input shapes",
                    where={"tensor": value.name},
                    remedy="give larger inputs",
                )
        places = values[self._places]
        bad = (places < 0) | (places > sizes[self._value_slots] - values[self._value_bytes])
        for at in np.flatnonzero(bad).tolist():
            name = plan.values[self._placed[at]].name
            raise PackageError("a tensor leaves its memory", where={"tensor": name}, remedy="convert again")
        return Binding(
            dims=dims,
            arena_bytes=arena,
            storage_offsets=storage_offsets,
            offsets=offsets,
            kernel_dims=kernel_dims,
            grid=grid,
            grain=grain,
            operations=total,
            shapes=_Extents(values, self._shapes),
            output_shapes=outputs,
            places=dict(zip(self._placed, places.tolist(), strict=True)),
            faults=faults,
        )


def _names(shape: tuple[Dim, ...]) -> set[str]:
    return set().union(*(names(d) for d in shape)) if shape else set()


def _in_memory(plan: SegmentPlan, value: PlanValue) -> bool:
    return value.place is not None and value.place.space not in ("object", "guard") and plan.is_sized(value)


def _bytes(value: PlanValue) -> Dim:
    return product(value.format.physical_shape(value.shape or ())) * value.dtype.bytes
