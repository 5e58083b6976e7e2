"""`atc compare`: runs a package and its oracle on the same inputs and pairs their tensors by the graph's origins."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import onnx

from acl_runtime import InferSession
from acl_runtime.om import open_package
from acl_runtime.package_layout import chip_instance, section
from atc.comparing.details import detail_of
from atc.comparing.device import Device
from atc.comparing.exact import exact_value
from atc.comparing.limits import Limits
from atc.comparing.oracles import Oracle, golden_by_onnxruntime
from atc.comparing.rows import Comparison, Isolated, Measured, Row, difference
from atc.console import Progress
from atc.conversion import convert
from atc.golden import Golden, source_model
from atc.inputs import read_files, seeded
from atc.isolation import Alone, Isolation
from atc.judging import AT_FAULT, acquits, is_off, judge, measure
from atc.options import Options
from atc.package_texts import graph_of
from atc.run import session_inputs
from graph_opt.ir import Graph, Origin
from graph_opt.precision.lists import DEFAULT
from tensor_types.dtypes import from_numpy
from tensor_types.errors import InvalidModel

_STATES = {"interior": "fused", "folded": "folded", "dead": "dead", "slice": "fused", "scale": "fused"}
"""States of source tensors of which no kernel writes exactly their values."""


@dataclass(frozen=True)
class Settings:
    """How to compare. `options` are those of the conversion on the way, where no package is given.

    details: rows tell where their errors are. oracle: what to compare with. chip: the one whose programs are run,
    through the interpreter. taps: interior tensors of kernels are compared too. input_shape: of inputs, for the
    conversion as well; dims: sizes of open dims by name, for inputs that are not given.
    """

    options: Options = field(default_factory=Options)
    limits: Limits = field(default_factory=Limits)
    details: bool = False
    oracle: Oracle = golden_by_onnxruntime
    chip: str | None = None
    taps: bool = False
    input_shape: Mapping[str, Sequence[int]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    progress: Progress = field(default_factory=lambda: Progress(None))


def compare_model(
    model: Path, package: Path | None, files: Sequence[str], input_shape: Mapping[str, Sequence[int]],
    details: bool = False, precision_mode: str = DEFAULT,
) -> Comparison:  # fmt: skip
    """Converts the model when no package is given; every kernel output that holds a source tensor is compared.

    With `details` rows tell where their errors are. `precision_mode` is that of the conversion on the way.
    """
    return compare_arrays(model, package, read_files(files), input_shape, details, precision_mode)


def compare_arrays(
    model: Path,
    package: Path | None,
    given: Mapping[str, np.ndarray],
    input_shape: Mapping[str, Sequence[int]] | None = None,
    details: bool = False,
    precision_mode: str = DEFAULT,
) -> Comparison:
    """The same on arrays; inputs that are not given get seeded values."""
    settings = Settings(Options(precision_mode=precision_mode), details=details, input_shape=dict(input_shape or {}))
    with Comparer(model, package, settings) as comparer:
        return comparer.compare([("", given)])


class Comparer:
    """A package beside the model that it was made from, to be compared on any number of inputs."""

    def __init__(self, model: Path, package: Path | None, settings: Settings) -> None:
        """Converts the model where `package` is None."""
        self.model, self.settings = model, settings
        self.samples: list[tuple[str, dict[str, np.ndarray]]] = []
        """What has been measured: names and all inputs."""
        self._held = ExitStack()
        try:
            if package is None:
                folder = self._held.enter_context(tempfile.TemporaryDirectory())
                package = Path(folder) / "model.om"
                with settings.progress.stage("convert"):
                    convert(model, package, replace(settings.options, input_shape=dict(settings.input_shape)))
            self.package = package
            self.graph = _graph(package, settings.chip)
            self.session = InferSession(0, package, keep=True, chip=settings.chip)
        except BaseException:
            self._held.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def inputs(self, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """All inputs of the package: the given ones, seeded values for the others."""
        states = self.session.state().arrays
        own = {name: array for name, array in given.items() if name not in states}
        settings = self.settings
        return session_inputs(self.session, self.package, own, settings.input_shape, dims=settings.dims)

    @property
    def images(self) -> Sequence[Mapping[str, Any]]:
        """What the package prepares of images, one row an input."""
        return tuple(open_package(self.package).header.get("aipp", ()))

    def compare(self, samples: Sequence[tuple[str, Mapping[str, np.ndarray]]]) -> Comparison:
        """Measures on each of the named inputs and judges."""
        return judge([self.measure(given, name) for name, given in samples], self.settings.limits)

    def measure(self, given: Mapping[str, np.ndarray], sample: str = "") -> Measured:
        """Runs both sides on one input."""
        settings, graph, session = self.settings, self.graph, self.session
        feeds = self.inputs(given)
        self.samples.append((sample, feeds))
        where = f" {sample}" if sample else ""
        with settings.progress.stage(f"run{where}"):
            fed_states = _begin_states(session, given)
            names = [o.name for o in session.get_outputs()]
            results = dict(zip(names, session.infer(feeds), strict=True))
            other_bits = self._other_bits(feeds, results, fed_states)
        held = {s: o.value for s, o in graph.origins.items() if o.relation in ("same", "cast") and o.value is not None}
        wanted = {s: graph.values[v].dtype.numpy for s, v in held.items() if v in graph.values}
        with settings.progress.stage(f"oracle{where}"):
            if settings.taps:
                bodies = [n.subgraphs["body"] for n in graph.nodes if n.op == "Fused"]
                wanted |= {s: b.values[o.value].dtype.numpy for b in bodies for s, o in b.origins.items()
                           if o.relation in ("same", "cast") and o.value in b.values}  # fmt: skip
            fed = _model_feeds(graph, session, feeds) | fed_states
            golden = settings.oracle(self.model, fed, wanted)
        golden = replace(golden, values={**fed, **golden.values})
        with settings.progress.stage(f"compare{where}"):
            measured = self._measured(held, results, golden, sample, fed_states)
        return replace(measured, outputs=tuple(_with_bits(o, other_bits) for o in measured.outputs))

    def _other_bits(
        self, feeds: Mapping[str, np.ndarray], results: Mapping[str, Any], begin: Mapping[str, np.ndarray]
    ) -> set[str]:
        """Outputs that come out otherwise where tensors share memory, as they do in every run but this one."""
        if self.settings.chip is not None:
            return set()  # interpreted twice it would take twice as long
        plain = InferSession(0, self.package)
        plain.state().put(begin)
        again = dict(zip(results, plain.infer(feeds), strict=True))
        return {name for name, value in again.items() if not _same_bytes(value, results[name])}

    def _measured(
        self, held: Mapping[str, str], results: Mapping[str, Any], golden: Golden, sample: str,
        begin: Mapping[str, np.ndarray],
    ) -> Measured:  # fmt: skip
        expected = {v: golden.values[s] for s, v in held.items() if s in golden.values}
        isolation = Isolation(self.graph, self.session, self.package, expected, self.settings.chip)
        device = Device(self.graph, self.session, isolation, self.settings.details, begin)
        rows = [_row(device, source, origin, golden) for source, origin in self.graph.origins.items()]
        alone, exact = self._alone(device, rows, golden)
        golden = replace(golden, values={**golden.values, **exact})
        rows = [
            replace(_of_exact(r, device, golden) if r.source in exact else r, alone=alone.get(r.source, r.alone))
            for r in rows
        ]
        notes: tuple[str, ...] = ()
        if self.settings.taps:
            from atc.comparing.taps import tapped

            rows, notes = tapped(rows, device, golden, self.settings.limits)
        outputs, top1 = [], {}
        for name, value in {**results, **self._ended_states()}.items():
            dtype = self.graph.values[name].dtype.name
            outputs.append(_compared(name, device, name, dtype, value, golden))
            if (share := _same_choice(value, golden.values.get(name))) is not None:
                top1[name] = share
        return Measured(tuple(rows), tuple(outputs), golden.parents, top1, sample, notes)

    def _ended_states(self) -> dict[str, np.ndarray]:
        """What the model's states are after the run, by the names of the outputs that they are to the model."""
        return {last: self.session.state().get(first) for first, last in self.graph.states.items()}

    def _alone(
        self, device: Device, rows: Sequence[Row], golden: Golden
    ) -> tuple[dict[str, Isolated], dict[str, np.ndarray]]:
        """What each compared tensor is on the oracle's inputs, by source tensor; and the float64 values of those where
        the oracle is inexact, which stand for its own."""
        holders: dict[str, list[Row]] = {}
        for row in rows:
            if row.found is not None and row.source in golden.values:
                holders.setdefault(row.holder, []).append(row)
        found: dict[str, Isolated] = {}
        exact: dict[str, np.ndarray] = {}
        limits = self.settings.limits

        def visit(name: str, alone: Alone) -> None:
            for row in holders.get(name, ()):
                limit = limits.of(row.compute_dtype, row.source, row.kernel)
                expected = golden.values[row.source]
                measured = measure(alone.inputs, alone.kernel, alone.floor, alone.wide, expected, limit)
                if measured is None:
                    continue
                may_be_inexact = golden.of_model and not row.quantised
                if limit is not None and may_be_inexact and is_off(measured.isolated, limit):
                    value = exact_value(self._source_model, row.source, golden.values)
                    if value is not None and acquits(value, alone.kernel, expected, limit):
                        exact[row.source] = value
                        measured = measure(alone.inputs, alone.kernel, alone.floor, alone.wide, value, limit)
                if measured is not None:
                    found[row.source] = measured

        device.isolation.walk(device.ran, visit)
        return found, exact

    @cached_property
    def _source_model(self) -> onnx.ModelProto:
        return source_model(self.model)


