"""Random graphs with free dims: all passes together keep what onnxruntime computes, at several sizes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from atc.pipeline import simplification
from graph_opt.ir import Graph, Origin, Value
from graph_opt.ir.order import Outputs
from graph_opt.ir.passes import Pass, run_passes
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.verifier import verify
from graph_opt.simplify import FlattenIf, MergeTransposes
from tensor_types.dims import dim
from tensor_types.dtypes import BOOL, F32
from tests.graph_opt.simplify.graph_to_onnx import run

PASSES: tuple[Pass, ...] = (*simplification(), FlattenIf(), *simplification(), MergeTransposes())
UNARY = ("Neg", "Abs", "Relu", "Sigmoid", "Identity", "Dropout")
NUMBERS = (0.0, -0.0, 1.0, 2.0, 0.5, -1.5)


class Maker:
    """Grows a graph of values of rank 3 whose extents are products of numbers and the dims a, b."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.graph = Graph("g", dims={"a": (1, None), "b": (1, None)})
        self.rewriter = Rewriter(self.graph)
        x = self.graph.add_value("x", F32, (dim("a"), 4, dim("b")))
        c = self.graph.add_value("c", BOOL, ())
        self.graph.inputs = [x, c]
        self.condition = c
        self.pool: list[Value] = [x, self.rewriter.constant(np.arange(4, dtype=np.float32).reshape(1, 4, 1))]

    def add(self, op: str, *inputs: Value, **attrs: object) -> Value:
        return self.rewriter.insert(op, inputs, attrs, before=None, name=f"n{len(self.graph.nodes)}").output  # type: ignore[arg-type]

    def ints(self, *numbers: int) -> Value:
        return self.rewriter.constant(np.array(numbers, np.int64))

    def grow(self) -> None:
        value = self.random.choice(self.pool)
        step = self.random.choice(
            [self.unary, self.binary, self.number, self.turn, self.reshape, self.split_heads, self.squeeze, self.expand,
             self.slice, self.branch]
        )  # fmt: skip
        self.pool.append(step(value))

    def unary(self, v: Value) -> Value:
        return self.add(self.random.choice(UNARY), v)

    def binary(self, v: Value) -> Value:
        like = [w for w in self.pool if w.shape == v.shape]
        pair = [v, self.random.choice(like)]
        self.random.shuffle(pair)
        return self.add(self.random.choice(("Add", "Sub", "Mul", "Max")), *pair)

    def number(self, v: Value) -> Value:
        scalar = self.rewriter.constant(np.array(self.random.choice(NUMBERS), np.float32))
        op = self.random.choice(("Add", "Sub", "Mul", "Div", "Pow"))
        if op == "Pow":
            return self.add(op, self.add("Abs", v), scalar)
        return self.add(op, *((v, scalar) if op == "Div" or self.random.random() < 0.6 else (scalar, v)))

    def turn(self, v: Value) -> Value:
        return self.add("Transpose", v, perm=tuple(self.random.sample(range(3), 3)))

    def shape_parts(self, v: Value) -> list[Value]:
        """The three extents as vectors, the way exporters get them."""
        shape = self.add("Shape", v)
        parts = [self.add("Gather", shape, self.rewriter.constant(np.int64(i))) for i in range(3)]
        return [self.add("Unsqueeze", p, self.ints(0)) for p in parts]

    def reshape(self, v: Value) -> Value:
        parts = self.shape_parts(v)
        self.random.shuffle(parts)
        return self.add("Reshape", v, self.add("Concat", *parts, axis=0))

    def split_heads(self, v: Value) -> Value:
        first, second, third = self.shape_parts(v)
        merged = self.add("Reshape", v, self.add("Concat", self.add("Mul", first, second), third, axis=0))
        again = self.add("Concat", first, second, self.ints(-1), axis=0)
        return self.add("Reshape", merged, again)

    def squeeze(self, v: Value) -> Value:
        axis = self.random.randrange(4)
        return self.add("Squeeze", self.add("Unsqueeze", v, self.ints(axis)), self.ints(axis))

    def expand(self, v: Value) -> Value:
        row = self.rewriter.constant(np.float32(self.random.choice(NUMBERS)).reshape(1, 1, 1))
        filled = self.random.choice(
            [
                lambda s: self.add("Expand", row, s),
                lambda s: self.add("ConstantOfShape", s, value=np.ones(1, np.float32)),
            ]
        )
        wide = filled(self.add("Shape", v))
        return self.add("Mul", v, wide) if self.random.random() < 0.7 else wide

    def slice(self, v: Value) -> Value:
        axis = self.random.randrange(3)
        end = self.random.choice([self.shape_parts(v)[axis], self.ints(1 << 40)])
        return self.add("Slice", v, self.ints(0), end, self.ints(axis))

    def branch(self, v: Value) -> Value:
        bodies, name = {}, f"n{len(self.graph.nodes)}"
        for key in ("then_branch", "else_branch"):
            body = Graph(key, dims=self.graph.dims)
            inner = Rewriter(body)
            first = inner.insert(self.random.choice(UNARY[:5]), [v], before=None, name=f"{name}/{key}")
            last = inner.insert(
                "Mul", [first.output, self.random.choice([v, first.output])], before=None, name=f"{name}/{key}/out"
            )
            body.outputs = Outputs([last.output])
            bodies[key] = body
        condition = self.condition
        if self.random.random() < 0.3:
            condition = self.rewriter.constant(np.array(self.random.random() < 0.5))
        return self.rewriter.insert("If", [condition], before=None, name=name, subgraphs=bodies).output

    def finish(self) -> Graph:
        last = self.pool[-4:]
        self.graph.outputs = Outputs([self.add("Identity", v) for v in last])
        made = [v for n in self.graph.nodes for v in n.outputs]
        self.graph.origins = {v.name: Origin("same", v.name) for v in (*self.graph.inputs, *made)}
        verify(self.graph)
        return self.graph


def random_graph(seed: int) -> Graph:
    maker = Maker(seed)
    for _ in range(14):
        maker.grow()
    return maker.finish()


@pytest.mark.parametrize("seed", range(60))
def test_passes_keep_the_numbers_and_the_origins(seed: int) -> None:
    before, graph = random_graph(seed), random_graph(seed)
    run_passes(graph, PASSES, verify=True)
    assert graph.origins.keys() >= before.origins.keys()
    assert not any(n.op in ("Identity", "Dropout") and not graph.is_output(n.output) for n in graph.nodes)
    for a, b, c in ((1, 1, True), (3, 2, False), (2, 5, True)):
        x = np.random.default_rng(seed).standard_normal((a, 4, b)).astype(np.float32)
        feeds = {"x": x, "c": np.array(c)}
        expected, found = run(before, feeds), run(graph, feeds)
        assert expected.keys() == found.keys()
        for name, array in expected.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-6, atol=1e-6, err_msg=f"{name} at {a}, {b}, {c}")
