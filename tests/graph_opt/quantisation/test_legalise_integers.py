"""Integer products in the forms that kernels take: equal numbers, computed by the AI CPU before and after."""

from __future__ import annotations

import numpy as np
import pytest

from acl_runtime.aicpu import evaluate
from codegen.kernels import kernels
from codegen.targets import target
from graph_opt.fusion.families import Kernels
from graph_opt.ir import Graph
from graph_opt.ir.text import parse
from graph_opt.ir.verifier import verify
from graph_opt.quantisation import LegaliseIntegerConvolutions, LegaliseIntegerMatmuls
from tests.graph_opt.families import OWN

CHIP = kernels([target("Ascend310P3")])
BYTES = {"u8": (0, 256), "i8": (-128, 128)}


def run(graph: Graph, feeds: dict[str, np.ndarray]) -> np.ndarray:
    held = {v.name: v.data for v in graph.constants()} | feeds
    for node in graph.nodes:
        attrs = {k: v for k, v in node.attrs.items() if k != "pad_value"}
        inputs = [None if v is None else held[v.name] for v in node.inputs]
        if node.op == "ConvInteger":  # windows that leave the input read `pad_value`
            pads = np.array(attrs.pop("pads")).reshape(2, -1).T
            inputs[0] = np.pad(inputs[0], [(0, 0), (0, 0), *pads], constant_values=node.attrs.get("pad_value", 0))
        for value, made in zip(node.outputs, evaluate(node.op, attrs, inputs, len(node.outputs)), strict=True):
            held[value.name] = made
    return held[graph.outputs[0].name]


def legalise(graph: Graph, asked: Kernels) -> bool:
    return any([LegaliseIntegerMatmuls(asked).apply(graph), LegaliseIntegerConvolutions(asked).apply(graph)])


def check(text: str, asked: Kernels = CHIP, **shapes: tuple[str, list[int]]) -> Graph:
    """What the text becomes; its products have kernels and equal results."""
    draw = np.random.default_rng(5)
    feeds = {n: draw.integers(*BYTES[t], s).astype("uint8" if t == "u8" else "int8") for n, (t, s) in shapes.items()}
    before, after = parse(text), parse(text)
    assert legalise(after, asked)
    verify(after)
    products = [n for n in after.nodes if n.op in ("MatMulInteger", "ConvInteger")]
    assert products
    for node in products:
        data = asked.preferred_format(node.op, node.inputs[0])
        assert asked.why_not_as(after, node, data_format=data) is None
    np.testing.assert_array_equal(run(after, feeds), run(before, feeds))
    return after


def test_a_constant_weight_adds_one_vector() -> None:
    graph = check(
        """graph g(%a: u8[5, 32]) -> (%y) {
  const %b: i8[32, 6] = random seed 3 scale 40
  %y: i32[5, 6] = MatMulInteger(%a, %b) @mm
}""",
        a=("u8", [5, 32]),
    )
    assert [n.op for n in graph.nodes] == ["Cast", "Sub", "Cast", "MatMulInteger", "Add"]


@pytest.mark.parametrize(("a", "b"), [("u8", "i8"), ("i8", "u8"), ("u8", "u8")])
@pytest.mark.parametrize("zeros", ["", ", %za, %zb"])
def test_run_time_operands_move_their_zero_points(a: str, b: str, zeros: str) -> None:
    ends = f"%a: {a}[2, 5, 8], %b: {b}[2, 8, 6]" + (f", %za: {a}[], %zb: {b}[]" if zeros else "")
    values = {"a": (a, [2, 5, 8]), "b": (b, [2, 8, 6])} | ({"za": (a, []), "zb": (b, [])} if zeros else {})
    check(f"graph g({ends}) -> (%y) {{\n  %y: i32[2, 5, 6] = MatMulInteger(%a, %b{zeros}) @mm\n}}", **values)


