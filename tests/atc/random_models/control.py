"""If, Loop and Scan, whose bodies read values from outside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.atc.random_models import floats
from tests.atc.random_models.builder import Builder, Refused, Tensor, Theme, ints, number

KINDS = {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "b": TensorProto.BOOL}


class Body:
    """The nodes of a subgraph; its names begin with a prefix of their own."""

    def __init__(self, b: Builder) -> None:
        self.b, self.prefix = b, f"g{int(b.rng.integers(1 << 40))}_"
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, op: str, *operands: str | np.ndarray, **attrs: object) -> str:
        names = []
        for operand in operands:
            if isinstance(operand, np.ndarray):
                self.constants.append(numpy_helper.from_array(operand, f"{self.prefix}c{len(self.constants)}"))
                operand = self.constants[-1].name
            names.append(operand)
        out = f"{self.prefix}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [out], name=out, **attrs))
        return out

    def steps(self, name: str) -> str:
        """A few operators that keep the shape."""
        for _ in range(self.b.pick(1, 2, 3)):
            op = self.b.pick("Relu", "Neg", "Sigmoid", "Add", "Mul", "Max", "Tanh")
            name = self.add(op, name, *([self.b.floats()] if op in ("Add", "Mul", "Max") else []))
        return name

    def inputs(self, *names: str) -> list[str]:
        return [self.prefix + name for name in names]

    def graph(
        self, inputs: Sequence[tuple[str, str]], *outputs: tuple[str, str], rank: int | None = None
    ) -> onnx.GraphProto:
        """Wires are (name, letter of the dtype); integers and bools are scalars, `rank` is that of the floats."""
        shape = None if rank is None else [None] * rank
        wires = [
            [helper.make_tensor_value_info(n, KINDS[k], shape if k == "f" else []) for n, k in w]
            for w in (inputs, outputs)
        ]
        return helper.make_graph(self.nodes, f"{self.prefix}body", *wires, self.constants)


def condition(b: Builder) -> Tensor:
    """A bool of one element: of an input, or of data."""
    if b.chance(0.4):
        return b.operand("b")
    return b.add("Greater", b.add("ReduceSum", b.real(), keepdims=0), number(0.3))


def branch(b: Builder) -> None:
    flag, x, y = condition(b), b.real(), b.real()
    two, same = b.chance(0.3), b.chance(0.6)
    bodies = []
    for source in (x, x if same else y):
        body = Body(b)
        out = body.steps(source.name)
        other = [(body.add(b.pick("Identity", "Abs"), b.pick(source.name, out)), "f")] if two else []
        if not same and b.chance(0.3):
            out = body.add("ReduceMax", out, keepdims=0)
        bodies.append(body.graph([], (out, "f"), *other))
    b.several(1 + two, "If", flag, then_branch=bodies[0], else_branch=bodies[1], captured=[x, y])


def loop(b: Builder) -> None:
    """A state runs through a body; a result of every trip may be stacked; the condition may end it early."""
    x, y = b.real(), b.real()
    body = Body(b)
    i, keep, state = body.inputs("i", "keep", "state")
    new = body.steps(state)
    if b.chance(0.4):
        new = body.add("Add", new, body.add("Mul", body.add("Cast", i, to=1), number(0.1)))
    if b.chance(0.3) and y.rank <= x.rank:
        new = body.add("Max", new, y.name)
    stacked = b.chance(0.5)
    each = (
        [(body.add("ReduceSum", new, keepdims=0) if b.chance(0.5) else body.add("Identity", new), "f")]
        if stacked
        else []
    )
    going = b.pick("always", "always", "trips", "data")
    if going == "always":
        going = body.add("Identity", keep)
    elif going == "trips":
        going = body.add("Less", i, number(b.pick(0, 1, 2), np.int64))
    else:
        going = body.add("Less", body.add("ReduceMax", new, keepdims=0), number(2))
    graph = body.graph([(i, "i"), (keep, "b"), (state, "f")], (going, "b"), (new, "f"), *each)
    trips = number(b.pick(1, 2, 3, 5), np.int64)
    if b.chance(0.3):
        trips = b.add("Squeeze", b.add("Shape", b.real(1), start=0, end=1), ints(0))
    b.several(1 + stacked, "Loop", trips, np.array(True), x, body=graph, captured=[y])


def scan(b: Builder) -> None:
    x = b.real(1)
    axis = b.axis(x)
    rest = [a for a in range(x.rank) if a != axis]
    if not x.is_fixed(*rest):
        raise Refused
    body = Body(b)
    state, item = body.inputs("state", "item")
    new = body.steps(body.add(b.pick("Add", "Max"), state, item))
    out = body.add(b.pick("Neg", "Identity"), new)
    graph = body.graph([(state, "f"), (item, "f")], (new, "f"), (out, "f"), rank=len(rest))
    first = b.floats(*(x.shape[a] for a in rest))
    ways = {f"scan_{wire}_directions": [b.pick(0, 1)] for wire in ("input", "output")}
    b.several(2, "Scan", first, x, body=graph, num_scan_inputs=1, scan_input_axes=[axis], **ways)


def nested(b: Builder) -> None:
    """An If in a Loop."""
    body = Body(b)
    i, keep, state = body.inputs("i", "keep", "state")
    odd = body.add("Equal", body.add("Mod", i, number(2, np.int64)), number(1, np.int64))
    parts = [Body(b) for _ in range(2)]
    one, two = (p.graph([], (p.steps(state), "f")) for p in parts)
    new = body.add("If", odd, then_branch=one, else_branch=two)
    graph = body.graph([(i, "i"), (keep, "b"), (state, "f")], (body.add("Identity", keep), "b"), (new, "f"))
    b.add("Loop", number(b.pick(2, 3), np.int64), None, b.real(), body=graph)


def start(b: Builder) -> None:
    b.input(np.float32, "n", b.pick(3, 5), b.pick("w", 4), make=b.floats)
    b.input(np.float32, 4, 6, make=b.floats)
    b.input(np.float32, b.pick("n", 3), b.pick(1, 6), make=b.floats)
    b.input(np.bool_, make=lambda *s: b.rng.integers(0, 2, s))


CONTROL = Theme(
    start,
    [branch] * 4 + [loop] * 4 + [scan] * 2 + [
        nested, floats.unary, floats.unary, floats.binary, floats.binary, floats.matmul, floats.reduction,
        floats.softmax, floats.transpose, floats.cut, floats.join,
    ],
)  # fmt: skip
