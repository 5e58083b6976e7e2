"""Export forms of one operator: as written, and with nodes reordered, inputs commuted and tensors renamed."""

from __future__ import annotations

import random
import textwrap
from collections.abc import Mapping

import numpy as np

from graph_opt.ir import Graph, ops
from graph_opt.ir.order import Order
from graph_opt.ir.passes import Pass
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.text import parse
from graph_opt.ir.verifier import verify
from tests.graph_opt.simplify.graph_to_onnx import run


def graph_of(text: str) -> Graph:
    """The graph of a text, verified."""
    graph = parse(textwrap.dedent(text))
    verify(graph)
    return graph


def disguised(text: str, seed: int) -> Graph:
    """The same computation in another order, with commuted inputs and other names; inputs and outputs keep theirs."""
    graph, chance = graph_of(text), random.Random(seed)
    for node in graph.nodes:
        declared = ops.get(node.op)
        if declared is not None and declared.commutative and chance.random() < 0.5:
            swapped = node.inputs[::-1]
            for index, value in enumerate(swapped):
                node.set_input(index, value)
    ordered, left = [], list(graph.nodes)
    while left:
        waiting = {v for n in left for v in n.outputs}
        ready = [n for n in left if not any(v in waiting for v in n.inputs)]
        ordered.append(chance.choice(ready))
        left.remove(ordered[-1])
    graph.nodes = Order(ordered)
    rewriter, kept = Rewriter(graph), {*graph.inputs, *graph.outputs}
    for number, value in enumerate(list(graph.values.values())):
        if value not in kept:
            rewriter.rename(value, f"t{number}")
    verify(graph)
    return graph


def check(text: str, fusion: Pass, expected: list[str], feeds: Mapping[str, np.ndarray], rtol: float = 2e-5) -> Graph:
    """The pass gives these operators for the text and for disguises of it, and onnxruntime computes the same."""
    wanted = run(graph_of(text), feeds)
    for seed in range(-1, 6):
        graph = graph_of(text) if seed < 0 else disguised(text, seed)
        assert fusion.apply(graph), f"nothing matched, seed {seed}"
        verify(graph)
        assert [n.op for n in graph.nodes] == expected, f"seed {seed}"
        for name, found in run(graph, feeds).items():
            np.testing.assert_allclose(found, wanted[name], rtol=rtol, atol=rtol, err_msg=f"{name}, seed {seed}")
    return graph
