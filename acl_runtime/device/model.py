"""Models on the device: executions over datasets in device memory."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.context import Context
from acl_runtime.device.dataset import DataBuffer, Dataset, TensorDesc
from acl_runtime.device.description import TensorDescription, describe
from acl_runtime.device.dumps import ModelDump
from acl_runtime.device.in_flight import Execution, Use
from acl_runtime.device.memory import Memory
from acl_runtime.device.stream import current_stream
from acl_runtime.device.watch import Watch
from acl_runtime.model import load_model
from acl_runtime.om import WEIGHTS, PackageError
from acl_runtime.session import InferSession
from tensor_types.errors import OpenAtcError, ResourceLimit

_T = TypeVar("_T")
_Request = tuple[object, ...]
_KEPT = 32
"""Executions that a model keeps."""
_TOLERATED = 64
"""Bytes by which an input buffer may be too small."""


class DeviceModel:
    """A loaded model. Executions overlap, those of one model too; only a model with states takes turns."""

    def __init__(
        self, model_id: int, path: str | os.PathLike[str], threads: int, watch: Watch, name: str = "", device: int = 0
    ) -> None:
        """`name`: what settings of dumps may call it, besides the name of its graph. `device`: where it runs."""
        loaded = load_model(path)
        self.device = device
        self._id, self._watch = model_id, watch
        graph = loaded.package.graph() if watch.dump is not None else None
        layers = None if graph is None or watch.dump is None else watch.dump.layers(name, graph.name)
        self._session = InferSession(0, path, threads, keep=layers is not None)
        self._dump: ModelDump | None = None
        if layers is not None and watch.dump is not None and graph is not None:
            self._dump = ModelDump(watch.dump, self._session, graph, name or graph.name, model_id, layers)
        self.description = describe(model_id, loaded)
        self._lock = threading.Lock()
        self._known: dict[_Request, Execution] = {}
        """Executions that may be repeated as they are, by what they depend on besides model and blocks."""
        self._says_shapes = self.description.is_dynamic or any(t.is_dynamic for t in self.description.outputs)

    def prepare(
        self, inputs: Dataset, outputs: Dataset, memory: Memory, context: Context, allocates: bool
    ) -> Execution:
        """Checks everything and gives the execution, for `run_now` or `submit`.

        It reads the input memory and writes the output memory that the datasets name now. With `allocates`, an
        output buffer without memory gets device memory, owned by `context`; without, it is an error. What was asked for
        before, of the same live blocks, is not checked again.
        """
        request = self._request(inputs, outputs, context)
        known = self._known.get(request)
        if known is not None and not known.is_stale():
            return known
        if context.device != self.device:
            raise DeviceError(
                Code.MODEL_CONTEXT, f"model {self._id} was loaded on device {self.device}, the context is of device "
                f"{context.device}: load it there as well",
            )  # fmt: skip
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
        gears = description.gears
        if gears is not None:
            shapes = gears.input_shapes(gears.chosen(inputs))
        else:
            shapes = [_input_shape(tensor, inputs.descs.get(n)) for n, tensor in enumerate(description.inputs)]
        for stage in description.stages:
            written, wanted = inputs.buffers[stage.parameters].images, shapes[stage.parameters][0]
            given = 0 if written is None else written.count
            if given < wanted:
                raise DeviceError(
                    Code.AIPP_BATCH_EMPTY, f"{wanted} images are prepared, parameters were set for {given}: "
                    f"call set_input_aipp for input {stage.parameters}",
                )  # fmt: skip
        try:
            result_shapes = self._session.output_shapes(shapes)
        except OpenAtcError as error:
            raise DeviceError(Code.SHAPE_INVALID, str(error)) from error
        arrays = [
            _input_array(tensor, shape, buffer, memory)
            for tensor, shape, buffer in zip(description.tensors, shapes, inputs.buffers, strict=False)
        ]
        for stage in description.stages:  # a queued execution keeps the settings that it was queued with
            arrays[stage.parameters] = arrays[stage.parameters].copy()
        targets = []
        for tensor, shape, buffer in zip(description.outputs, result_shapes, outputs.buffers, strict=True):
            if not buffer.address and not allocates:
                raise DeviceError(Code.EXEC_PARAM_INVALID, f"the buffer of output {tensor.name} has no memory")
            targets.append(_output_memory(tensor, shape, buffer, memory) if buffer.address else None)

        uses = [
            Use(b.address, a.nbytes, False, f"input {t.name}")
            for t, a, b in zip(description.tensors, arrays, inputs.buffers, strict=False)
        ]
        uses += [Use(b.address, len(m) if s is None else math.prod(s) * t.dtype.bytes, True, f"output {t.name}")
                 for t, s, m, b in zip(description.outputs, result_shapes, targets, outputs.buffers, strict=True)
                 if m is not None]  # fmt: skip

        # Memory goes straight to the kernels where the shape is known and no input lies in it.
        direct: list[np.ndarray | None] = [
            None if target is None or shape is None or any(np.may_share_memory(target, a) for a in arrays)
            else target[: math.prod(shape) * tensor.dtype.bytes].view(tensor.dtype.numpy).reshape(shape)
            for tensor, shape, target in zip(description.outputs, result_shapes, targets, strict=True)
        ]  # fmt: skip
        run = self._prepared(arrays, direct)

        is_done = all(d is not None for d in direct) and not self._says_shapes

        def execute() -> None:
            results = self._run(run, arrays, direct, context.device)
            if is_done:
                return
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

        if any(b.address == 0 for b in outputs.buffers):  # they get memory, which is the next execution's
            return Execution(tuple(uses), execute)
        execution = Execution(
            tuple(uses), execute, tuple(memory.device.check(u.address, u.nbytes, u.what) for u in uses)
        )
        with self._lock:
            while len(self._known) >= _KEPT:
                del self._known[next(iter(self._known))]
            self._known[request] = execution
        return execution

    def _request(self, inputs: Dataset, outputs: Dataset, context: Context) -> _Request:
        """Equal for calls that mean the same; a dataset of outputs counts itself where shapes are written to it."""
        buffers = tuple([(b.address, b.size, b.gear, b.images) for b in inputs.buffers])
        places = tuple([(b.address, b.size) for b in outputs.buffers])
        shapes = tuple([(n, tuple(desc.dims)) for n, desc in inputs.descs.items()]) if inputs.descs else None
        return buffers, places, shapes, context, outputs if self._says_shapes else None

    def _prepared(
        self, arrays: Sequence[np.ndarray], targets: Sequence[np.ndarray | None]
    ) -> Callable[[], list[np.ndarray]]:
        try:
            return self._session.prepared(arrays, targets)
        except OpenAtcError as error:
            raise DeviceError(Code.MODEL_EXECUTE, str(error)) from error

    def _run(
        self, run: Callable[[], list[np.ndarray]], arrays: Sequence[np.ndarray],
        targets: Sequence[np.ndarray | None], device: int,
    ) -> list[np.ndarray]:  # fmt: skip
        """`run` is the session's run of these arrays."""
        try:
            if self._dump is None and not self._watch.profiler.is_on:
                return run()
            return self._run_watched(arrays, targets, device)
        except ResourceLimit as error:
            raise DeviceError(Code.EXEC_MEMORY_ALLOCATION, str(error)) from error
        except OpenAtcError as error:
            raise DeviceError(Code.MODEL_EXECUTE, str(error)) from error


    def _run_watched(
        self, arrays: Sequence[np.ndarray], targets: Sequence[np.ndarray | None], device: int
    ) -> list[np.ndarray]:
        profiler, stream = self._watch.profiler, current_stream()
        with self._dump.lock if self._dump is not None else contextlib.nullcontext():
            if profiler.wants(self._id, device):
                results, rows, calls = self._session.infer_timed(arrays, targets)
                profiler.add(self._id, device, stream, rows, calls)
            else:
                results = self._session.infer(arrays, targets)
            if self._dump is not None:
                self._dump.write(device, stream)
        return results


