"""Compares what onnxruntime gives for a model as it is and for the graph after reading and simplifying.

Each model of list A at the sizes for figures, and at others for its free dims.

    python -m tests.graph_opt.simplify.check_models [model of list A ...]
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime

from atc.pipeline import simplification
from frontend import read_model
from graph_opt.ir import Graph
from graph_opt.ir.passes import Pass, run_passes
from graph_opt.simplify import FlattenIf, MergeTransposes
from models import registry
from tests.graph_opt.simplify.graph_to_onnx import run

ONCE: tuple[Pass, ...] = (*simplification(), MergeTransposes())


def worst_error(graph: Graph, path: Path, feeds: dict[str, np.ndarray]) -> float:
    """Largest difference of any output, relative to the largest number in it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    expected = session.run([v.name for v in graph.outputs], feeds)
    found = run(graph, feeds)
    worst = 0.0
    for value, wanted in zip(graph.outputs, expected, strict=True):
        scale = np.abs(wanted).max(initial=1e-30)
        worst = max(worst, float(np.abs(found[value.name].astype(np.float64) - wanted).max(initial=0) / scale))
    return worst


def main(names: list[str]) -> int:
    failures = 0
    for name in names or registry.names():
        path, dims = registry.get(name), registry.MODELS[name].dims
        graph = read_model(path)
        before = len(graph.nodes)
        run_passes(graph, [*ONCE, FlattenIf(), *ONCE], verify=True)
        other = {key: size + 32 if size % 32 == 0 else size + 1 for key, size in dims.items()}
        for sizes in (dims, other) if dims else (dims,):
            error = worst_error(graph, path, registry.inputs(name, **sizes))
            failures += error > 1e-5
            print(f"{name} {sizes}: {before} -> {len(graph.nodes)} nodes, worst relative error {error:.1e}", flush=True)
        print("  " + ", ".join(f"{count} {op}" for op, count in Counter(n.op for n in graph.nodes).most_common()))
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
