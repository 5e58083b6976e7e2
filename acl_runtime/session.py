"""`InferSession`: the Python face of the runtime."""

from __future__ import annotations

import difflib
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from acl_runtime.binding import Binding
from acl_runtime.dims_of_shapes import TensorSpec
from acl_runtime.executor import Executor
from acl_runtime.internal_error import coded_errors, raise_coded
from acl_runtime.isolated_tasks import IsolatedTasks
from acl_runtime.model import LoadedModel, load_model
from acl_runtime.model_runs import ModelRuns
from acl_runtime.model_source import Source, package_file
from acl_runtime.plan_format import ModelPlan, PlanRequirement, PlanValue
from acl_runtime.profile import Profile, TaskTime
from acl_runtime.run_state import RunState
from acl_runtime.state import State
from tensor_types.dims import evaluate, names
from tensor_types.dtypes import HANDLE
from tensor_types.errors import EnvironmentProblem, InvalidModel, OpenAtcError


@dataclass(frozen=True)
class TensorInfo:
    """A model input or output: shape with ints and, where symbolic, expressions as text; numpy dtype."""

    name: str
    shape: tuple[int | str, ...] | None
    dtype: np.dtype


class InferSession:
    """A model ready to run. Any number of threads may call `infer` at the same time.

    device_id: number of the device; there is one, 0. path: the `.om` file or its bytes; an ONNX file, or its bytes, is
    converted first. threads: worker threads of a run, the calling one included. keep: gives every intermediate tensor
    memory of its own, so that `read` finds it. chip: runs the programs that the package holds for this chip, through
    the interpreter: slow, and exact in meaning.
    """

    def __init__(
        self, device_id: int, path: Source, threads: int = 1, *, keep: bool = False, chip: str | None = None
    ) -> None:
        if device_id != 0:
            raise EnvironmentProblem(f"there is no device {device_id}", remedy="use device 0")
        self._open: tuple[LoadedModel, ModelRuns] | None = None
        self._inputs: list[TensorSpec] = []
        self._outputs: list[TensorSpec] = []
        with coded_errors(), package_file(path, chip) as package:
            self._load(package, threads, keep, chip)

    def _load(self, path: str | os.PathLike[str], threads: int, keep: bool, chip: str | None) -> None:
        model = load_model(path, chip)
        try:
            executor = Executor(threads)
        except ValueError as error:
            raise EnvironmentProblem(str(error), where={"flag": "threads"}, remedy="use another number") from error
        self._keep = keep
        self._kept: list[RunState] = []
        self._open = model, ModelRuns(model, executor, keep)
        self._pasts = frozenset(a for g in model.plan.growing for a, _ in g.pairs)
        """Inputs that may come with room between their rows."""
        self._inputs = [_spec(v) for v in model.plan.inputs]
        self._outputs = [_spec(v) for v in model.plan.outputs]
        self._dtypes = [None if s.dtype.kind == "handle" else np.dtype(s.dtype.numpy) for s in self._inputs]
        model.makers.start()

    def close(self) -> None:
        """Gives model, threads and memory back; who calls `infer` afterwards gets InvalidModel. May be called twice."""
        self._open = None
        self._kept = []

    def __enter__(self) -> InferSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        ends = (", ".join(f"{s.name}: {s.dtype.name}{s.shown()}" for s in e) for e in (self._inputs, self._outputs))
        return f"<InferSession {' -> '.join(ends)}{'' if self._open else ', closed'}>"

    @property
    def _model(self) -> LoadedModel:
        return self._opened()[0]

    @property
    def _runs(self) -> ModelRuns:
        return self._opened()[1]

    def _opened(self) -> tuple[LoadedModel, ModelRuns]:
        if self._open is None:
            raise InvalidModel("the session is closed", remedy="open another one")
        return self._open

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

    def state(self) -> State:
        """What the model keeps from run to run when `infer` is given nothing else; empty for a model without states."""
        return self._runs.state

    def new_state(self) -> State:
        """Another set of the model's states, all zeros, to be given to `infer`."""
        return State(self._runs.states)

    @property
    def dims(self) -> dict[str, tuple[int, int | None]]:
        """Named dims of the model and the inclusive ranges that it was converted for (None: unbounded)."""
        return dict(self._model.plan.dims)

    @property
    def requirements(self) -> list[PlanRequirement]:
        """What the model and its kernels require of the sizes of named dims, whatever its branches."""
        return [r for segment in self._model.segments for r in segment.requirements()]

    @property
    def plan(self) -> ModelPlan:
        """The checked plan that runs."""
        return self._model.plan

    def dims_of(self, input_shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """The named dims that these input shapes give. InvalidModel as for `infer`."""
        return dict(self._bind(input_shapes).dims)

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
        state: State | None = None,
    ) -> list[np.ndarray]:
        """Runs the model: arrays in order or by name in, arrays in order out.

        A model with states reads and writes `state`, which `new_state` gives, or without one that of the session.
        Inputs are never written. Outputs are fresh arrays, or the C-contiguous buffers given in `outputs`. InvalidModel
        (an OpenAtcError) names the input or output that does not fit, what was expected and what to do.
        """
        # No context manager here: a run of a small model takes as long as ten of them.
        try:
            model, runs = self._opened()
            model.package.require_whole()
            arrays = self._input_arrays(inputs)
            results, states = runs.execute(arrays, self._buffers(outputs, arrays), state=state)
            self._done(states)
            return results
        except OpenAtcError:
            raise
        except Exception as error:
            raise_coded(error)

    def prepared(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray | None]
    ) -> Callable[[], list[np.ndarray]]:
        """A function that does what `infer` does with these arrays, as often as it is called.

        Arrays are checked once, so they must keep shape, dtype and place. Faster than `infer` where every output has
        its buffer and the model is one segment without states.
        """
        model, runs = self._opened()
        arrays = self._input_arrays(inputs)
        buffers = self._buffers(outputs, arrays)
        run = runs.prepared(arrays, buffers)
        if run is None:
            return lambda: self.infer(arrays, buffers)

        def execute() -> list[np.ndarray]:
            try:
                model.package.require_whole()
                return run()
            except OpenAtcError:
                raise
            except Exception as error:
                raise_coded(error)

        return execute

    def infer_timed(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray | None] | None = None
    ) -> tuple[list[np.ndarray], list[TaskTime], np.ndarray]:
        """As `infer`, and the tasks without times, with their calls as `Profile` has them."""
        with coded_errors():
            self._model.package.require_whole()
            arrays = self._input_arrays(inputs)
            results, states = self._runs.execute(arrays, self._buffers(outputs, arrays), timed=True)
            rows, calls = _task_rows(states), _calls(states)
            self._done(states)
            return results, rows, calls

    def profile(self, inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray], runs: int = 10) -> Profile:
        """Times of each task in the fastest of `runs` runs, after one to warm up.

        Runs that measure and runs that do not take turns, so that the cost of measuring is known.
        """
        arrays = self._input_arrays(inputs)
        plain, timed, spans, traces = [], [], [], []
        times = []
        for number in range(2 * runs + 2):
            measures = bool(number % 2)
            started = time.perf_counter()
            _, states = self._runs.execute(arrays, self._buffers(None, arrays), timed=measures)
            took = time.perf_counter() - started
            if number > 1 and measures:
                timed.append(took)
                times.append(np.concatenate([s.run.times for s in states]))
                ran = times[-1][times[-1][:, 1] > 0]
                spans.append(int(ran[:, 1].max() - ran[:, 0].min()) if len(ran) else 0)
                traces.append(_calls(states))
            elif number > 1:
                plain.append(took)
            tasks = _task_rows(states)
            dims = {name: n for s in states if s.binding is not None for name, n in s.binding.dims.items()}
            self._done(states)
        best = int(np.argmin(spans))
        lengths = np.array([t[:, 1] - t[:, 0] for t in times]) / 1e9
        rows = tuple(
            replace(task, seconds=float(seconds), median=float(median))
            for task, seconds, median in zip(tasks, lengths[best], np.median(lengths, 0), strict=True)
        )
        middle = [statistics.median(figures) for figures in (plain, timed)]
        return Profile(rows, spans[best] / 1e9, traces[best], *middle, dims)

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

    def isolated_tasks(self) -> IsolatedTasks:
        """The tasks of the last run, to be run again on other inputs. Only with `keep=True`. InvalidModel."""
        if not self._kept:
            raise InvalidModel("no tensors were kept", remedy="open the session with keep=True and infer first")
        return IsolatedTasks(self._kept)

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
        arrays: list[np.ndarray] = []
        for number, (spec, given, dtype) in enumerate(zip(specs, inputs, self._dtypes, strict=True)):
            if type(given) is np.ndarray and given.dtype is dtype:
                keeps = given.flags.c_contiguous or number in self._pasts
                arrays.append(given if keeps else np.array(given, order="C"))
                continue
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
            keeps = array.flags.c_contiguous or number in self._pasts
            arrays.append(array if keeps else np.array(array, order="C"))
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


