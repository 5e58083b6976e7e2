"""`atc compare`: runs package and onnxruntime on the same inputs and pairs their tensors by the graph's origins."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from acl_runtime import InferSession
from acl_runtime.om import open_package
from atc.comparing.details import detail_of
from atc.comparing.rows import Comparison, Row, difference, verdict_of
from atc.conversion import convert
from atc.golden import Golden, golden_tensors
from atc.inputs import read_files
from atc.isolation import Alone, Isolation
from atc.judging import Isolated, judged, measure
from atc.options import Options
from atc.run import session_inputs
from graph_opt.ir import Graph, Origin
from graph_opt.ir.text import parse as parse_graph
from graph_opt.precision.lists import DEFAULT

_STATES = {"interior": "fused", "folded": "folded", "dead": "dead", "slice": "fused", "scale": "fused"}
"""States of source tensors of which no kernel writes exactly their values."""
_GROWTH = 4
"""How much worse than its inputs a tensor of a quantised model may be before it is at fault itself."""


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
    with tempfile.TemporaryDirectory() as folder:
        if package is None:
            package = Path(folder) / "model.om"
            convert(model, package, Options(input_shape=dict(input_shape or {}), precision_mode=precision_mode))
        session = InferSession(0, package, keep=True)
        graph = parse_graph(bytes(open_package(package).section("graph")).decode())
        feeds = session_inputs(session, package, given, input_shape or {})
        results = dict(zip((o.name for o in session.get_outputs()), session.infer(feeds), strict=True))
        held = {s: o.value for s, o in graph.origins.items() if o.relation in ("same", "cast")}
        wanted = {s: graph.values[v].dtype.numpy for s, v in held.items() if v in graph.values}
        fed = _model_feeds(graph, session, feeds)
        golden = golden_tensors(model, fed, wanted)
        golden = replace(golden, values={**fed, **golden.values})
        expected = {v: golden.values[s] for s, v in held.items() if s in golden.values}
        isolation = Isolation(graph, session, package, expected)
        device = _Device(graph, session, isolation, details)
        rows = [_row(device, source, origin, golden) for source, origin in graph.origins.items()]
        rows = judged(rows, _alone(device, rows, golden), golden.parents, lambda r: device.compute_dtype(r, golden))
    rows = _inherited(rows, golden)
    by_name = {r.source: r for r in rows}
    outputs = []
    for name, value in results.items():
        dtype = graph.values[name].dtype.name
        row = _compared(name, device, name, dtype, value, golden)
        outputs.append(_with_reason(row, by_name.get(name)))
    return Comparison(rows, outputs)


def _alone(device: _Device, rows: Sequence[Row], golden: Golden) -> dict[str, Isolated]:
    """What each compared tensor is on the oracle's inputs, by source tensor."""
    holders: dict[str, list[Row]] = {}
    for row in rows:
        if row.found is not None and row.source in golden.values:
            holders.setdefault(row.holder, []).append(row)
    found: dict[str, Isolated] = {}

    def visit(name: str, alone: Alone) -> None:
        for row in holders.get(name, ()):
            measured = measure(alone, golden.values[row.source], device.compute_dtype(row, golden))
            if measured is not None:
                found[row.source] = measured

    device.isolation.walk(device.ran, visit)
    return found


def _with_reason(output: Row, row: Row | None) -> Row:
    """An output of the model keeps its own verdict; why it has it is what its row says."""
    if row is None:
        return output
    verdict = "fail" if row.verdict == "fail" else output.verdict
    return replace(output, verdict=verdict, note=row.note, isolated=row.isolated, floor=row.floor)


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


class _Device:
    """What the package computed, by the names of its graph."""

    def __init__(self, graph: Graph, session: InferSession, isolation: Isolation, details: bool) -> None:
        self.graph = graph
        self.details = details
        self.isolation = isolation
        self.session = session
        self.in_memory = set(session.tensor_names())
        self.narrow = _narrow(graph)

    def ran(self, name: str) -> bool:
        """False if the tensor belongs to a branch that was not taken."""
        producer = self.graph.values[name].producer
        for condition, expected in () if producer is None else producer.guards:
            if condition.name in self.in_memory and self.ran(condition.name):
                taken = self.session.read(condition.name)
                if bool(np.asarray(taken).reshape(-1)[0]) is not expected:
                    return False
        return True

    def kernel(self, name: str) -> str:
        """Name of the kernel, or operator of the AI CPU task, that writes a value."""
        value = self.graph.values.get(name)
        producer = value.producer if value is not None else None
        return "" if producer is None else self.isolation.kernel(producer)

    def compute_dtype(self, row: Row, golden: Golden) -> str:
        """The dtype whose limits a row has: 'i8' behind quantised activations, else the narrowest float on the way."""
        if "f" not in row.dtype:
            return row.dtype
        return "i8" if row.source in golden.quantised else self.narrow.get(row.holder, row.dtype)


