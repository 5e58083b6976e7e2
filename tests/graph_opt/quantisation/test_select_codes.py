"""Picking and reordering codes in place of numbers: text before, operators after, and equal results."""

from __future__ import annotations

import numpy as np
import pytest

from acl_runtime.aicpu import evaluate
from graph_opt.ir import Graph
from graph_opt.ir.text import parse
from graph_opt.ir.verifier import verify
from graph_opt.quantisation import SelectCodes

HEAD = """graph g(%x: u8[1, 4, 6, 6], %u: u8[1, 4, 6, 6]) -> (%y) {
  const %s: f32[] = splat 0.25
  const %t: f32[] = splat 0.5
  const %z: u8[] = splat 3
"""


def run(graph: Graph, feeds: dict[str, np.ndarray]) -> np.ndarray:
    held = {v.name: v.data for v in graph.constants()} | feeds
    for node in graph.nodes:
        inputs = [None if v is None else held[v.name] for v in node.inputs]
        made = evaluate(node.op, node.attrs, inputs, len(node.outputs))
        held.update({v.name: m for v, m in zip(node.outputs, made, strict=True)})
    return np.asarray(held[graph.outputs[0].name])


def selected(body: str) -> list[str]:
    before, after = parse(f"{HEAD}{body}\n}}\n"), parse(f"{HEAD}{body}\n}}\n")
    changed = SelectCodes().apply(after)
    verify(after)
    assert changed == ([n.op for n in after.nodes] != [n.op for n in before.nodes])
    draw = np.random.default_rng(1)
    feeds = {name: draw.integers(0, 256, (1, 4, 6, 6), np.uint8) for name in "xu"}
    np.testing.assert_array_equal(run(after, feeds), run(before, feeds))
    return [n.op for n in after.nodes]


@pytest.mark.parametrize(
    "op", ["MaxPool(%d) {kernel_shape=[2, 2], pads=[1, 1, 0, 0]}", "Transpose(%d) {perm=[0, 2, 3, 1]}", "Flatten(%d)"]
)
def test_one_operand(op: str) -> None:
    name = op.split("(")[0]
    assert selected(f"  %d = DequantizeLinear(%x, %s, %z)\n  %y = {op}") == [name, "DequantizeLinear"]


def test_a_chain_ends_where_numbers_are_needed() -> None:
    body = "  %d = DequantizeLinear(%x, %s, %z)\n  %a = Transpose(%d)\n  %b = Flatten(%a)\n  %y = Exp(%b)"
    assert selected(body) == ["Transpose", "Flatten", "DequantizeLinear", "Exp"]


@pytest.mark.parametrize(("other", "ops"), [("s", ["Concat", "DequantizeLinear"]),
                                            ("t", ["DequantizeLinear", "DequantizeLinear", "Concat"])])  # fmt: skip
def test_tensors_of_one_scale_are_joined_as_codes(other: str, ops: list[str]) -> None:
    body = f"""  %d = DequantizeLinear(%x, %s, %z)
  %e = DequantizeLinear(%u, %{other}, %z)
  %y = Concat(%d, %e) {{axis=1}}"""
    assert selected(body) == ops


def test_codes_that_come_back_are_the_codes() -> None:
    body = """  %d = DequantizeLinear(%x, %s, %z)
  %m = MaxPool(%d) {kernel_shape=[2, 2]}
  %y = QuantizeLinear(%m, %s, %z)"""
    assert selected(body) == ["MaxPool"]


def test_another_scale_is_a_requantisation() -> None:
    body = "  %d = DequantizeLinear(%x, %s, %z)\n  %y = QuantizeLinear(%d, %t, %z)"
    assert selected(body) == ["DequantizeLinear", "QuantizeLinear"]


def test_a_negative_scale_turns_the_order_round() -> None:
    body = """  const %n: f32[] = splat -0.5
  %d = DequantizeLinear(%x, %n, %z)
  %y = MaxPool(%d) {kernel_shape=[2, 2]}"""
    assert selected(body) == ["DequantizeLinear", "MaxPool"]


def test_sizes_that_were_folded_into_the_result_stay() -> None:
    """A Reshape whose target symbols tell has no operand for it any more."""
    graph = parse(
        """graph g(%x: u8[n, 4, 6]) -> (%y) {
  dim n in [1, inf]
  const %s: f32[] = splat 0.25
  const %z: u8[] = splat 3
  %d: f32[n, 4, 6] = DequantizeLinear(%x, %s, %z)
  %y: f32[n, 3, 8] = Reshape(%d, _)
}
"""
    )
    assert SelectCodes().apply(graph)
    verify(graph)
    assert [(n.op, str(n.output.shape)) for n in graph.nodes] == [(op, "(n, 3, 8)") for op in ("Reshape", "DequantizeLinear")]
