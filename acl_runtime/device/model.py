"""Models on the device: what AscendCL tells of them, and executions over datasets in device memory."""

from __future__ import annotations

import math
import os
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.dataset import DataBuffer, Dataset, TensorDesc
from acl_runtime.device.in_flight import Use
from acl_runtime.device.memory import Memory
from acl_runtime.model import load_model
from acl_runtime.om import PackageError
from acl_runtime.session import InferSession
from tensor_types.dims import Dim, evaluate, names
from tensor_types.dtypes import DType
from tensor_types.errors import OpenAtcError, ResourceLimit

FORMAT_NCHW, FORMAT_ND = 0, 2
_UNKNOWN_RANK = -2
_TOLERATED = 64
"""Bytes by which an input buffer may be too small."""


@dataclass(frozen=True)
class Execution:
    """One execution, checked: the memory that it uses, and the call."""

    uses: tuple[Use, ...]
    run: Callable[[], None]


@dataclass(frozen=True)
class TensorDescription:
    """An input or output. dims: -1 for a dynamic axis, one -2 if even the rank is unknown.

    ranges: smallest and largest size of each axis (-1: no limit). nbytes: of the largest shape, 0 if there is none.
    """

    name: str
    dtype: DType
    dims: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...]
    nbytes: int

    @property
    def format(self) -> int:
        """aclFormat."""
        return FORMAT_NCHW if len(self.dims) == 4 else FORMAT_ND

    @property
    def is_dynamic(self) -> bool:
        return any(d < 0 for d in self.dims)


@dataclass(frozen=True)
class ModelDescription:
    """Inputs and outputs in the model's order."""

    model_id: int
    inputs: tuple[TensorDescription, ...]
    outputs: tuple[TensorDescription, ...]

    @property
    def is_dynamic(self) -> bool:
        return any(t.is_dynamic for t in self.inputs)