@contextlib.contextmanager
def _load_errors(path: str) -> Iterator[None]:
    """DeviceError with the executor's codes for what a package can do wrong."""
    if not os.path.isfile(path):
        raise DeviceError(Code.EXEC_MODEL_PATH_INVALID, f"there is no file {path}")
    try:
        yield
    except PackageError as error:
        raise DeviceError(Code.EXEC_MODEL_DATA_SIZE_INVALID, str(error)) from error
    except ResourceLimit as error:
        raise DeviceError(Code.EXEC_MEMORY_ALLOCATION, str(error)) from error
    except OpenAtcError as error:
        raise DeviceError(Code.EXEC_LOAD_MODEL, str(error)) from error


def sizes_of_file(path: str) -> tuple[int, int]:
    """Bytes of intermediate tensors under the largest shapes (0 if there are none such), and of weights."""
    with _load_errors(path):
        loaded = load_model(path)
        description = describe(0, loaded)
        gears = description.gears
        shapes = [t.dims for t in description.tensors] if gears is None else gears.input_shapes(gears.largest)
        known = all(d >= 0 for shape in shapes for d in shape)
        work = InferSession(0, path).arena_bytes(shapes) if known else 0
        return work, len(loaded.package.section(WEIGHTS))


class ModelTable:
    """The loaded models of the process, by id from 1 on. Open between `acl.init` and `acl.finalize`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: dict[int, DeviceModel] = {}
        self._last = 0
        self.is_open = False
        self.watch = Watch()

    def load(self, path: str, threads: int, context: Context, name: str | None = None) -> int:
        """Loads a file onto the device of a context. Dumps call it `name`, without that by its own name.
        EXEC_MODEL_PATH_INVALID, EXEC_MODEL_DATA_SIZE_INVALID for what is not a package, or others."""
        self._check_open()
        with self._lock:
            self._last += 1
            number = self._last
        with _load_errors(path):
            known = Path(path).stem if name is None else name
            model = DeviceModel(number, path, threads, self.watch, known, context.device)
        with self._lock:
            self._models[number] = model
        return number

    def with_file(self, data: np.ndarray, use: Callable[[str], _T]) -> _T:
        """What `use` makes of a package in u8 memory, which is not needed afterwards: it gets a file's path."""
        self._check_open()
        # The mapping of the file outlives its name.
        with tempfile.TemporaryDirectory(prefix="acl", ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "model.om"
            path.write_bytes(data.data)
            return use(str(path))

    def get(self, model_id: int) -> DeviceModel:
        """EXEC_MODEL_ID_INVALID if it is not loaded."""
        self._check_open()
        model = self._models.get(model_id)  # atomic
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


def _give_memory(buffer: DataBuffer, array: np.ndarray, memory: Memory, context: Context) -> None:
    """Device memory for an output that came without; the caller frees it."""
    block = memory.device.allocate(array.nbytes, "mdl.execute", context)
    memory.device.view(block.address, array.nbytes)[:] = _bytes(array)
    buffer.address, buffer.size = block.address, array.nbytes


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
