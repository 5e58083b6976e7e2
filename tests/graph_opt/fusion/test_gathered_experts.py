"""Matrices picked by index: what products with them become, and what stays. Numbers come from numpy."""

from __future__ import annotations

import numpy as np
import pytest

from graph_opt.fusion.gathered_experts import GatheredExperts
from graph_opt.ir.text import parse
from graph_opt.ir.verifier import verify
from tests.graph_opt.fusion.test_fuse_moe import run

E, D, H = 4, 6, 5


def text(first: str = "", biased: bool = True) -> str:
    """Rows for two choices a token, a product with [D, H] of each, a bias of each, a product with [H, D]."""
    return f"""\
graph g(%x: f32[n, {D}], %logits: f32[n, {E}], %ids: i64[n, 2]) -> (%y) {{
  const %two: i64[1] = splat 2
  const %flat: i64[1] = splat -1
  const %row: i64[1] = splat 1
  const %wide: i64[3] = dense [1, 2, 1]
  const %rows: i64[3] = dense [-1, 1, {D}]
  const %up: f32[{E}, {D}, {H}] = random seed 1 scale 0.5
  const %bias: f32[{E}, 1, {H}] = random seed 2 scale 0.5
  const %down: f32[{E}, {H}, {D}] = random seed 3 scale 0.5
  %values, %found = TopK(%logits, %two)
  %index = Reshape({"%found" if not first else first}, %flat)
  %x3 = Unsqueeze(%x, %row)
  %xe = Expand(%x3, %wide)
  %xr = Reshape(%xe, %rows)
  %ups = Gather(%up, %index)
  %downs = Gather(%down, %index)
  %biases = Gather(%bias, %index)
  %h = MatMul(%xr, %ups)
  %shifted = {"Add(%h, %biases)" if biased else "Neg(%h)"}
  %inner = Relu(%shifted)
  %y = MatMul(%inner, %downs)
}}"""


def feeds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"x": rng.normal(size=(7, D)).astype(np.float32), "logits": rng.normal(size=(7, E)).astype(np.float32),
            "ids": rng.integers(0, E, (7, 2))}  # fmt: skip


@pytest.mark.parametrize("biased", [True, False])
def test_picked_matrices_become_grouped_products_over_rows_that_stay_sorted(biased: bool) -> None:
    before, after = parse(text(biased=biased)), parse(text(biased=biased))
    assert GatheredExperts().apply(after)
    verify(after)
    ops = [n.op for n in after.nodes]
    assert ops.count("MoeRoute") == 1 and ops.count("GroupedMatMul") == 2 and "MatMul" not in ops
    products = [n for n in after.nodes if n.op == "GroupedMatMul"]
    between = products[1].inputs[0]
    while between.producer is not products[0]:
        assert between.producer.op in ("Relu", "Add", "Neg", "Reshape"), "rows are sorted twice"
        between = between.producer.inputs[0]
    np.testing.assert_allclose(run(after, feeds()), run(before, feeds()), rtol=1e-5, atol=1e-6)


def test_indices_that_may_name_no_expert_stay_with_a_note() -> None:
    graph, fusion = parse(text(first="%ids")), GatheredExperts()
    assert not fusion.apply(graph)
    assert [n.reason for n in fusion.notes] == ["an index may be that of no expert: it does not come from a TopK among them"] * 2


def test_several_rows_of_one_index_stay() -> None:
    graph = parse(text().replace("dense [-1, 1, 6]", "dense [-1, 2, 6]").replace("%found, %flat)", "%first, %flat)").replace(
        "%index =", "%zero = Mul(%row, %row)\n  %first = Gather(%found, %zero) {axis=1}\n  %index ="))  # fmt: skip
    fusion = GatheredExperts()
    assert not fusion.apply(graph) and fusion.notes[0].reason == "more than one row for each index"
