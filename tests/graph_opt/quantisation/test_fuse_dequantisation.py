"""Codes made numbers by single operators, and tables of codes: the operators after, and equal numbers."""

from __future__ import annotations

import numpy as np
import pytest

from acl_runtime.aicpu import evaluate
from graph_opt.ir import Graph
from graph_opt.ir.text import parse
from graph_opt.ir.verifier import verify
from graph_opt.quantisation import DequantizeLate, FuseDequantisation

HEAD = """graph g(%i: i64[2, 3]) -> (%y) {{
  const %w: {w}[5, 4] = random seed 3 scale 60
  const %row: f32[1, 4] = random seed 4 scale 1
  const %column: f32[5, 1] = random seed 5 scale 1
  const %flat: f32[4] = random seed 6 scale 1
  const %one: f32[] = splat 0.5
  const %z: {w}[] = splat 3
  const %zs: f32[1, 4] = splat 7
  const %half: f32[] = splat 0.5
  const %both: f32[5, 4] = random seed 7 scale 1
"""


def values(graph: Graph) -> np.ndarray:
    held = {v.name: v.data for v in graph.constants()} | {"i": np.array([[0, 4, 2], [1, 1, 3]])}
    for node in graph.nodes:
        inputs = [None if v is None else held[v.name] for v in node.inputs]
        made = evaluate(node.op, node.attrs, inputs, len(node.outputs))
        held.update({v.name: m for v, m in zip(node.outputs, made, strict=True)})
    return np.asarray(held[graph.outputs[0].name])


def changed(body: str, w: str = "i8") -> list[str]:
    """The operators after the two passes; what they compute is the same to the bit."""
    text = f"{HEAD.format(w=w)}{body}\n}}\n"
    before, after = parse(text), parse(text)
    FuseDequantisation().apply(after)
    DequantizeLate().apply(after)
    verify(after)
    np.testing.assert_array_equal(values(after), values(before))
    return [n.op for n in after.nodes]


@pytest.mark.parametrize("scale", ["row", "column", "flat", "one"])
@pytest.mark.parametrize("w", ["i8", "u8"])
def test_scaled_codes(scale: str, w: str) -> None:
    assert changed(f"  %c = Cast(%w) {{to=1}}\n  %y = Mul(%{scale}, %c)", w) == ["DequantizeLinear"]


@pytest.mark.parametrize("zero", ["z", "zs"])
def test_scaled_codes_less_a_zero(zero: str) -> None:
    steps = ["  %c = Cast(%w) {to=1}", *(["  %n = Cast(%z) {to=1}"] if zero == "z" else [])]
    steps += [f"  %d = Sub(%c, %{'n' if zero == 'z' else 'zs'})", "  %y = Mul(%d, %row)"]
    assert changed("\n".join(steps), "u8") == ["DequantizeLinear"]


@pytest.mark.parametrize("body", [
    "%y = Mul(%c, %both)", "%d = Sub(%c, %half)\n  %y = Mul(%d, %row)", "%d = Sub(%c, %zs)\n  %y = Mul(%d, %column)"])  # fmt: skip
def test_near_forms_stay(body: str) -> None:
    assert "DequantizeLinear" not in changed(f"  %c = Cast(%w) {{to=1}}\n  {body}")


def test_a_table_whose_columns_have_scales_gathers_codes() -> None:
    table = "  %c = Cast(%w) {to=1}\n  %t = Mul(%c, %row)"
    assert changed(f"{table}\n  %y = Gather(%t, %i)") == ["Gather", "DequantizeLinear"]


@pytest.mark.parametrize("zero", ["", ", %zero"])
def test_a_table_whose_rows_have_scales_gathers_both(zero: str) -> None:
    head = "  const %rows: f32[5] = random seed 8 scale 1\n  const %zero: i8[5] = random seed 9 scale 9"
    ops = changed(f"{head}\n  %t = DequantizeLinear(%w, %rows{zero}) {{axis=0}}\n  %y = Gather(%t, %i)")
    assert "DequantizeLinear" not in ops and ops.count("Gather") == (3 if zero else 2)