def _row(device: _Device, source: str, origin: Origin, golden: Golden) -> Row:
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
    if value.name not in device.in_memory or not device.ran(value.name):
        return Row(source, "dead", kernel, dtype, None, "pass", "not computed")
    found = device.session.read(value.name)
    if isinstance(found, np.ndarray) and found.ndim == 0 and found[()] is None:
        return Row(source, "dead", kernel, dtype, None, "pass", "not computed")
    if source not in golden.values and source not in golden.unknown:
        return Row(source, "fused", kernel, dtype, None, "pass", "onnxruntime does not show it")
    return _compared(source, device, value.name, dtype, found, golden)


def _narrow(graph: Graph) -> dict[str, str]:
    """The 16-bit float ('bf16' before 'f16') that lies on the way to a value, by name; wider values are left out."""
    found: dict[str, str] = {}
    for node in graph.nodes:
        body = node.subgraphs.get("body")
        near = [v for v in (*node.inputs, *node.outputs, *(body.values.values() if body else ())) if v is not None]
        dtypes = {v.dtype.name for v in near} | {found[v.name] for v in node.inputs if v and v.name in found}
        narrow = next((d for d in ("bf16", "f16") if d in dtypes), None)
        if narrow:
            found.update((v.name, narrow) for v in node.outputs)
    return found


def _compared(name: str, device: _Device, holder: str, dtype: str, value: Any, golden: Golden) -> Row:
    kernel = device.kernel(holder)
    if name in golden.unknown:
        return Row(name, "unknown", kernel, dtype, None, "unknown", golden.unknown[name])
    expected = golden.values.get(name)
    state, note = ("reference", "against its numpy function") if name in golden.stand_ins else ("compared", "")
    if expected is None:
        return Row(name, "compared", kernel, dtype, None, "pass", "onnxruntime gives no value")
    try:
        found = difference(value, expected)
    except ValueError as error:
        return Row(name, state, kernel, dtype, None, "fail", str(error), holder)
    detail = detail_of(value, expected, dtype) if device.details else None
    narrow = device.narrow.get(holder)
    is_float = "f" in dtype
    verdict = verdict_of(found, narrow if narrow and is_float else dtype, name in golden.quantised)
    if verdict == "fail" and narrow and not is_float and not found.mismatched:
        return Row(name, state, kernel, dtype, found, "warn", f"a choice among values rounded to {narrow}", holder,
                   detail=detail)  # fmt: skip
    return Row(name, state, kernel, dtype, found, verdict, "; ".join(filter(None, (note, found.note))), holder,
               detail=detail)  # fmt: skip


def _inherited(rows: list[Row], golden: Golden) -> list[Row]:
    """Interior tensors of quantised models that fail only because what they are computed from differs already: warn.

    A flipped rounding grows from layer to layer without any kernel being wrong. A tensor that is much worse than all
    it is computed from still fails, and so does an output of the model.
    """
    # A zero point dilutes relative errors, so integers do not count.
    floats = (r for r in rows if r.found is not None and not r.found.mismatched and "f" in r.dtype)
    errors = {r.source: r.found.rel_l2 for r in floats if r.found is not None and r.found.rel_l2 is not None}

    def nearest(name: str, seen: set[str]) -> float:
        worst = 0.0
        for parent in golden.parents.get(name, ()):
            if parent in errors:
                worst = max(worst, errors[parent])
            elif parent not in seen:
                seen.add(parent)
                worst = max(worst, nearest(parent, seen))
        return worst

    def judged(row: Row) -> Row:
        if row.verdict != "fail" or row.found is None or row.found.mismatched or row.source not in golden.quantised:
            return row
        if row.note.startswith("at fault") or (row.found.rel_l2 or 0.0) > _GROWTH * nearest(row.source, set()):
            return row
        return replace(row, verdict="warn", note="inherited from roundings before it")

    return [judged(row) for row in rows]
