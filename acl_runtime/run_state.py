"""One execution of a segment in flight: argument addresses, memory of its own, AI CPU tasks and objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from acl_runtime.aicpu import evaluate
from acl_runtime.binding import Binder, Binding
from acl_runtime.chip_programs import ChipKernel
from acl_runtime.executor import Executor, TaskFailed, aligned_zeros
from acl_runtime.internal_error import internal_error
from acl_runtime.loop_runs import LoopRuns
from acl_runtime.om import PackageError
from acl_runtime.plan_format import PlanTask
from codegen.llvm.bounds_checks import STATUS_OUTSIDE
from codegen.tile.interpreter import InterpreterError, TaskStatus
from tensor_types.deadline import check_deadline
from tensor_types.dtypes import HANDLE
from tensor_types.errors import InvalidModel, OpenAtcError, ResourceLimit

_REASONS = {
    1: "an index is out of range: the one at flattened position {index} of its indices",
    2: "a size in its input is out of range: {index}",
}


_LONG = 1 << 32
"""Scalar operations of a run, at most, from which it may take so long that interrupts must not wait for its end."""
_UNALIGNED = 1 << 12
"""Bytes below which an array costs more to be aligned than its kernels gain by it."""


def new_array(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of zeros, 64-byte aligned unless it is small: what a package never writes must not show what the process
    held before."""
    if dtype.hasobject:
        return np.empty(shape, dtype)
    nbytes = prod(shape) * dtype.itemsize
    if nbytes < _UNALIGNED:
        return np.zeros(shape, dtype)
    return aligned_zeros(nbytes).view(dtype).reshape(shape)


_NOTHING_KNOWN: Mapping[int, int] = MappingProxyType({})


