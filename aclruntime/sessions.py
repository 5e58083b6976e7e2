"""Sessions: a model on the device, run with tensors."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from acl._life_cycle import finalize as acl_finalize
from acl._life_cycle import init as acl_init
from acl._process import contexts, memory, models, threads
from acl_runtime.device import Code, DataBuffer, Dataset, DeviceError, TensorDesc, TensorDescription, run_now
from acl_runtime.device.gears import BATCH, IMAGE, Gears
from aclruntime.failures import runtime_errors
from aclruntime.image_settings import ImageSettings
from aclruntime.shapes import fitting, parse_shapes
from aclruntime.tensors import BaseTensor, Tensor, dtype
from tensor_types.array_files import read_array

_DEBUG, _INFO = 1, 2


class session_options:  # noqa: N801 (the original's name)
    """loop: executions of each run; log_level: 1 debug, 2 info; acl_json_path: settings for `acl.init`."""

    def __init__(self) -> None:
        self.loop = 1
        self.log_level = _INFO
        self.acl_json_path = ""


class infer_options:  # noqa: N801 (the original's name)
    """Settings of `run_pipeline` over files."""

    def __init__(self) -> None:
        self.output_dir = ""
        self.auto_dym_shape = False
        self.auto_dym_dims = False
        self.out_format = "BIN"
        self.pure_infer_mode = ""


@dataclass
class tensor_desc:  # noqa: N801 (the original's name)
    """An input or output. shape: -1 for what is open. size: bytes of a buffer that always suffices (0: no limit).
    realsize: bytes that the shape set now takes."""

    name: str
    datatype: dtype
    format: int
    shape: list[int]
    size: int
    realsize: int


@dataclass
class _Summary:
    exec_time_list: list[tuple[float, float]] = field(default_factory=list)
    """Begin and end of each execution, in milliseconds of one clock."""


class InferenceSession(ImageSettings):
    """A model of one package on one device."""

    @runtime_errors
    def __init__(self, path: str, device_id: int, options: session_options | None = None) -> None:
        super().__init__()
        self._options = options or session_options()
        code = acl_init(self._options.acl_json_path)
        if code not in (0, Code.REPEAT_INITIALIZE):
            raise RuntimeError(f"[{code}] acl.init({self._options.acl_json_path!r}) failed")
        self._device = int(device_id)
        contexts.set_device(self._device)
        self._context = contexts.current()
        self._id = models.load(str(path), threads(), self._context)
        self._model = models.get(self._id)
        self._path = str(path)
        self._shapes: dict[str, tuple[int, ...]] | None = None
        self._gear = 0
        gears = self._model.description.gears
        self._gear_memory = Tensor(np.zeros(gears.values, np.uint32)) if gears is not None else None
        if gears is not None and self._gear_memory is not None:
            self._gear_memory.to_device(self._device)
            self._gear = gears.largest
        self._output_sizes: list[int] = []
        self._summary = _Summary()

    # What the model is

    def get_inputs(self) -> list[tensor_desc]:
        images = {s.image for s in self._model.description.stages} if self._image_bytes else ()
        return [
            self._described(t, (self._image_bytes,) if number in images else self._shape_of(t))
            for number, t in enumerate(self._model.description.fed)
        ]

    def get_outputs(self) -> list[tensor_desc]:
        outputs = self._model.description.outputs
        return [self._described(t, self._output_dims(number)) for number, t in enumerate(outputs)]

    def options(self) -> session_options:
        return self._options

    def __repr__(self) -> str:
        rows = [f"<Model {self._path} on device {self._device}"]
        for word, tensors in (("input", self.get_inputs()), ("output", self.get_outputs())):
            for number, t in enumerate(tensors):
                rows.append(
                    f"  {word} #{number} {t.name} {t.shape} {t.datatype.value} format {t.format} size {t.size} "
                    f"realsize {t.realsize}"
                )
        return "\n".join(rows) + ">"

    __str__ = __repr__

    # Shapes

    def set_staticbatch(self) -> None:
        """The model's own shapes; with gears the largest."""
        self._shapes = None
        if (gears := self._model.description.gears) is not None:
            self._gear = gears.largest

    @runtime_errors
    def set_dynamic_shape(self, text: str) -> None:
        """Shapes of all inputs: "name:1,3,224,224;other:1,8"."""
        tensors = self._model.description.fed
        shapes = parse_shapes(text, [t.name for t in tensors])
        fitting(shapes, {t.name: t.dims for t in tensors})
        self._shapes = shapes

    @runtime_errors
    def set_dynamic_batchsize(self, batch: int) -> None:
        """Chooses a batch gear."""
        self._choose(BATCH, [int(batch)])

    @runtime_errors
    def set_dynamic_hw(self, height: int, width: int) -> None:
        """Chooses an image gear."""
        self._choose(IMAGE, [int(height), int(width)])

    @runtime_errors
    def set_dynamic_dims(self, text: str) -> None:
        """Chooses a gear of dims: "name:1,8;other:1,16"."""
        tensors = self._model.description.fed
        gears = self._gears()
        shapes = parse_shapes(text, [t.name for t in tensors])
        self._set_gear(gears.number_of_shapes([n for t in tensors for n in shapes[t.name]]))

    @runtime_errors
    def get_max_dym_batchsize(self) -> int:
        """The largest batch gear; 0 without batch gears."""
        gears = self._model.description.gears
        return max(c[0] for c in gears.combinations) if gears is not None and gears.kind == BATCH else 0

    def _choose(self, kind: str, sizes: list[int]) -> None:
        self._set_gear(self._gears().number(kind, sizes))

    def _set_gear(self, number: int) -> None:
        gears = self._gears()
        self._gear = number
        names = [t.name for t in self._model.description.fed]
        self._shapes = dict(zip(names, gears.input_shapes(number), strict=True))

    def _gears(self) -> Gears:
        gears = self._model.description.gears
        if gears is None:
            raise RuntimeError(f"{self._path} has no gears: give shapes in its ranges (set_dynamic_shape, --dymShape)")
        return gears

    def set_custom_outsize(self, sizes: Sequence[int]) -> None:
        """Bytes that outputs may take, one for each output; a larger output is an error of the run."""
        outputs = len(self._model.description.outputs)
        if len(sizes) != outputs:
            raise RuntimeError(f"{len(sizes)} sizes given, the model has {outputs} outputs")
        self._output_sizes = [int(s) for s in sizes]

    # Runs

    @runtime_errors
    def run(
        self, names: Sequence[str], inputs: Sequence[Tensor | BaseTensor] | Mapping[str, Tensor | BaseTensor]
    ) -> list[Tensor]:
        """Outputs of these names (none: all), on the device."""
        contexts.set_current(self._context)
        tensors = self._model.description.fed
        gears = self._model.description.gears
        if isinstance(inputs, Mapping):
            unknown = [n for n in inputs if n not in {t.name for t in tensors}]
            missing = [t.name for t in tensors if t.name not in inputs]
            if unknown or missing:
                raise RuntimeError(f"the model's inputs are {', '.join(t.name for t in tensors)}; got {list(inputs)}")
            inputs = [inputs[t.name] for t in tensors]
        if len(inputs) != len(tensors):
            raise RuntimeError(f"{len(inputs)} inputs given, the model has {len(tensors)}")
        given = Dataset()
        for number, (tensor, description) in enumerate(zip(inputs, tensors, strict=True)):
            given.buffers.append(self._image_buffer(number, self._buffer(tensor, description)))
            shape = self._shape_of(description) if gears is None else gears.input_shapes(self._gear)[number]
            needed = math.prod(shape) * description.dtype.bytes
            if all(d >= 0 for d in shape) and given.buffers[-1].size != needed:
                raise RuntimeError(f"input {description.name} takes {needed} bytes, got {given.buffers[-1].size}")
            if description.is_dynamic and gears is None:
                if any(d < 0 for d in shape) and isinstance(tensor, Tensor):
                    shape = tuple(tensor.shape)
                given.descs[number] = TensorDesc(description.dtype.acl, list(shape), description.format)
        given.buffers += self._parameter_buffers()
        if gears is not None and self._gear_memory is not None:
            given.buffers.append(DataBuffer(self._gear_memory.address, self._gear_memory.size))
            gears.choose(given, len(given.buffers) - 1, self._gear, memory())
        return self._execute(names, given)

    def create_tensor_from_fileslist(self, desc: tensor_desc, files: Sequence[str]) -> Tensor:
        """A device tensor of an input from .npy or raw files, end to end; short data is an error."""
        parts = []
        for file in files:
            data = read_array(file) if str(file).endswith(".npy") else np.fromfile(file, np.uint8)
            parts.append(np.ascontiguousarray(data).reshape(-1).view(np.uint8))
        data = np.concatenate(parts) if parts else np.empty(0, np.uint8)
        if len(data) != desc.realsize:
            raise RuntimeError(f"{len(data)} bytes in {list(files)}, input {desc.name} takes {desc.realsize}")
        tensor = Tensor(data.view(desc.datatype.value).reshape(desc.shape))
        tensor.to_device(self._device)
        return tensor

    def sumary(self) -> _Summary:
        """Times of the executions so far. The name is the original's."""
        return self._summary

    def reset_sumaryinfo(self) -> None:
        self._summary = _Summary()

    @runtime_errors
    def set_context(self) -> None:
        """Makes the session's context current for this thread."""
        contexts.set_current(self._context)

    @runtime_errors
    def free_resource(self) -> None:
        """Unloads the model; once is enough."""
        if self._id:
            contexts.set_current(self._context)
            models.unload(self._id)
            self._id = 0
            contexts.reset_device(self._device)

    @staticmethod
    def finalize() -> None:
        """Ends the use of the device by this process."""
        acl_finalize()

    def _execute(self, names: Sequence[str], given: Dataset) -> list[Tensor]:
        outputs = self._model.description.outputs
        known = [t.name for t in outputs]
        wanted = list(names) or known
        for name in wanted:
            if name not in known:
                raise RuntimeError(f"the model has no output {name}; it has {', '.join(known)}")
        results = Dataset([DataBuffer(0, 0) for _ in outputs])
        for loop in range(max(1, self._options.loop)):
            task = self._model.prepare(given, results, memory(), self._context, allocates=not loop)
            start = time.perf_counter()
            run_now(memory(), task)
            self._summary.exec_time_list.append((start * 1e3, time.perf_counter() * 1e3))
        made = {}
        for number, (tensor, buffer) in enumerate(zip(outputs, results.buffers, strict=True)):
            shape = tuple(results.descs[number].dims) if number in results.descs else self._output_dims(number)
            made[tensor.name] = Tensor.of_block(buffer.address, shape, tensor.dtype.numpy, self._device)
            limit = self._output_sizes[number] if self._output_sizes else None
            if limit is not None and made[tensor.name].size > limit:
                raise RuntimeError(f"output {tensor.name} takes {made[tensor.name].size} bytes, set were {limit}")
        return [made[name] for name in wanted]

    def _output_dims(self, number: int) -> tuple[int, ...]:
        """-1 for what is open; under the gear in use."""
        description = self._model.description
        planned = description.output_dims[number]
        if description.gears is None or planned is None:
            return description.outputs[number].dims
        return description.gears.shape(planned, self._gear)

    def _buffer(self, tensor: Tensor | BaseTensor, description: TensorDescription) -> DataBuffer:
        if isinstance(tensor, BaseTensor):
            return DataBuffer(tensor.buf, tensor.size)
        if tensor.type.name == "memory_host":
            raise RuntimeError(f"the tensor for input {description.name} is on the host: call to_device() first")
        return DataBuffer(tensor.address, tensor.size)

    def _shape_of(self, tensor: TensorDescription) -> tuple[int, ...]:
        return self._shapes[tensor.name] if self._shapes is not None else tensor.dims

    def _described(self, tensor: TensorDescription, shape: Sequence[int]) -> tensor_desc:
        known = all(d >= 0 for d in shape)
        realsize = math.prod(shape) * tensor.dtype.bytes if known else tensor.nbytes
        return tensor_desc(tensor.name, _datatype(tensor), tensor.format, list(shape), tensor.nbytes, realsize)


def _datatype(tensor: TensorDescription) -> dtype:
    try:
        return dtype(str(tensor.dtype.numpy))
    except ValueError:
        raise DeviceError(Code.DATATYPE_INVALID, f"{tensor.name} has dtype {tensor.dtype}") from None
