"""`InferSession`: the Python face of the runtime."""

from __future__ import annotations

import difflib
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from acl_runtime.binding import Binder, Binding
from acl_runtime.dims_of_shapes import TensorSpec, solve_dims
from acl_runtime.executor import Executor
from acl_runtime.model import LoadedModel, load_model
from acl_runtime.run_state import RunState, aligned_empty, new_array
from tensor_types.dtypes import HANDLE
from tensor_types.errors import EnvironmentProblem, InvalidModel, ResourceLimit

_MAX_BINDINGS = 64


@dataclass(frozen=True)
class TensorInfo:
    """A model input or output: shape with ints and, where symbolic, expressions as text; numpy dtype."""

    name: str
    shape: tuple[int | str, ...] | None
    dtype: np.dtype


@dataclass(frozen=True)
class TaskTime:
    """Mean seconds of one task. `device` is 'AI Core' for native code and 'AI CPU' for host code."""

    node: str
    family: str
    device: str
    seconds: float
    grid: int


@dataclass(frozen=True)
class Profile:
    """Times of the tasks of one input, in program order, and of the whole call."""

    tasks: tuple[TaskTime, ...]
    seconds: float

    @property
    def ai_cpu_share(self) -> float:
        """Part of the summed task time that host code took, 0 to 1."""
        total = sum(t.seconds for t in self.tasks)
        return sum(t.seconds for t in self.tasks if t.device == "AI CPU") / total if total else 0.0