def test_products_of_two_tensors_sum_zero_points_once_for_hosts() -> None:
    """A kernel would take them, and add up an operand for each block of the other."""
    graph = check(
        """graph g(%a: u8[2, 5, 8], %b: u8[2, 8, 6]) -> (%y) {
  const %za: u8[] = splat 117
  const %zb: u8[] = splat 130
  %y: i32[2, 5, 6] = MatMulInteger(%a, %b, %za, %zb) @mm
}""",
        OWN, a=("u8", [2, 5, 8]), b=("u8", [2, 8, 6]),
    )  # fmt: skip
    (product,) = [n for n in graph.nodes if n.op == "MatMulInteger"]
    assert [v.dtype.name for v in product.inputs if v is not None] == ["u8", "i8"]
    assert sum(n.op == "ReduceSum" for n in graph.nodes) == 2


def test_a_convolution_moves_what_lies_outside() -> None:
    graph = check(
        """graph g(%x: u8[1, 8, 5, 5]) -> (%y) {
  const %w: i8[6, 8, 3, 3] = random seed 3 scale 40
  %y: i32[1, 6, 5, 5] = ConvInteger(%x, %w) {pad_value=7, pads=[1, 1, 1, 1]} @conv
}""",
        x=("u8", [1, 8, 5, 5]),
    )
    assert next(n for n in graph.nodes if n.op == "ConvInteger").attrs["pad_value"] == 7 - 128


def test_products_of_one_value_share_its_signed_bytes() -> None:
    graph = check(
        """graph g(%a: u8[5, 32]) -> (%y) {
  const %b: i8[32, 6] = random seed 3 scale 40
  const %c: i8[32, 6] = random seed 4 scale 40
  %s: i32[5, 6] = MatMulInteger(%a, %b) @mm
  %t: i32[5, 6] = MatMulInteger(%a, %c) @nn
  %y: i32[5, 6] = Add(%s, %t) @sum
}""",
        a=("u8", [5, 32]),
    )
    assert sum(n.op == "Cast" for n in graph.nodes) == 2


def test_a_product_that_has_a_kernel_is_left_alone() -> None:
    graph = parse("graph g(%a: u8[5, 8], %b: u8[8, 6]) -> (%y) {\n  %y: i32[5, 6] = MatMulInteger(%a, %b) @mm\n}")
    assert not legalise(graph, OWN)


@pytest.mark.parametrize("asked", [OWN, CHIP], ids=["host", "chip"])
@pytest.mark.parametrize(("za", "zb"), [([5], [6]), ([2, 5, 1], []), ([], [2, 1, 6]), ([5], [1])])
def test_zero_points_of_rows_and_columns_go_into_sums(asked: Kernels, za: list[int], zb: list[int]) -> None:
    """The AI CPU is the reference of `check`; its own is onnxruntime, which has no row zero points: so numpy here."""
    values = {"a": ("u8", [2, 5, 8]), "b": ("i8", [2, 8, 6]), "za": ("u8", za), "zb": ("i8", zb)}
    ends = ", ".join(f"%{name}: {dtype}{shape}" for name, (dtype, shape) in values.items())
    after = parse(f"graph g({ends}) -> (%y) {{\n  %y: i32[2, 5, 6] = MatMulInteger(%a, %b, %za, %zb) @mm\n}}")
    assert legalise(after, asked)
    (product,) = [n for n in after.nodes if n.op == "MatMulInteger"]
    assert asked.why_not_as(after, product) is None
    draw = np.random.default_rng(7)
    feeds = {n: draw.integers(*BYTES[t], s).astype("uint8" if t == "u8" else "int8") for n, (t, s) in values.items()}
    wide = {n: v.astype(np.int64) for n, v in feeds.items()}
    rows = wide["za"][:, None] if za == [5] else wide["za"]
    np.testing.assert_array_equal(run(after, feeds), (wide["a"] - rows) @ (wide["b"] - wide["zb"]))


def test_a_run_time_length_keeps_its_zero_points() -> None:
    text = "graph g(%a: i8[5, k], %b: i8[k, 6], %z: i8[5]) -> (%y) {\n  dim k in [0, inf]\n"
    graph = parse(text + "  %y: i32[5, 6] = MatMulInteger(%a, %b, %z) @mm\n}")
    assert not legalise(graph, CHIP)
