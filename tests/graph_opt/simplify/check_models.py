"""Compares what onnxruntime gives for a model as it is and for the graph after reading and simplifying.

    python -m tests.graph_opt.simplify.check_models [model of list A ...]
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import onnxruntime

from acl_runtime.aicpu import evaluate
from frontend import read_model
from graph_opt.ir.passes import Pass, run_passes
from graph_opt.simplify import (
    ComposeReshapes,
    EliminateCommonSubexpressions,
    EliminateDeadCode,
    FlattenIf,
    FoldConstants,
    FoldShapes,
    MergeTransposes,
    RemoveIdentities,
    SelectBranches,
    SimplifyArithmetic,
)
from models import registry
from tests.graph_opt.simplify.graph_to_onnx import run

ONCE: tuple[Pass, ...] = (
    FoldShapes(), FoldConstants(evaluate), RemoveIdentities(), SelectBranches(), SimplifyArithmetic(),
    ComposeReshapes(), MergeTransposes(), EliminateCommonSubexpressions(), EliminateDeadCode(),
)  # fmt: skip


def main(names: list[str]) -> int:
    failures = 0
    for name in names or registry.names():
        path = registry.get(name)
        graph = read_model(path)
        before = len(graph.nodes)
        run_passes(graph, [*ONCE, FlattenIf(), *ONCE], verify=True)
        feeds = registry.MODELS[name].make_inputs(np.random.default_rng(1), **registry.MODELS[name].dims)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        expected = session.run([v.name for v in graph.outputs], feeds)
        found = run(graph, feeds)
        errors = []
        for value, wanted in zip(graph.outputs, expected, strict=True):
            scale = np.abs(wanted).max(initial=1e-30)
            errors.append(float(np.abs(found[value.name].astype(np.float64) - wanted).max(initial=0) / scale))
        failures += max(errors) > 1e-5
        ops = ", ".join(f"{count} {op}" for op, count in Counter(n.op for n in graph.nodes).most_common())
        print(f"{name}: {before} -> {len(graph.nodes)} nodes, worst relative error {max(errors):.1e}; {ops}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
