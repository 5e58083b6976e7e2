"""`InferSession`: the Python face of the runtime."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from acl_runtime.binding import Binding
from acl_runtime.dims_of_shapes import TensorSpec
from acl_runtime.executor import Executor
from acl_runtime.model import LoadedModel, load_model
from acl_runtime.model_runs import ModelRuns
from acl_runtime.plan_format import PlanValue
from acl_runtime.run_state import RunState
from tensor_types.dims import evaluate, names
from tensor_types.dtypes import HANDLE
from tensor_types.errors import EnvironmentProblem, InvalidModel


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


class InferSession:
    """A model ready to run. Any number of threads may call `infer` at the same time.

    device_id: number of the device; there is one, 0. path: the `.om` file. threads: worker threads of a run, the
    calling one included. keep: gives every intermediate tensor memory of its own, so that `read` finds it.
    """

    def __init__(self, device_id: int, path: str | os.PathLike[str], threads: int = 1, *, keep: bool = False) -> None:
        if device_id != 0:
            raise EnvironmentProblem(f"there is no device {device_id}", remedy="use device 0")
        self._model: LoadedModel = load_model(path)
        try:
            executor = Executor(threads)
        except ValueError as error:
            raise EnvironmentProblem(str(error), where={"flag": "threads"}, remedy="use another number") from error
        self._keep = keep
        self._kept: list[RunState] = []
        self._runs = ModelRuns(self._model, executor, keep)
        self._inputs = [_spec(v) for v in self._model.plan.inputs]
        self._outputs = [_spec(v) for v in self._model.plan.outputs]

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
        dims = self._bind(input_shapes).dims
        return [
            None if s.shape is None or not set().union(*map(names, s.shape)) <= dims.keys()
            else tuple(evaluate(d, dims) for d in s.shape)
            for s in self._outputs
        ]  # fmt: skip

    def arena_bytes(self, input_shapes: Sequence[Sequence[int]]) -> int:
        """Bytes that a run with these input shapes takes for intermediate tensors, those of late sizes left out."""
        return self._bind(input_shapes).arena_bytes

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
        results, states = self._runs.execute(arrays, self._buffers(outputs, arrays))
        self._done(states)
        return results

    def profile(self, inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray], runs: int = 10) -> Profile:
        """Mean times of each task over `runs` runs, after one to warm up."""
        arrays = self._input_arrays(inputs)
        tasks = [t for segment in self._model.segments for t in segment.plan.tasks]
        total = np.zeros(len(tasks), np.int64)
        grids: list[int] = []
        span = 0
        for number in range(runs + 1):
            _, states = self._runs.execute(arrays, self._buffers(None, arrays), timed=True)
            if number:
                times = np.concatenate([s.run.times for s in states])
                total += times[:, 1] - times[:, 0]
                ran = times[times[:, 1] > 0]
                span += int(ran[:, 1].max() - ran[:, 0].min()) if len(ran) else 0
            grids = [int(g) for s in states for g in s.run.records["grid"]]
            self._done(states)
        rows = tuple(
            TaskTime(t.node, t.family, "AI CPU" if t.program is None else "AI Core", int(ns) / runs / 1e9, grid)
            for t, ns, grid in zip(tasks, total, grids, strict=True)
        )
        return Profile(rows, span / runs / 1e9)

    def tensor_names(self) -> list[str]:
        """Names of the tensors that `read` can give."""
        placed = (v.name for segment in self._model.segments for v in segment.plan.values if v.place is not None)
        return list(dict.fromkeys(placed))

    def read(self, name: str) -> np.ndarray | list[np.ndarray]:
        """A copy of a tensor of the last run, in logical order; a list for a sequence. Only with `keep=True`.

        InvalidModel if the session does not keep tensors, has not run, or the tensor is never in memory.
        """
        if not self._kept:
            raise InvalidModel(
                "no tensors were kept", where={"tensor": name}, remedy="open the session with keep=True and infer first"
            )
        for state in self._kept:  # the first segment that has a tensor is the one that makes it
            for number, value in enumerate(state.plan.values):
                if value.name == name and value.place is not None:
                    found = state.value(number)
                    return list(found) if isinstance(found, (list, tuple)) else np.array(found)
        raise InvalidModel(
            "the tensor is not in memory after a run: it lives inside a kernel, was not computed or does not exist",
            where={"tensor": name},
            remedy="see tensor_names()",
        )

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

    def _buffers(
        self, buffers: Sequence[np.ndarray | None] | None, inputs: Sequence[np.ndarray]
    ) -> Sequence[np.ndarray | None]:
        """The caller's output buffers, or None for each, checked as far as can be before their shapes are known."""
        if buffers is None:
            return [None] * len(self._outputs)
        if len(buffers) != len(self._outputs):
            raise InvalidModel(
                f"{len(buffers)} output buffers given, the model has {len(self._outputs)} outputs",
                remedy="give one per output, or None where a fresh array is wanted",
            )
        for spec, buffer in zip(self._outputs, buffers, strict=True):
            problem = None
            if buffer is None:
                continue
            if not isinstance(buffer, np.ndarray) or buffer.dtype != spec.dtype.numpy:
                problem = f"its dtype is {getattr(buffer, 'dtype', type(buffer).__name__)}, expected {spec.dtype.numpy}"
            elif not (buffer.flags.c_contiguous and buffer.flags.writeable):
                problem = "it is not contiguous and writeable"
            elif any(np.may_share_memory(buffer, array) for array in inputs):
                problem = "it shares memory with an input"
            if problem:
                raise InvalidModel(
                    f"an output buffer does not fit: {problem}",
                    where={"tensor": spec.name},
                    remedy="give a fitting buffer",
                )
        return buffers

    def _done(self, states: list[RunState]) -> None:
        if self._keep:
            self._kept = states
        else:
            self._runs.leave(states)

    def _bind(self, shapes: Sequence[Sequence[int]]) -> Binding:
        if len(shapes) != len(self._inputs):
            raise InvalidModel(
                f"{len(shapes)} shapes given, the model has {len(self._inputs)} inputs", remedy="give one per input"
            )
        return self._runs.bind(tuple(tuple(s) for s in shapes))


def _spec(value: PlanValue) -> TensorSpec:
    return TensorSpec(value.name, value.dtype, value.shape)


def _info(spec: TensorSpec) -> TensorInfo:
    shape = None if spec.shape is None else tuple(d if isinstance(d, int) else str(d) for d in spec.shape)
    return TensorInfo(spec.name, shape, spec.dtype.numpy)
