"""`atc compare`: runs package and onnxruntime on the same inputs and pairs their tensors by the graph's origins."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from acl_runtime import InferSession
from acl_runtime.om import open_package
from atc.compare import Comparison, Row, difference, golden_outputs, verdict_of
from atc.conversion import convert
from atc.inputs import read_files
from atc.run import session_inputs
from graph_opt.ir import Graph, Origin
from graph_opt.ir.text import parse as parse_graph

_STATES = {"interior": "fused", "folded": "folded", "dead": "dead"}


def compare_model(
    model: Path, package: Path | None, files: Sequence[str], input_shape: Mapping[str, Sequence[int]]
) -> Comparison:
    """Converts the model when no package is given; every kernel output that holds a source tensor is compared."""
    return compare_arrays(model, package, read_files(files), input_shape)


def compare_arrays(
    model: Path,
    package: Path | None,
    given: Mapping[str, np.ndarray],
    input_shape: Mapping[str, Sequence[int]] | None = None,
) -> Comparison:
    """The same on arrays."""
    with tempfile.TemporaryDirectory() as folder:
        if package is None:
            package = Path(folder) / "model.om"
            convert(model, package, input_shape=input_shape or None)
        session = InferSession(0, str(package), keep=True)
        graph = parse_graph(bytes(open_package(package).section("graph")).decode())
        feeds = session_inputs(session, package, given, input_shape or {})
        results = dict(zip((o.name for o in session.get_outputs()), session.infer(feeds), strict=True))
        golden = golden_outputs(model, feeds, [s for s, o in graph.origins.items() if o.relation in ("same", "cast")])
        rows = [_row(graph, source, origin, session, golden) for source, origin in graph.origins.items()]
    outputs = []
    for name, value in results.items():
        if name in golden:
            found = difference(_as(value, golden[name]), golden[name])
            dtype = graph.values[name].dtype.name if name in graph.values else "f32"
            outputs.append(Row(name, "compared", _kernel(graph, name), dtype, found, verdict_of(found, dtype)))
    return Comparison(rows, outputs)


def _row(
    graph: Graph, source: str, origin: Origin, session: InferSession, golden: Mapping[str, np.ndarray]
) -> Row:
    holder = origin.value
    value = graph.values.get(holder) if holder else None
    dtype = value.dtype.name if value is not None else ""
    kernel = _kernel(graph, holder) if holder else ""
    state = _STATES.get(origin.relation)
    if state is None and (value is None or value.is_constant):
        state = "folded"
    if state is None and source not in golden:
        state = "fused"  # inside a branch: onnxruntime shows no tensor of a subgraph
    if state is not None or holder is None or origin.relation not in ("same", "cast"):
        return Row(source, state or "fused", kernel, dtype, None, "pass")
    device = session.read(holder)
    if device is None:
        return Row(source, "dead", kernel, dtype, None, "pass")
    expected = golden[source]
    if device.shape != expected.shape:
        raise ValueError(f"{source}: shape {device.shape}, onnxruntime has {expected.shape}")
    found = difference(_as(device, expected), expected)
    return Row(source, "compared", kernel, dtype, found, verdict_of(found, dtype))


def _as(value: np.ndarray, like: np.ndarray) -> np.ndarray:
    return value if value.dtype == like.dtype or like.dtype == object else value.astype(like.dtype)


def _kernel(graph: Graph, name: str) -> str:
    value = graph.values.get(name)
    producer = value.producer if value is not None else None
    if producer is None:
        return ""
    return str(producer.attrs.get("family", producer.op))


def write_csv(path: Path, found: Comparison) -> None:
    """One line a source tensor."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, ["source", "kernel", "dtype", "state", "cosine", "rel_l2", "max_abs", "verdict"])
        writer.writeheader()
        writer.writerows(row.as_dict() for row in found.rows)