class DeviceModel:
    """A loaded model. Executions of one model come one after the other."""

    def __init__(self, model_id: int, path: str | os.PathLike[str], threads: int) -> None:
        loaded = load_model(path)
        self._session = InferSession(0, path, threads)
        self._lock = threading.Lock()
        plan = loaded.plan
        self.description = ModelDescription(
            model_id,
            tuple(_describe(v.name, v.dtype, v.shape, plan.dims) for v in plan.inputs),
            tuple(_describe(v.name, v.dtype, v.shape, plan.dims) for v in plan.outputs),
        )

    def prepare(self, inputs: Dataset, outputs: Dataset, memory: Memory, context: object, allocates: bool) -> Execution:
        """Checks everything and gives the execution, for `run_now` or `submit`.

        It reads the input memory and writes the output memory that the datasets name now. With `allocates`, an
        output buffer without memory gets device memory, owned by `context`; without, it is an error.
        """
        description = self.description
        for kind, dataset, wanted in (
            ("inputs", inputs, description.inputs), ("outputs", outputs, description.outputs)
        ):  # fmt: skip
            if len(dataset.buffers) != len(wanted):
                raise DeviceError(
                    Code.EXEC_PARAM_INVALID, f"the dataset has {len(dataset.buffers)} {kind}, the model {len(wanted)}"
                )
        for tensor in (*description.inputs, *description.outputs):
            if tensor.dtype.kind == "handle":
                raise DeviceError(Code.DATATYPE_INVALID, f"{tensor.name} holds strings, which device memory cannot")
        shapes = [_input_shape(tensor, inputs.descs.get(number)) for number, tensor in enumerate(description.inputs)]
        try:
            result_shapes = self._session.output_shapes(shapes)
        except OpenAtcError as error:
            raise DeviceError(Code.SHAPE_INVALID, str(error)) from error
        arrays = [
            _input_array(tensor, shape, buffer, memory)
            for tensor, shape, buffer in zip(description.inputs, shapes, inputs.buffers, strict=True)
        ]
        targets = []
        for tensor, shape, buffer in zip(description.outputs, result_shapes, outputs.buffers, strict=True):
            if not buffer.address and not allocates:
                raise DeviceError(Code.EXEC_PARAM_INVALID, f"the buffer of output {tensor.name} has no memory")
            targets.append(_output_memory(tensor, shape, buffer, memory) if buffer.address else None)

        uses = [
            Use(b.address, a.nbytes, False, f"input {t.name}")
            for t, a, b in zip(description.inputs, arrays, inputs.buffers, strict=True)
        ]
        uses += [Use(b.address, len(m) if s is None else math.prod(s) * t.dtype.bytes, True, f"output {t.name}")
                 for t, s, m, b in zip(description.outputs, result_shapes, targets, outputs.buffers, strict=True)
                 if m is not None]  # fmt: skip

        def execute() -> None:
            # Memory goes straight to the kernels where the shape is known and no input lies in it.
            direct: list[np.ndarray | None] = [
                None if target is None or shape is None or any(np.may_share_memory(target, a) for a in arrays)
                else target[: math.prod(shape) * tensor.dtype.bytes].view(tensor.dtype.numpy).reshape(shape)
                for tensor, shape, target in zip(description.outputs, result_shapes, targets, strict=True)
            ]  # fmt: skip
            results = self._run(arrays, direct)
            for number, (tensor, target, array) in enumerate(zip(description.outputs, targets, results, strict=True)):
                if target is None:
                    _give_memory(outputs.buffers[number], array, memory, context)
                elif array is not direct[number]:
                    if array.nbytes > len(target):
                        raise _too_small(tensor, array.nbytes, len(target))
                    target[: array.nbytes] = _bytes(array)
                if description.is_dynamic or tensor.is_dynamic:
                    desc = outputs.descs.setdefault(number, TensorDesc(tensor.dtype.acl, [], tensor.format))
                    desc.dtype, desc.dims = tensor.dtype.acl, list(array.shape)

        return Execution(tuple(uses), execute)

    def _run(self, arrays: Sequence[np.ndarray], targets: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        try:
            with self._lock:
                return self._session.infer(arrays, targets)
        except ResourceLimit as error:
            raise DeviceError(Code.EXEC_MEMORY_ALLOCATION, str(error)) from error
        except OpenAtcError as error:
            raise DeviceError(Code.MODEL_EXECUTE, str(error)) from error


class ModelTable:
    """The loaded models of the process, by id from 1 on. Open between `acl.init` and `acl.finalize`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: dict[int, DeviceModel] = {}
        self._last = 0
        self.is_open = False

    def load(self, path: str, threads: int) -> int:
        """Loads a file. EXEC_MODEL_PATH_INVALID, EXEC_MODEL_DATA_SIZE_INVALID for what is not a package, or others."""
        self._check_open()
        if not Path(path).is_file():
            raise DeviceError(Code.EXEC_MODEL_PATH_INVALID, f"there is no file {path}")
        with self._lock:
            self._last += 1
            number = self._last
        try:
            model = DeviceModel(number, path, threads)
        except PackageError as error:
            raise DeviceError(Code.EXEC_MODEL_DATA_SIZE_INVALID, str(error)) from error
        except ResourceLimit as error:
            raise DeviceError(Code.EXEC_MEMORY_ALLOCATION, str(error)) from error
        except OpenAtcError as error:
            raise DeviceError(Code.EXEC_LOAD_MODEL, str(error)) from error
        with self._lock:
            self._models[number] = model
        return number

    def load_bytes(self, data: np.ndarray, threads: int) -> int:
        """Loads a package from u8 memory, which is not needed afterwards."""
        self._check_open()
        # The mapping of the file outlives its name.
        with tempfile.TemporaryDirectory(prefix="acl", ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "model.om"
            path.write_bytes(data.data)
            return self.load(str(path), threads)

    def get(self, model_id: int) -> DeviceModel:
        """EXEC_MODEL_ID_INVALID if it is not loaded."""
        self._check_open()
        with self._lock:
            model = self._models.get(model_id)
        if model is None:
            raise DeviceError(Code.EXEC_MODEL_ID_INVALID, f"no model {model_id} is loaded")
        return model

    def unload(self, model_id: int) -> None:
        """Executions that are queued still run."""
        self.get(model_id)
        with self._lock:
            self._models.pop(model_id, None)

    def close(self) -> None:
        """Unloads all."""
        with self._lock:
            self._models.clear()
        self.is_open = False

    def _check_open(self) -> None:
        if not self.is_open:
            raise DeviceError(Code.EXEC_NOT_INIT, "acl.init was not called, or acl.finalize was")


def _describe(
    name: str, dtype: DType, shape: tuple[Dim, ...] | None, limits: Mapping[str, tuple[int, int | None]]
) -> TensorDescription:
    if shape is None:
        return TensorDescription(name, dtype, (_UNKNOWN_RANK,), (), 0)
    ranges = tuple((_at(d, limits, 0, 1), _at(d, limits, 1, -1)) for d in shape)
    largest = [high for _, high in ranges]
    nbytes = 0 if -1 in largest or dtype.kind == "handle" else math.prod(largest) * dtype.bytes
    return TensorDescription(name, dtype, tuple(d if isinstance(d, int) else -1 for d in shape), ranges, nbytes)


def _at(size: Dim, limits: Mapping[str, tuple[int, int | None]], end: int, unknown: int) -> int:
    """A size with every dim at its lower (0) or upper (1) limit; dims only ever add to the sizes of real models."""
    env = {name: limits[name][end] for name in names(size) if name in limits}
    if any(value is None for value in env.values()) or len(env) < len(names(size)):
        return unknown
    return evaluate(size, env)  # type: ignore[arg-type]


def _input_shape(tensor: TensorDescription, desc: TensorDesc | None) -> tuple[int, ...]:
    if not tensor.is_dynamic:
        return tensor.dims
    if desc is None or any(d < 0 for d in desc.dims):
        raise DeviceError(
            Code.SHAPE_INVALID,
            f"input {tensor.name} is dynamic: say its shape with set_dataset_tensor_desc before the execution",
        )
    return tuple(desc.dims)


def _input_array(tensor: TensorDescription, shape: tuple[int, ...], buffer: DataBuffer, memory: Memory) -> np.ndarray:
    needed = math.prod(shape) * tensor.dtype.bytes
    if needed > buffer.size + _TOLERATED:
        raise DeviceError(
            Code.EXEC_PARAM_INVALID, f"input {tensor.name} needs {needed} bytes, its buffer has {buffer.size}"
        )
    _check_device(f"input {tensor.name}", tensor, buffer.address, min(needed, buffer.size), memory)
    return memory.device.view(buffer.address, needed).view(tensor.dtype.numpy).reshape(shape)


def _output_memory(
    tensor: TensorDescription, shape: tuple[int, ...] | None, buffer: DataBuffer, memory: Memory
) -> np.ndarray:
    needed = 0 if shape is None else math.prod(shape) * tensor.dtype.bytes
    if needed > buffer.size:
        raise _too_small(tensor, needed, buffer.size)
    # What a size beyond the block would let the model write does not belong to the caller.
    _check_device(f"output {tensor.name}", tensor, buffer.address, buffer.size if shape is None else needed, memory)
    return memory.device.view(buffer.address, buffer.size)


def _check_device(what: str, tensor: TensorDescription, address: int, nbytes: int, memory: Memory) -> None:
    if address not in memory.device:
        kind = "has no memory" if not address else f"points to host memory at {address:#x}: copy it to the device"
        raise DeviceError(Code.EXEC_PARAM_INVALID, f"the buffer of {what} {kind}")
    try:
        memory.check(address, nbytes, what)
    except DeviceError as error:
        raise DeviceError(Code.EXEC_PARAM_INVALID, error.message) from None
    if address % tensor.dtype.bytes:
        raise DeviceError(Code.ADDR_UNALIGNED, f"the buffer of {what} is not at a multiple of {tensor.dtype.bytes}")


def _too_small(tensor: TensorDescription, needed: int, size: int) -> DeviceError:
    return DeviceError(Code.EXEC_PARAM_INVALID, f"output {tensor.name} needs {needed} bytes, its buffer has {size}")


def _give_memory(buffer: DataBuffer, array: np.ndarray, memory: Memory, context: object) -> None:
    """Device memory for an output that came without; the caller frees it."""
    block = memory.device.allocate(array.nbytes, "mdl.execute", context)
    memory.device.view(block.address, array.nbytes)[:] = _bytes(array)
    buffer.address, buffer.size = block.address, array.nbytes


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