class _Bound:
    """A binding and the run states made for it that are not in use."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self.free: list[RunState] = []


class InferSession:
    """A model ready to run. Any number of threads may call `infer` at the same time.

    device_id: number of the device; there is one, 0. path: the `.om` file. threads: worker threads of a run, the
    calling one included. keep: gives every intermediate tensor memory of its own, so that `read` finds it.
    """

    def __init__(self, device_id: int, path: str | os.PathLike[str], threads: int = 1, *, keep: bool = False) -> None:
        if device_id != 0:
            raise EnvironmentProblem(f"there is no device {device_id}", remedy="use device 0")
        self._model: LoadedModel = load_model(path)
        self._binder = Binder(self._model)
        try:
            self._executor = Executor(threads)
        except ValueError as error:
            raise EnvironmentProblem(str(error), where={"flag": "threads"}, remedy="use another number") from error
        self._keep = keep
        self._kept: RunState | None = None
        plan = self._model.plan
        self._inputs = [_spec(self._model, n) for n in plan.inputs]
        self._outputs = [_spec(self._model, n) for n in plan.outputs]
        self._bound: OrderedDict[tuple[tuple[int, ...], ...], _Bound] = OrderedDict()
        self._arenas: list[np.ndarray] = []
        self._lock = threading.Lock()
        copied = {number for number, _ in plan.output_copies}
        self._late = [
            n in copied and plan.values[v].place is not None and plan.values[v].place.region == "object"  # type: ignore[union-attr]
            for n, v in enumerate(plan.outputs)
        ]

    @property
    def compiled_at_run(self) -> int:
        """Programs that had to be compiled when the model was loaded; 0 when the package or the cache had them."""
        return self._model.compiled_at_load

    @property
    def host_class(self) -> str:
        """The host class whose code runs."""
        return self._model.host

    def get_inputs(self) -> list[TensorInfo]:
        """Inputs in order."""
        return [_info(s) for s in self._inputs]

    def get_outputs(self) -> list[TensorInfo]:
        """Outputs in order."""
        return [_info(s) for s in self._outputs]

    @property
    def dims(self) -> dict[str, tuple[int, int | None]]:
        """Named dims of the model and the inclusive ranges that it was converted for (None: unbounded)."""
        return dict(self._model.plan.dims)

    def output_shapes(self, input_shapes: Sequence[Sequence[int]]) -> list[tuple[int, ...] | None]:
        """Shapes of the outputs for these input shapes, None where the run decides. InvalidModel as for `infer`."""
        return list(self._bind(self._shapes(input_shapes)).binding.output_shapes)

    def arena_bytes(self, input_shapes: Sequence[Sequence[int]]) -> int:
        """Bytes that a run with these input shapes takes for intermediate tensors."""
        return self._bind(self._shapes(input_shapes)).binding.arena_bytes

    def infer(
        self,
        inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray],
        outputs: Sequence[np.ndarray | None] | None = None,
    ) -> list[np.ndarray]:
        """Runs the model: arrays in order or by name in, arrays in order out.

        Inputs are never written. Outputs are fresh arrays, or the C-contiguous buffers given in `outputs`. InvalidModel
        (an OpenAtcError) names the input or output that does not fit, what was expected and what to do.
        """
        arrays = self._input_arrays(inputs)
        bound = self._bind(tuple(a.shape for a in arrays))
        state = self._acquire(bound)
        try:
            results = self._output_arrays(bound.binding, outputs, arrays)
            state.execute(arrays, results)
            return results  # type: ignore[return-value]
        finally:
            self._release(bound, state)

    def profile(self, inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray], runs: int = 10) -> Profile:
        """Mean times of each task over `runs` runs, after one to warm up."""
        arrays = self._input_arrays(inputs)
        bound = self._bind(tuple(a.shape for a in arrays))
        state = self._acquire(bound)
        try:
            total = np.zeros(len(self._model.plan.tasks), np.int64)
            span = 0
            for number in range(runs + 1):
                state.execute(arrays, self._output_arrays(bound.binding, None, arrays), timed=True)
                if number:
                    times = state.run.times
                    total += times[:, 1] - times[:, 0]
                    ran = times[times[:, 1] > 0]
                    span += int(ran[:, 1].max() - ran[:, 0].min()) if len(ran) else 0
            tasks = tuple(
                TaskTime(
                    t.node, t.family, "AI CPU" if t.program is None else "AI Core",
                    int(total[n]) / runs / 1e9, int(bound.binding.grid[n]),
                )
                for n, t in enumerate(self._model.plan.tasks)
            )  # fmt: skip
            return Profile(tasks, span / runs / 1e9)
        finally:
            self._release(bound, state)

    def tensor_names(self) -> list[str]:
        """Names of the tensors that `read` can give."""
        return [v.name for v in self._model.plan.values if v.place is not None]

    def read(self, name: str) -> np.ndarray | list[np.ndarray]:
        """A copy of a tensor of the last run, in logical order; a list for a sequence. Only with `keep=True`.

        InvalidModel if the session does not keep tensors, has not run, or the tensor is never in memory.
        """
        state = self._kept
        numbers = {v.name: n for n, v in enumerate(self._model.plan.values)}
        if state is None:
            raise InvalidModel(
                "no tensors were kept", where={"tensor": name}, remedy="open the session with keep=True and infer first"
            )
        try:
            value = state.value(numbers[name])
            return list(value) if isinstance(value, (list, tuple)) else np.array(value)
        except KeyError:
            raise InvalidModel(
                "the tensor is not in memory after a run: it lives inside a kernel, was not computed or does not exist",
                where={"tensor": name},
                remedy="see tensor_names()",
            ) from None

    # Inputs and outputs

    def _input_arrays(self, inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray]) -> list[np.ndarray]:
        specs = self._inputs
        if isinstance(inputs, Mapping):
            wanted = [s.name for s in specs]
            for name in inputs:
                if name not in wanted:
                    near = difflib.get_close_matches(str(name), wanted, 1) or wanted
                    raise InvalidModel(
                        "the model has no such input", where={"tensor": str(name)}, remedy=f"inputs: {', '.join(near)}"
                    )
            missing = [n for n in wanted if n not in inputs]
            if missing:
                raise InvalidModel("an input is missing", where={"tensor": missing[0]}, remedy="give all inputs")
            inputs = [inputs[n] for n in wanted]
        if len(inputs) != len(specs):
            raise InvalidModel(
                f"{len(inputs)} inputs given, the model has {len(specs)}",
                remedy=f"give, in order: {', '.join(s.name for s in specs)}",
            )
        arrays = []
        for spec, given in zip(specs, inputs, strict=True):
            if spec.dtype == HANDLE:  # a sequence is a list, an optional its element or None: nothing to look into
                box = np.empty((), object)
                box[()] = given
                arrays.append(box)
                continue
            array = np.asarray(given)
            if spec.dtype.kind == "handle" and array.dtype.kind in "OUS":
                array = array.astype(object)
            elif array.dtype != spec.dtype.numpy:
                raise InvalidModel(
                    f"the dtype of an input is wrong: got {array.dtype}, expected {spec.dtype.numpy}",
                    where={"tensor": spec.name},
                    remedy=f"convert it with .astype({str(spec.dtype.numpy)!r})",
                )
            arrays.append(array if array.flags.c_contiguous else np.array(array, order="C"))
        return arrays

    def _output_arrays(
        self, binding: Binding, buffers: Sequence[np.ndarray | None] | None, inputs: Sequence[np.ndarray]
    ) -> list[np.ndarray | None]:
        if buffers is not None and len(buffers) != len(self._outputs):
            raise InvalidModel(
                f"{len(buffers)} output buffers given, the model has {len(self._outputs)} outputs",
                remedy="give one per output, or None where a fresh array is wanted",
            )
        results: list[np.ndarray | None] = []
        for number, (spec, shape) in enumerate(zip(self._outputs, binding.output_shapes, strict=True)):
            buffer = None if buffers is None else buffers[number]
            if buffer is not None:
                self._check_buffer(spec, shape, buffer, inputs)
            elif shape is not None and not self._late[number] and spec.dtype.kind != "handle":
                buffer = new_array(shape, spec.dtype.numpy)
            results.append(buffer)
        return results

    def _check_buffer(
        self, spec: TensorSpec, shape: tuple[int, ...] | None, buffer: np.ndarray, inputs: Sequence[np.ndarray]
    ) -> None:
        problem = None
        if not isinstance(buffer, np.ndarray) or buffer.dtype != spec.dtype.numpy:
            problem = f"its dtype is {getattr(buffer, 'dtype', type(buffer).__name__)}, expected {spec.dtype.numpy}"
        elif shape is not None and buffer.shape != shape:
            problem = f"its shape is {list(buffer.shape)}, expected {list(shape)}"
        elif not (buffer.flags.c_contiguous and buffer.flags.writeable):
            problem = "it is not contiguous and writeable"
        elif any(np.may_share_memory(buffer, array) for array in inputs):
            problem = "it shares memory with an input"
        if problem:
            raise InvalidModel(
                f"an output buffer does not fit: {problem}", where={"tensor": spec.name}, remedy="give a fitting buffer"
            )

    # Bindings

    def _shapes(self, shapes: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        if len(shapes) != len(self._inputs):
            raise InvalidModel(
                f"{len(shapes)} shapes given, the model has {len(self._inputs)} inputs", remedy="give one per input"
            )
        return tuple(tuple(s) for s in shapes)

    def _bind(self, shapes: tuple[tuple[int, ...], ...]) -> _Bound:
        with self._lock:
            bound = self._bound.get(shapes)
            if bound is not None:
                self._bound.move_to_end(shapes)
                return bound
        dims = solve_dims(self._inputs, shapes, self._model.plan.dims)
        bound = _Bound(self._binder.bind(dims, self._executor.threads, self._keep))
        with self._lock:
            self._bound[shapes] = bound
            while len(self._bound) > _MAX_BINDINGS:
                self._bound.popitem(last=False)
        return bound

    def _acquire(self, bound: _Bound) -> RunState:
        """A run state with an arena. Arenas belong to the session, so that many shapes do not need many of them."""
        needed = bound.binding.arena_bytes
        with self._lock:
            state = bound.free.pop() if bound.free else None
            if state is not None and any(a is state.arena for a in self._arenas):
                self._arenas = [a for a in self._arenas if a is not state.arena]
                return state
            fitting = [a for a in self._arenas if a.nbytes >= needed]
            arena = min(fitting, key=lambda a: a.nbytes) if fitting else None
            # One that is too small gives way to the larger one.
            spent = arena if arena is not None else (self._arenas[-1] if self._arenas else None)
            self._arenas = [a for a in self._arenas if a is not spent]
        if state is None:
            state = RunState(self._binder, bound.binding, self._executor)
        try:
            state.attach(aligned_empty(needed) if arena is None else arena)
        except MemoryError:
            raise ResourceLimit(
                f"{needed} bytes for intermediate tensors cannot be had", remedy="use smaller input shapes"
            ) from None
        return state

    def _release(self, bound: _Bound, state: RunState) -> None:
        if self._keep:
            self._kept = state  # its memory is not reused: it holds what `read` gives
            return
        state.release()
        with self._lock:
            bound.free.append(state)
            self._arenas.append(state.arena)


def _spec(model: LoadedModel, number: int) -> TensorSpec:
    value = model.plan.values[number]
    return TensorSpec(value.name, value.dtype, value.shape)


def _info(spec: TensorSpec) -> TensorInfo:
    shape = None if spec.shape is None else tuple(d if isinstance(d, int) else str(d) for d in spec.shape)
    return TensorInfo(spec.name, shape, spec.dtype.numpy)
