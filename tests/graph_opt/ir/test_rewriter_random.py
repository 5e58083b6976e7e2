"""Random graphs under random fusing, inlining, renaming and replacing: still valid, and still the same function."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_opt.ir.core import Graph, Origin, Value
from graph_opt.ir.infer import infer_graph
from graph_opt.ir.order import Outputs
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.text import parse, to_text
from graph_opt.ir.verifier import verify
from tensor_types.dims import dim
from tensor_types.dtypes import F32

MEANING: dict[str, Callable[..., np.ndarray]] = {
    "Neg": np.negative, "Abs": np.abs, "Tanh": np.tanh, "Add": np.add, "Sub": np.subtract, "Mul": np.multiply,
    "Identity": np.array, "Relayout": np.array,
}  # fmt: skip
UNARY, BINARY = ["Neg", "Abs", "Tanh"], ["Add", "Sub", "Mul"]


def evaluate(graph: Graph, given_values: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs, by numpy."""
    found: dict[Value, np.ndarray] = dict(zip(graph.inputs, given_values, strict=True))
    found.update((v, v.data) for v in graph.constants() if v.data is not None)
    for node in graph.nodes:
        operands = [found[v] for v in node.inputs if v is not None]
        body = node.subgraphs.get("body")
        results = [MEANING[node.op](*operands)] if body is None else evaluate(body, operands)
        found.update(zip(node.outputs, results, strict=True))
    return [found[v] for v in graph.outputs]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    graph = Graph("g", dims={"n": (1, None)})
    graph.inputs = [graph.add_value(f"x{i}", F32, (dim("n"), 3)) for i in range(2)]
    pool = [
        *graph.inputs,
        graph.add_constant("two", np.float32(2), F32),
        graph.add_constant("w", np.float32([1, 2, 3]), F32),
    ]
    for number in range(draw(st.integers(2, 14))):
        op = draw(st.sampled_from(UNARY + BINARY))
        operands = [draw(st.sampled_from(pool)) for _ in range(1 if op in UNARY else 2)]
        out = graph.add_value(f"v{number}", F32, None)
        graph.add_node(op, operands, [out], name=f"n{number}")
        graph.origins[out.name] = Origin("same", out.name)
        pool.append(out)
    made = pool[4:]
    graph.outputs = Outputs([made[-1], *draw(st.lists(st.sampled_from(made), max_size=2))])
    infer_graph(graph)
    return graph


STEP = st.sampled_from(["fuse", "fuse", "fuse", "inline", "wrap", "dead", "forget"])


@settings(max_examples=150, deadline=None)
@given(graphs(), st.lists(STEP, max_size=8), st.data())
def test_random_rewrites_keep_the_function(graph: Graph, steps: list[str], data: st.DataObject) -> None:
    inputs = [np.random.default_rng(i).normal(size=(2, 3)).astype(np.float32) for i in range(2)]
    expected = evaluate(graph, inputs)
    public = [v.name for v in graph.outputs]
    sources = set(graph.origins)
    rewriter = Rewriter(graph)
    for step in steps:
        if not graph.nodes:
            break
        node = data.draw(st.sampled_from(graph.nodes))
        if step == "fuse":
            others = data.draw(st.lists(st.sampled_from(graph.nodes), max_size=4))
            try:
                rewriter.fuse([node, *others], "region")
            except ValueError as error:
                assert "convex" in str(error) or "nothing outside" in str(error)
        elif step == "inline" and node.op == "Fused":
            rewriter.inline(node)
        elif step == "wrap":
            after = graph.nodes[graph.nodes.index(node) + 1 :]
            copy = rewriter.insert("Relayout", [node.output], before=after[0] if after else None)
            rewriter.replace(node.output, copy.output)
        elif step == "forget" and node.op == "Relayout":
            operand = node.inputs[0]
            assert operand is not None
            rewriter.replace(node.output, operand)
        else:
            rewriter.erase_dead()
        verify(graph)
    assert [v.name for v in graph.outputs] == public
    assert set(graph.origins) == sources
    for got, wanted in zip(evaluate(graph, inputs), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
    text = to_text(graph)
    assert to_text(parse(text)) == text