class RunState:
    """Executes bindings of one segment, one execution at a time. Its tensors stay readable until the next one."""

    def __init__(self, binder: Binder, executor: Executor, bodies: Sequence[LoopRuns] = ()) -> None:
        self.binder = binder
        self.binding: Binding | None = None
        self.plan = binder.segment.plan
        self.bodies = bodies
        self.run = executor.prepare(binder.segment.graph)
        self.arena = np.empty(0, np.uint8)
        self.objects: dict[int, object] = {}
        self.inputs: Sequence[np.ndarray | None] = ()
        self.outputs: list[Any] = []
        self.states: Sequence[np.ndarray] = ()
        self._passed: dict[int, np.ndarray] = {}
        self._base = np.zeros(binder.n_slots, np.uint64)
        first = binder.first_slot
        self._given = slice(first["input"], first["constant"])
        """Slots of inputs, outputs and states, in this order."""
        self._base[first["constant"] : first["guard"]] = [_address(c) for c in binder.segment.constants]
        guards = self.run.guards.ctypes.data
        self._base[first["guard"] :] = np.arange(self.plan.n_guards, dtype=np.uint64) + np.uint64(guards)
        slots = binder.slots
        self._offsets = np.zeros(len(slots), np.uint64)
        self._moving = np.flatnonzero((slots >= first["input"]) & (slots < first["constant"]))
        self._has_faults = False
        self._addresses: np.ndarray | None = None
        """Those that the arguments are made of; None: any."""
        self._moving_slots, self._moving_offsets = slots[self._moving], self._offsets[self._moving]
        self._args = np.zeros(max(len(slots), 1), np.uint64)
        self._dims = np.zeros(max(binder.n_dims, 1), np.int64)
        records = self.run.records
        records["args"] = np.array(binder.first_arg, np.uint64) * np.uint64(8) + np.uint64(self._args.ctypes.data)
        records["dims"] = np.array(binder.first_dim, np.uint64) * np.uint64(8) + np.uint64(self._dims.ctypes.data)

    def attach(self, binding: Binding, arena: np.ndarray) -> None:
        """Uses these sizes and `arena`, at least `binding.arena_bytes` of u8, for the next executions."""
        if arena is self.arena and binding is self.binding:
            return
        if binding is not self.binding:
            self.binding = binding
            self._offsets = binding.offsets.view(np.uint64)
            self._moving_offsets = self._offsets[self._moving]
            self._dims[: len(binding.kernel_dims)] = binding.kernel_dims
            records = self.run.records
            records["grid"], records["grain"] = binding.grid, binding.grain
            self.run.is_long = binding.operations >= _LONG
            if binding.faults or self._has_faults:
                records["fn"] = self.binder.segment.graph.records["fn"]
                records["fn"][list(binding.faults)] = 0  # a run that reaches one comes back for it
                self._has_faults = bool(binding.faults)
        self.arena, self._addresses = arena, None
        count = len(self.plan.storages)
        self._base[:count] = binding.storage_offsets.astype(np.uint64) + np.uint64(arena.ctypes.data)
        np.add(self._base.take(self.binder.slots), self._offsets, out=self._args[: len(self._offsets)])

    def passed(self, number: int) -> np.ndarray:
        """A buffer of this state for output `number`, which another segment reads: in physical order, reused."""
        value = self.plan.values[self.plan.outputs[number]]
        assert self.binding is not None
        shape: Any = value.format.physical_shape(self.binding.shapes[self.plan.outputs[number]])
        nbytes = prod(shape) * value.dtype.bytes
        held = self._passed.get(number)
        if held is None or held.nbytes < nbytes:
            held = self._passed[number] = aligned_zeros(nbytes)
        return held[:nbytes].view(value.dtype.numpy).reshape(shape)

    def execute(
        self, inputs: Sequence[np.ndarray | None], outputs: list[Any], timed: bool = False,
        states: Sequence[np.ndarray] = (), addresses: np.ndarray | None = None,
        known: Mapping[int, int] = _NOTHING_KNOWN,
    ) -> None:  # fmt: skip
        """Runs. `inputs` are contiguous arrays in physical order, None for objects that were not made; `states` are the
        buffers of the segment's states, which this run alone uses. `addresses` are those of all three, if known: the
        same array means the same addresses. `known` are some of them, by identity of the array.

        `outputs` holds the buffers, and None where the run makes the object, which takes the place of the None.
        """
        self.inputs, self.outputs, self.states = inputs, outputs, states
        self.objects.clear()
        if addresses is None or addresses is not self._addresses:
            self._addresses = addresses
            if addresses is None:
                self._base[self._given] = [
                    known.get(id(a)) or _address(a) for group in (inputs, outputs, states) for a in group
                ]
            else:
                self._base[self._given] = addresses
            self._args[self._moving] = self._base[self._moving_slots] + self._moving_offsets
        try:
            self.run.execute(self.host_task, timed=timed)
        except TaskFailed as failed:
            task = self.plan.tasks[failed.task]
            if failed.code == STATUS_OUTSIDE:
                where = f"{failed.index} bytes into it" if failed.index else "at an index that it read"
                raise internal_error(AssertionError(f"node {task.node} leaves a tensor, {where}")) from failed
            reason = _REASONS.get(failed.code, "it failed with code {code} at {index}")
            raise InvalidModel(
                reason.format(code=failed.code, index=failed.index),
                where={"node": task.node},
                remedy="check the values of the model's inputs",
            ) from failed
        for number, value in self.plan.output_copies:
            result = self.value(value)
            if outputs[number] is None:
                outputs[number] = result
                continue
            copied = self.plan.values[value].format.to_physical(result)
            if (copied.shape, copied.dtype) != (outputs[number].shape, outputs[number].dtype):
                name = self.plan.values[self.plan.outputs[number]].name
                reason = f"an output of {list(outputs[number].shape)} is a copy of {list(copied.shape)}"
                raise PackageError(reason, where={"tensor": name}, remedy="convert the model again")
            np.copyto(outputs[number], copied)

    def release(self) -> None:
        """Lets go of the arrays of the caller and of other segments."""
        self.inputs, self.outputs, self.states = (), [], ()
        self.objects.clear()

    def value(self, number: int) -> np.ndarray:
        """A tensor in logical order, by number: a view where the format allows. KeyError if it is not in memory."""
        value = self.plan.values[number]
        place = value.place
        if place is None:
            raise KeyError(value.name)
        if place.space == "object":
            return self.objects.get(place.index)  # type: ignore[return-value]  # None: its branch did not run
        assert self.binding is not None
        if place.space == "input" and number not in self.binding.shapes:
            array = self.inputs[place.index]
            return array[()] if array is not None and value.dtype == HANDLE else array  # type: ignore[return-value]
        if place.space == "constant" and value.dtype.kind == "handle":
            return self.binder.segment.constants[place.index]
        shape = self.binding.shapes[number]
        physical = self.physical(number)
        return value.format.to_logical(physical, shape)

    def physical(self, number: int) -> np.ndarray:
        """A view of a tensor's bytes in physical order."""
        value = self.plan.values[number]
        place = value.place
        assert place is not None and self.binding is not None
        if min(self.binding.shapes[number], default=0) < 0:
            raise _negative(value.name, self.binding.shapes[number])
        offset = self.binding.places[number]
        if place.space == "arena":
            memory = self.arena
            offset += int(self.binding.storage_offsets[place.index])
        else:
            owners = {"input": self.inputs, "output": self.outputs, "state": self.states,
                      "constant": self.binder.segment.constants}  # fmt: skip
            array = owners[place.space][place.index]
            assert array is not None
            memory = array.reshape(-1).view(np.uint8)
        shape = value.format.physical_shape(self.binding.shapes[number])
        nbytes = prod(shape) * value.dtype.bytes
        return memory[offset : offset + nbytes].view(value.dtype.numpy).reshape(shape)  # type: ignore[arg-type]

    def host_task(self, number: int) -> None:
        """Runs a task that has no native code: an operator of the AI CPU, or a program of a chip."""
        assert self.binding is not None
        check_deadline()
        task = self.plan.tasks[number]
        if number in self.binding.faults:
            raise self.binding.faults[number].with_traceback(None)  # that of an earlier run
        if task.program is not None:
            self._interpret(number)
            return
        try:
            inputs = [None if n is None else self.value(n) for n in task.inputs]
            if task.body is None:
                results = evaluate(task.op, task.attrs or {}, inputs, len(task.outputs))
            else:
                made = [self.plan.values[n] for n in task.outputs]
                results = self.bodies[task.body].repeat(task, inputs, made, self.binding.dims)
        except OpenAtcError as error:
            error.where.setdefault("node", task.node)
            raise
        except MemoryError as error:
            raise ResourceLimit(
                "memory is exhausted", where={"node": task.node, "op": task.op}, remedy="use smaller input shapes"
            ) from error
        if len(results) != len(task.outputs):
            raise InvalidModel(
                f"{task.op} makes {len(results)} tensors, the plan has {len(task.outputs)}", where={"node": task.node}
            )
        for value, result in zip(task.outputs, results, strict=True):
            self._store(task, value, result, inputs)

    def _interpret(self, number: int) -> None:
        """Runs a task of a chip, which has no native code."""
        kernel = self.binder.segment.kernel(self.plan.tasks[number])
        assert isinstance(kernel, ChipKernel)
        arg, dim = self.binder.first_arg[number], self.binder.first_dim[number]
        arguments = self._args[arg : arg + len(kernel.facts.params)]
        try:
            kernel.run(arguments.tolist(), self._dims[dim : dim + len(kernel.facts.dims)].tolist())
        except TaskStatus as status:
            raise TaskFailed(number, status.code, status.index) from status
        except InterpreterError as error:
            node = self.plan.tasks[number].node
            raise InvalidModel(f"a tile program is wrong: {error}", where={"node": node}) from error

    def _store(self, task: PlanTask, number: int, result: object, operands: Sequence[object]) -> None:
        value = self.plan.values[number]
        place = value.place
        if place is None:
            return
        if place.space == "object":
            self.objects[place.index] = _owned(result, operands)
            return
        assert self.binding is not None
        array = np.asarray(result)
        shape = self.binding.shapes[number]
        if task.op in ("Loop", "Scan") and array.size == 0 == prod(shape):
            array = array.reshape(shape)  # without trips nothing tells the extents of what they stack
        if array.shape != shape or array.dtype != value.dtype.numpy:
            raise InvalidModel(
                f"the AI CPU made {array.dtype}{list(array.shape)}, planned was {value.dtype}{list(shape)}",
                where={"node": task.node, "op": task.op, "tensor": value.name},
                remedy="this is a fault of the compiler: report it with the model",
            )
        self.physical(number)[...] = value.format.to_physical(array)


def _negative(name: str, shape: tuple[int, ...]) -> InvalidModel:
    reason = f"a size of {list(shape)} is negative for these input shapes"
    return InvalidModel(reason, where={"tensor": name}, remedy="give larger inputs")


def _owned(result: object, operands: Sequence[object]) -> object:
    """A result that shares no bytes with the operands, which are soon another tensor's or belong to the caller."""
    if isinstance(result, list):
        return [_owned(r, operands) for r in result]
    if isinstance(result, np.ndarray) and (not result.flags.owndata or any(result is o for o in operands)):
        return np.array(result)
    return result


def addresses_of(*groups: Sequence[np.ndarray | None]) -> list[int]:
    """Addresses of the bytes of tensors, 0 of objects, one group after the other."""
    return [_address(a) for group in groups for a in group]


def _address(array: np.ndarray | None) -> int:
    """Address of the bytes of a tensor, 0 of an object."""
    if array is None or array.dtype.hasobject:
        return 0
    address: int = array.__array_interface__["data"][0]  # a third of the time of array.ctypes.data
    return address
