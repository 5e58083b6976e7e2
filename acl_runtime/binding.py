"""Binds a segment to the dims of its inputs: every offset, size, grid and kernel dim as a number, checked.

Memory is a list of *slots*: storages of the arena, then inputs, outputs, states, constants and guard bytes. An argument
of a task is (slot, byte offset), so its address is `base[slot] + offset`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from acl_runtime.expressions import BEYOND, DistinctRows, ExpressionTable
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

    def __init__(self, values: np.ndarray, numbers: Mapping[int, tuple[int, ...]]) -> None:
        self._values, self._numbers = values, numbers
        self._known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def __getitem__(self, number: int) -> tuple[int, ...]:
        expressions = self._numbers[number]
        found = self._known.get(expressions)  # many have the same
        if found is None:
            found = self._known[expressions] = tuple(self._values[list(expressions)].tolist())
        return found

    def __contains__(self, number: object) -> bool:
        return number in self._numbers

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


class _Places(Mapping[int, int]):
    """The byte offset of each value within its slot, by number. Few are asked for."""

    def __init__(self, values: np.ndarray, numbers: Mapping[int, int]) -> None:
        self._values, self._numbers = values, numbers

    def __getitem__(self, number: int) -> int:
        return int(self._values[self._numbers[number]])

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
    places: Mapping[int, int]
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
        self._owners, self._dim_owners = owners, dim_owners
        self._requirements = [(table.add(r.left), table.add(r.right)) for r in plan.requirements]
        self.n_dims = len(dims)
        self._dims = DistinctRows(zip(dims, lows, highs, strict=True), 3)
        native = (int(t.program is not None) for t in plan.tasks)
        self._tasks = DistinctRows(zip(grids, works, program_grids, sizes, ops, native, strict=True), 6)
        self._storages = np.array([(table.add(b), table.add(o)) for b, o in plan.storages], np.int64).reshape(-1, 2).T
        self._arena = table.add(plan.arena)
        in_memory = [(n, v) for n, v in enumerate(plan.values) if _in_memory(plan, v)]
        self._shapes = {n: tuple(table.add(d) for d in v.shape or ()) for n, v in in_memory}
        placed = [(n, v, v.place) for n, v in in_memory if v.place is not None]
        self._placed = [n for n, _, _ in placed]
        shapes = ((o, plan.values[o].shape) for o in plan.outputs)
        sized = [(o, s) for o, s in shapes if s is not None and not _names(s) - plan.dims.keys()]
        self._output_extents = np.array([table.add(d) for _, s in sized for d in s], np.int64)
        self._output_of_extent = [o for o, s in sized for _ in s]
        ends = (plan.inputs, plan.outputs, plan.states)
        inputs, outputs, states = ([plan.values[n] for n in numbers] for numbers in ends)
        # No task may touch the bytes of an object: there are none.
        present = [*((v, plan.is_sized(v)) for v in inputs), *((v, not plan.is_late(v)) for v in outputs)]
        present += [(v, True) for v in states]
        # The bytes of each slot, as an expression.
        slot_bytes = [
            *(table.add(b) for b, _ in plan.storages), *(table.add(_bytes(v) if has else 0) for v, has in present),
            *(table.add(int(n)) for n in self.segment.constants.nbytes), *([table.add(1)] * plan.n_guards),
        ]  # fmt: skip
        rows = ((o, n, slot_bytes[s]) for o, n, s in zip(offsets, needs, slots, strict=True))
        self._arguments = DistinctRows(rows, 3)
        places = [(table.add(p.offset), table.add(_bytes(v)), slot_bytes[self.slot(p)]) for _, v, p in placed]
        self._places = DistinctRows(places, 3)
        self._place_of = {n: at for n, (at, _, _) in zip(self._placed, places, strict=True)}
        self._bounds = self._bounds_of(self._arena)
        self._offsets, self._kernel_dims = np.array(offsets, np.int64), np.array(dims, np.int64)

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
        faults = _Faults()
        for rule, (a, b) in zip(plan.requirements, self._requirements, strict=True):
            is_known = missing.isdisjoint(names(rule.left) | names(rule.right))
            if not is_known or holds(rule.relation, values[a], values[b]):
                continue
            text, remedy = broken(rule.relation, rule.left, rule.right, dims)
            error = InvalidModel(text, where={"node": rule.node}, remedy=remedy)
            faults.refuse((n for n, t in enumerate(plan.tasks) if t.guard == rule.guard), error, rule.guard)
        storage_bytes, storage_offsets = values[self._storages]
        arena = int(values[self._arena])
        if keep:
            room = -(-storage_bytes // ALIGNMENT) * ALIGNMENT
            ends = np.cumsum(room)
            storage_offsets = ends - room
            arena = int(ends[-1]) if len(ends) else 0
        grids, works, _, _, operations = values[self._tasks.columns[:5]]
        left, more, right = values[self._bounds]
        if keep or (left + more > right).any() or operations.max(initial=0) > limit("launch_work"):
            self._find_faults(values, storage_offsets, arena, faults)
        require_within("arena_bytes", arena, "bytes for intermediate tensors", "use smaller input shapes")
        runs = grids > 0
        if faults.by_task:
            runs &= operations <= limit("launch_work")
        total = int((operations * self._tasks.counts)[runs].sum())
        require_within("run_work", total, "operations of all kernels of a run", "use smaller input shapes")
        per_chunk = np.minimum(_CHUNK_WORK * grids.astype(np.float64) / np.maximum(works, 1), 1e15).astype(np.int64)
        most_at_once = np.minimum(_LARGEST_CHUNK * grids.astype(np.float64) / np.maximum(operations, 1), 1e15)
        grain = np.maximum(per_chunk, grids // (threads * _CHUNKS_PER_THREAD))
        grain = np.maximum(np.minimum(grain, most_at_once.astype(np.int64)), 1)
        return Binding(
            dims=dims,
            arena_bytes=arena,
            storage_offsets=storage_offsets,
            offsets=values.take(self._offsets),
            kernel_dims=values.take(self._kernel_dims),
            grid=grids.take(self._tasks.of),
            grain=grain.take(self._tasks.of),
            operations=total,
            shapes=_Extents(values, self._shapes),
            places=_Places(values, self._place_of),
            faults=faults.by_task,
        )

    def _bounds_of(self, arena: int) -> np.ndarray:
        """Rows (a, b, c) of expressions with a + b <= c: where all hold, `_find_faults` finds none."""
        table, zero = self.table, self.table.add(0)
        rows = [(zero, zero, arena)]
        for nbytes, offset in self._storages.T.tolist():
            rows += [(zero, zero, nbytes), (zero, zero, offset), (offset, nbytes, arena)]
        for offset, need, size in (*self._arguments.columns.T.tolist(), *self._places.columns.T.tolist()):
            rows += [(zero, zero, offset), (zero, zero, need), (offset, need, size)]
        for value, low, high in self._dims.columns.T.tolist():
            rows.append((zero, table.add(low), value))
            if high < BEYOND:
                rows.append((zero, value, table.add(high)))
        for grid, _, program_grid, size, _, native in self._tasks.columns.T.tolist():
            rows.append((zero, zero, grid))
            if native:
                rows += [(zero, grid, program_grid), (zero, program_grid, grid)]
            if LARGEST < BEYOND:
                rows.append((zero, size, table.add(LARGEST)))
        rows += [(zero, zero, extent) for extent in self._output_extents.tolist()]
        return np.array(list(dict.fromkeys(rows)), np.int64).T

    def _find_faults(self, values: np.ndarray, storage_offsets: np.ndarray, arena: int, faults: _Faults) -> None:
        """Checks everything that a task touches. As `bind`; what only a branch does goes to `faults`."""
        plan, storage_bytes = self.segment.plan, values[self._storages[0]]
        bad = (storage_bytes < 0) | (storage_offsets < 0) | (storage_offsets > arena - storage_bytes)
        if bad.any() or arena < 0:
            raise PackageError("a storage of the plan leaves the arena", remedy="convert the model again")
        offset, need, size = values[self._arguments.columns]
        grids, _, program_grids, kernel_sizes, operations = values[self._tasks.columns[:5]]
        native = self._tasks.columns[5] > 0
        grid = grids[self._tasks.of]
        leaves = (offset < 0) | (need < 0) | (offset > size - need)
        for owner in dict.fromkeys(self._owners[at] for at in self._arguments.where(leaves)):
            if grid[owner] <= 0:  # a task without work touches nothing
                continue
            task = plan.tasks[owner]
            reason = "a task would leave the memory of its tensor"
            damaged = PackageError(reason, where={"node": task.node}, remedy="convert the model again")
            faults.refuse([owner], damaged, task.guard)
        given, (lows, highs) = values[self._dims.columns[0]], self._dims.columns[1:]
        for at in self._dims.where((given < lows) | (given > highs)):
            owner, kind = self._dim_owners[at], self._dims.of[at]
            if grid[owner] <= 0:
                continue
            task = plan.tasks[owner]
            error = InvalidModel(
                f"a kernel was made for sizes {lows[kind]} to {highs[kind]} and gets {given[kind]}",
                where={"node": task.node},
                remedy="convert the model again with a range that holds these input shapes",
            )
            faults.refuse([owner], error, task.guard)
        # The proof of a program holds for dims within its bounds, and a launch has a budget, as the run has.
        most = limit("launch_work")
        for owner in self._tasks.where((grids > 0) & ((kernel_sizes > LARGEST) | (operations > most))):
            task, count = plan.tasks[owner], int(operations[self._tasks.of[owner]])
            reason = "a size or index of a kernel is beyond the integers of a machine"
            if count > most:
                reason = f"a kernel would take {shown(count)} operations, {shown(most)} are allowed"
            remedy = f"use smaller input shapes; {VARIABLE}=launch_work=... raises the limit of operations"
            too_large = ResourceLimit(reason, where={"node": task.node}, remedy=remedy)
            faults.refuse([owner], too_large, task.guard)
        if (native & (grids > 0) & (grids != program_grids)).any() or (grids < 0).any():
            raise PackageError("the grid of a task is not that of its program", remedy="convert the model again")
        for at in np.flatnonzero(values[self._output_extents] < 0).tolist():
            number = self._output_of_extent[at]
            shape = [int(values[self.table.add(d)]) for d in plan.values[number].shape or ()]
            raise InvalidModel(
                f"a size of {shape} is negative for these input shapes",
                where={"tensor": plan.values[number].name},
                remedy="give larger inputs",
            )
        place, nbytes, size = values[self._places.columns]
        for at in self._places.where((place < 0) | (place > size - nbytes)):
            name = plan.values[self._placed[at]].name
            raise PackageError("a tensor leaves its memory", where={"tensor": name}, remedy="convert again")


class _Faults:
    """Why tasks of branches must not run: the first error of each."""

    def __init__(self) -> None:
        self.by_task: dict[int, OpenAtcError] = {}

    def refuse(self, tasks: Iterable[int], error: OpenAtcError, guard: object) -> None:
        """Raises the error, unless the tasks may not run at all."""
        if guard is None:
            raise error
        for number in tasks:
            self.by_task.setdefault(number, error)


def _names(shape: tuple[Dim, ...]) -> set[str]:
    return set().union(*(names(d) for d in shape)) if shape else set()


def _in_memory(plan: SegmentPlan, value: PlanValue) -> bool:
    return value.place is not None and value.place.space not in ("object", "guard") and plan.is_sized(value)


def _bytes(value: PlanValue) -> Dim:
    return product(value.format.physical_shape(value.shape or ())) * value.dtype.bytes
