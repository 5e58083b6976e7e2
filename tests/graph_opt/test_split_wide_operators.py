"""Sums of very many tensors: one node becomes a tree, and the numbers stay."""

from __future__ import annotations

import numpy as np
import pytest

from acl_runtime.aicpu import evaluate
from graph_opt.ir import Graph
from graph_opt.simplify import SplitWideOperators
from tensor_types.dtypes import F32


def _graph(op: str, count: int) -> Graph:
    graph = Graph("g")
    graph.inputs += [graph.add_value(f"x{i}", F32, (4,)) for i in range(count)]
    y = graph.add_value("y", F32, (4,))
    graph.add_node(op, list(graph.inputs), [y], name="wide")
    graph.outputs.append(y)
    return graph


@pytest.mark.parametrize("op", ["Sum", "Max", "Min"])
@pytest.mark.parametrize("count", [65, 257, 1500])
def test_a_wide_operator_becomes_a_tree(op: str, count: int) -> None:
    graph = _graph(op, count)
    assert SplitWideOperators().apply(graph)
    assert max(len(n.inputs) for n in graph.nodes) <= 16
    data = np.random.default_rng(0).integers(-9, 9, (count, 4)).astype(np.float32)
    known = {f"x{i}": row for i, row in enumerate(data)}
    for node in graph.nodes:
        known[node.output.name] = evaluate(node.op, node.attrs, [known[v.name] for v in node.inputs])[0]
    wanted = {"Sum": data.sum(0), "Max": data.max(0), "Min": data.min(0)}[op]
    np.testing.assert_array_equal(known[graph.outputs[0].name], wanted)


def test_what_fits_stays() -> None:
    assert not SplitWideOperators().apply(_graph("Sum", 64))
