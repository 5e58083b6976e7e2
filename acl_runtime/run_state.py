"""One execution in flight: argument addresses, memory of its own, host tasks and objects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from acl_runtime.aicpu import evaluate
from acl_runtime.binding import Binder, Binding
from acl_runtime.executor import Executor, TaskFailed
from acl_runtime.plan_format import PlanTask
from tensor_types.dtypes import HANDLE
from tensor_types.errors import InvalidModel, OpenAtcError

_ALIGNMENT = 64
_REASONS = {
    1: "an index in its input is out of range, at flattened position {index}",
    2: "a size in its input is out of range: {index}",
}


def aligned_empty(nbytes: int) -> np.ndarray:
    """A u8 array of undefined content that starts at a multiple of 64."""
    memory = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + nbytes]


def new_array(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A 64-byte aligned array of undefined content."""
    if dtype.hasobject:
        return np.empty(shape, dtype)
    count = int(np.prod(shape, dtype=np.int64))
    return aligned_empty(count * dtype.itemsize).view(dtype).reshape(shape)


class RunState:
    """Executes a binding, one execution at a time. Objects and memory stay readable until the next one."""

    def __init__(self, binder: Binder, binding: Binding, executor: Executor) -> None:
        self.binder = binder
        self.binding = binding
        self.plan = binder.model.plan
        self.run = executor.prepare(binder.model.graph)
        self.arena = np.empty(0, np.uint8)
        self.objects: dict[int, object] = {}
        self.inputs: Sequence[np.ndarray] = ()
        self.outputs: list[np.ndarray | None] = []
        self._base = np.zeros(binder.n_slots, np.uint64)
        first = binder.first_slot
        self._in = slice(first["input"], first["output"])
        self._out = slice(first["output"], first["constant"])
        constants = [0 if c.dtype.hasobject else c.ctypes.data for c in binder.model.constants]
        self._base[first["constant"] : first["guard"]] = constants
        guards = self.run.guards.ctypes.data
        self._base[first["guard"] :] = np.arange(self.plan.n_guards, dtype=np.uint64) + np.uint64(guards)
        self._offsets = binding.offsets.astype(np.uint64)
        slots = binder.slots
        moving = (slots >= first["input"]) & (slots < first["constant"])
        self._moving = np.flatnonzero(moving)
        self._moving_slots, self._moving_offsets = slots[moving], self._offsets[moving]
        self._args = np.zeros(max(len(slots), 1), np.uint64)
        self._dims = np.ascontiguousarray(binding.kernel_dims)
        records = self.run.records
        records["grid"], records["grain"] = binding.grid, binding.grain
        records["args"] = np.array(binder.first_arg, np.uint64) * np.uint64(8) + np.uint64(self._args.ctypes.data)
        records["dims"] = np.array(binder.first_dim, np.uint64) * np.uint64(8) + np.uint64(self._dims.ctypes.data)
        records["fn"] = [0 if t.program is None else binder.model.kernel(t).address for t in self.plan.tasks]
        self._has_host = any(t.program is None for t in self.plan.tasks)

    def attach(self, arena: np.ndarray) -> None:
        """Uses `arena`, at least `binding.arena_bytes` of u8, for the next executions."""
        if arena is self.arena:
            return
        self.arena = arena
        count = len(self.plan.storages)
        self._base[:count] = self.binding.storage_offsets.astype(np.uint64) + np.uint64(arena.ctypes.data)
        if len(self.binder.slots):
            self._args[:] = self._base[self.binder.slots] + self._offsets

    def execute(self, inputs: Sequence[np.ndarray], outputs: list[np.ndarray | None], timed: bool = False) -> None:
        """Runs. `inputs` are contiguous arrays; `outputs` holds the buffers, and None where the run makes the array."""
        self.inputs, self.outputs = inputs, outputs
        self.objects.clear()
        self._base[self._in] = [0 if a.dtype.hasobject else a.ctypes.data for a in inputs]
        self._base[self._out] = [0 if a is None or a.dtype.hasobject else a.ctypes.data for a in outputs]
        self._args[self._moving] = self._base[self._moving_slots] + self._moving_offsets
        try:
            self.run.execute(self._host_task if self._has_host else None, timed=timed)
        except TaskFailed as failed:
            task = self.plan.tasks[failed.task]
            reason = _REASONS.get(failed.code, "it failed with code {code} at {index}")
            raise InvalidModel(
                reason.format(code=failed.code, index=failed.index),
                where={"node": task.node},
                remedy="check the values of the model's inputs",
            ) from failed
        for number, value in self.plan.output_copies:
            result = self.value(value)
            target = outputs[number]
            if target is None:
                keep = isinstance(result, list) or result is None  # a sequence, an empty optional
                outputs[number] = result if keep else np.array(result)
            else:
                np.copyto(target, result, casting="no")

    def release(self) -> None:
        """Lets go of the caller's arrays."""
        self.inputs, self.outputs = (), []
        self.objects.clear()

    def value(self, number: int) -> np.ndarray:
        """A tensor in logical order, by number: a view where the format allows. KeyError if it is not in memory."""
        value = self.plan.values[number]
        place = value.place
        if place is None:
            raise KeyError(value.name)
        if place.region == "object":
            return self.objects.get(place.index)  # type: ignore[return-value]  # None: its branch did not run
        if place.region == "input" and value.dtype.kind == "handle":
            array = self.inputs[place.index]
            return array[()] if value.dtype == HANDLE else array
        if place.region == "constant" and value.dtype.kind == "handle":
            return self.binder.model.constants[place.index]
        shape = self.binding.shapes[number]
        physical = self._physical(number)
        return value.format.to_logical(physical, shape)

    def _physical(self, number: int) -> np.ndarray:
        """A view of a tensor's bytes in physical order."""
        value = self.plan.values[number]
        place = value.place
        assert place is not None
        offset = self.binding.places[number]
        if place.region == "arena":
            memory = self.arena
            offset += int(self.binding.storage_offsets[place.index])
        else:
            owners = {"input": self.inputs, "output": self.outputs, "constant": self.binder.model.constants}
            array = owners[place.region][place.index]
            assert array is not None
            memory = array.reshape(-1).view(np.uint8)
        shape = value.format.physical_shape(self.binding.shapes[number])
        nbytes = int(np.prod(shape, dtype=np.int64)) * value.dtype.bytes  # type: ignore[arg-type]
        return memory[offset : offset + nbytes].view(value.dtype.numpy).reshape(shape)  # type: ignore[arg-type]

    def _host_task(self, number: int) -> None:
        task = self.plan.tasks[number]
        try:
            inputs = [None if n is None else self.value(n) for n in task.inputs]
            results = evaluate(task.op, task.attrs or {}, inputs, len(task.outputs))
        except OpenAtcError as error:
            error.where.setdefault("node", task.node)
            raise
        except Exception as error:  # numpy's own errors say nothing of the node
            raise InvalidModel(
                f"the AI CPU could not compute it: {type(error).__name__}: {error}",
                where={"node": task.node, "op": task.op},
                remedy="check the model and the values of its inputs",
            ) from error
        for value, result in zip(task.outputs, results, strict=True):
            self._store(task, value, result)

    def _store(self, task: PlanTask, number: int, result: object) -> None:
        value = self.plan.values[number]
        place = value.place
        if place is None:
            return
        if place.region == "object":
            self.objects[place.index] = result
            return
        array = np.asarray(result)
        shape = self.binding.shapes[number]
        if array.shape != shape or array.dtype != value.dtype.numpy:
            raise InvalidModel(
                f"the AI CPU made {array.dtype}{list(array.shape)}, planned was {value.dtype}{list(shape)}",
                where={"node": task.node, "op": task.op, "tensor": value.name},
                remedy="this is a fault of the compiler: report it with the model",
            )
        self._physical(number)[...] = value.format.to_physical(array)
