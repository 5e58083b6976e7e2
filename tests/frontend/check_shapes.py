"""Compares the inferred dtype and shape of every tensor with what onnxruntime makes for concrete inputs.

    python -m tests.frontend.check_shapes [model of list A ...]

checks each model at two settings of its free dims. A dim that only the data decides, and a rank that is not known,
are counted, not compared.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from frontend import read_model
from graph_opt.ir import Graph
from models import registry
from tensor_types.dims import evaluate, names

_SILENT = 4


@dataclass
class Comparison:
    """`wrong` holds one line per tensor that differs; `open` names tensors whose shape inference leaves open."""

    compared: int = 0
    wrong: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)


def run(model: onnx.ModelProto | Path, feeds: Mapping[str, np.ndarray], wanted: list[str] | None = None) -> list:
    """Outputs under onnxruntime, its own optimisations off."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = _SILENT
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    given = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    return session.run(wanted, dict(feeds))


def compare(graph: Graph, model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Comparison:
    """`model` is the source of `graph`; every tensor that its nodes make becomes an output."""
    probed = onnx.ModelProto()
    probed.CopyFrom(model)
    del probed.graph.output[:]
    made = [name for node in probed.graph.node for name in node.output if name in graph.origins]
    probed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    found = Comparison()
    extents: dict[str, int] = {}
    for value in graph.inputs:
        for extent, actual in zip(value.shape or (), np.shape(feeds[value.name]), strict=True):
            if not isinstance(extent, int):
                extents[str(extent)] = actual
    for name, array in zip(made, run(probed, feeds, made), strict=True):
        origin = graph.origins[name]
        if origin.value is None or array is None or isinstance(array, list):
            continue
        value = graph.values[origin.value]
        if value.dtype.kind != "handle" and value.dtype.numpy != array.dtype:
            found.wrong.append(f"{value} by {value.producer}: actually {array.dtype}")
        elif value.shape is None:
            found.open.append(name)
        elif len(value.shape) != array.ndim:
            found.wrong.append(f"{value} by {value.producer}: actually of shape {array.shape}")
        else:
            known = [names(extent) <= extents.keys() for extent in value.shape]
            for extent, actual, sure in zip(value.shape, array.shape, known, strict=True):
                if sure and evaluate(extent, extents) != actual:
                    found.wrong.append(f"{value} by {value.producer}: actually of shape {array.shape}")
                    break
            if not all(known):
                found.open.append(name)
        found.compared += 1
    return found


def check_listed(name: str) -> Comparison:
    """One model of list A at its own setting and with every free dim changed."""
    path = registry.get(name)
    graph, proto = read_model(path), onnx.load(path)
    own = registry.spec(name).dims
    # Multiples of 32 stay multiples of 32: networks of images need them.
    other = {key: size + 32 if size % 32 == 0 else size + 1 for key, size in own.items()}
    total = Comparison()
    for dims in (own, other):
        found = compare(graph, proto, registry.inputs(name, **dims))
        total.compared += found.compared
        total.wrong += found.wrong
        total.open += found.open
        if not own:
            break
    return total


def main(names_: list[str]) -> int:
    failed = 0
    for name in names_ or registry.names():
        found = check_listed(name)
        failed += bool(found.wrong)
        print(f"{name}: {found.compared} tensors, {len(found.wrong)} wrong, {len(found.open)} open")
        for line in found.wrong[:5]:
            print(f"  {line}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