def _task_rows(states: Sequence[RunState]) -> list[TaskTime]:
    """The tasks of an execution, without times."""
    rows = []
    for number, state in enumerate(states):
        binding = state.binding
        assert binding is not None
        for task, grid in zip(state.plan.tasks, state.run.records["grid"], strict=True):
            if task.program is None:
                rows.append(TaskTime(task.node, task.op, "AI CPU", 0.0, int(grid), number))
                continue
            facts = state.binder.segment.kernel(task).facts
            dims = {
                name: evaluate(v, binding.dims) for (name, _, _), v in zip(facts.dims, task.dims, strict=True)
                if names(v) <= binding.dims.keys()
            }  # fmt: skip
            nbytes = sum(evaluate(b, dims) for _, b in facts.params if names(b) <= dims.keys())
            row = TaskTime(task.node, task.family, "AI Core", 0.0, int(grid), number, task.program)
            rows.append(replace(row, dims=tuple(dims.items()), bytes=nbytes))
    return rows


def _calls(states: Sequence[RunState]) -> np.ndarray:
    """Kernel calls and tasks of the AI CPU of an execution, by begin; tasks are counted through the segments."""
    found, first = [], 0
    for state in states:
        calls = state.run.events.copy()
        calls["task"] += first
        host = [n for n, t in enumerate(state.plan.tasks) if t.program is None and state.run.times[n, 1]]
        of_host = np.zeros(len(host), calls.dtype)
        of_host["task"] = np.array(host, np.int64) + first
        of_host["begin"], of_host["end"] = state.run.times[host, 0], state.run.times[host, 1]
        found += [calls, of_host]
        first += len(state.plan.tasks)
    calls = np.concatenate(found)
    return calls[np.argsort(calls["begin"], kind="stable")]
