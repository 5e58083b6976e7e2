"""Work of a conversion in proportion to the nodes: calls of functions are counted, no time is taken."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from atc.pipeline import passes
from atc.plan_input import plan_input
from codegen.kernels import kernels
from codegen.lowering import lower_graph
from codegen.targets import target
from graph_opt.ir import Graph, Value
from graph_opt.ir.infer import infer_graph
from graph_opt.plan import plan_model
from tensor_types.dtypes import F32


def _node(graph: Graph, op: str, name: str, *inputs: Value) -> Value:
    value = graph.add_value(name, F32, None)
    graph.add_node(op, inputs, [value], name=name)
    return value


def chain(graph: Graph, x: Value, count: int) -> None:
    """Products and Relus in a row."""
    weight = graph.add_constant("w", np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32), F32)
    for n in range(count // 2):
        x = _node(graph, "Relu", f"r{n}", _node(graph, "MatMul", f"m{n}", x, weight))
    graph.outputs.append(x)


def wide(graph: Graph, x: Value, count: int) -> None:
    """Many outputs of one input."""
    for n in range(count // 2):
        graph.outputs.append(_node(graph, "Softmax", f"s{n}", _node(graph, "Transpose", f"t{n}", x)))


def joined(graph: Graph, x: Value, count: int) -> None:
    """Many values of one input, alive together, and what joins them."""
    rows = np.random.default_rng(0).standard_normal((count, 16)).astype(np.float32)
    parts = [_node(graph, "Mul", f"v{n}", x, graph.add_constant(f"r{n}", rows[n], F32)) for n in range(count)]
    value = graph.add_value("y", F32, None)
    graph.outputs.append(graph.add_node("Concat", parts, [value], {"axis": 1}).output)


def calls(build: Callable[[Graph, Value, int], None], count: int) -> int:
    graph, host = Graph("g"), target("x86-64-v3")
    x = graph.add_value("x", F32, (4, 16))
    graph.inputs.append(x)
    build(graph, x, count)
    infer_graph(graph)
    counted = 0

    def count_call(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count_call)
    try:
        for step in passes(kernels([host])):
            step.apply(graph)
        plan_model(plan_input(graph, lower_graph(graph, host)))
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.long
@pytest.mark.parametrize("build", [chain, wide, joined])
def test_five_times_the_nodes_is_five_times_the_work(build: Callable[[Graph, Value, int], None]) -> None:
    calls(build, 40)  # caches of what is looked up once
    assert calls(build, 2000) <= 5.5 * calls(build, 400)