def _graph(package: Path, chip: str | None) -> Graph:
    """The graph that the package's instance was lowered from."""
    opened = open_package(package)
    own = "graph" if chip is None else section(chip_instance(chip), "graph")
    name = own if own in opened else "graph"
    if chip is not None and section(chip_instance(chip), "plan") not in opened:
        raise InvalidModel(
            f"the package has no graph of {chip}", where={"flag": "--soc"},
            remedy=f"convert the model again with --soc_version={chip}, or leave the package out",
        )  # fmt: skip
    return graph_of(opened, name)


def _begin_states(session: InferSession, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Fills the model's states, with seeded values where none are given; to the model their content is an input."""
    state = session.state()
    begin = {
        name: given[name] if name in given else seeded(name, from_numpy(array.dtype), array.shape, None)
        for name, array in state.arrays.items()
    }
    state.put(begin)
    return begin


def _model_feeds(graph: Graph, session: InferSession, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """What the model itself takes for these inputs of the package: images as the package prepared them, f16 as f32."""
    fed: dict[str, Any] = {}
    for name, array in feeds.items():
        origin = graph.origins.get(name)
        value = graph.values.get(origin.value) if origin is not None and origin.value is not None else None
        if value is None or value.name == name:
            fed[name] = array
        elif value.name in session.tensor_names() and origin is not None and origin.relation == "same":
            fed[name] = session.read(value.name)
        else:
            fed[name] = array.astype(np.float32)
    return fed


def _with_bits(output: Row, other: set[str]) -> Row:
    if output.source not in other:
        return output
    note = f"{AT_FAULT}; where tensors share memory this output has other bits"
    return replace(output, verdict="fail", note="; ".join(filter(None, (note, output.note))))


def _same_bytes(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(_same_bytes, one, other))
    if one is None or other is None:
        return one is other
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype.hasobject:
        return one.shape == other.shape and bool(np.all(one == other))
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def _same_choice(device: Any, golden: Any) -> float | None:
    """Share of the rows along the last axis that have their largest element at the same place; None if this says
    nothing."""
    if not isinstance(device, np.ndarray) or not isinstance(golden, np.ndarray) or device.shape != golden.shape:
        return None
    if device.ndim < 2 or device.shape[-1] < 2 or not device.size or device.dtype.kind not in "fV":
        return None
    one, other = (np.argmax(v.astype(np.float32), axis=-1) for v in (device, golden))
    return float(np.mean(one == other))


def _row(device: Device, source: str, origin: Origin, golden: Golden) -> Row:
    value = device.graph.values.get(origin.value) if origin.value else None
    dtype = value.dtype.name if value is not None else ""
    kernel = device.kernel(value.name) if value is not None else ""
    state = _STATES.get(origin.relation)
    if state is None and value is None:
        state = "dead"
    elif state is None and value is not None and value.is_constant:
        state = "folded"
    if state is not None or value is None:
        return Row(source, state or "dead", kernel, dtype, None, "pass", holder=value.name if value else "")
    if value.name in device.overwritten:
        return Row(source, "dead", kernel, dtype, None, "pass", "a version of a state, overwritten in place")
    if value.name not in device.in_memory or not device.ran(value.name):
        return Row(source, "dead", kernel, dtype, None, "pass", "not computed")
    found = device.session.read(value.name)
    if isinstance(found, np.ndarray) and found.ndim == 0 and found[()] is None:
        return Row(source, "dead", kernel, dtype, None, "pass", "not computed")
    if source not in golden.values and source not in golden.unknown:
        return Row(source, "fused", kernel, dtype, None, "pass", f"{golden.name} does not show it")
    return _compared(source, device, value.name, dtype, found, golden)


def _of_exact(row: Row, device: Device, golden: Golden) -> Row:
    """The row of a tensor that the oracle has inexactly, against its value in float64."""
    found = difference(device.session.read(row.holder), golden.values[row.source], "float64")
    note = f"{golden.name} is inexact here: against float64"
    return replace(row, found=found, note="; ".join(filter(None, (note, row.note))))


def _compared(name: str, device: Device, holder: str, dtype: str, value: Any, golden: Golden) -> Row:
    """The row of a tensor that was computed; numbers are judged later."""
    kernel = device.kernel(holder)
    if name in golden.unknown:
        return Row(name, "unknown", kernel, dtype, None, "unknown", golden.unknown[name])
    expected = golden.values.get(name)
    state, note = ("reference", "against its numpy function") if name in golden.stand_ins else ("compared", "")
    if expected is None:
        return Row(name, "compared", kernel, dtype, None, "pass", f"{golden.name} gives no value")
    value, unused = device.rows_in_use(holder, value, expected)
    try:
        found = difference(value, expected, golden.name)
    except ValueError as error:
        return Row(name, state, kernel, dtype, None, "fail", str(error), holder)
    detail = detail_of(value, expected, dtype) if device.details else None
    note = "; ".join(filter(None, (note, unused, found.note)))
    return Row(name, state, kernel, dtype, found, "", note, holder, detail=detail, narrow=device.narrow.get(holder, ""),
               quantised=name in golden.quantised)  # fmt: skip
