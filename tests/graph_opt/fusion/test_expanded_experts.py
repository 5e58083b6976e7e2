"""Experts as batched products over all tokens: what they become, and what stays with a note. Numbers come from numpy."""

from __future__ import annotations

import numpy as np
import pytest

from graph_opt.fusion.expanded_experts import ExpandedExperts
from graph_opt.ir.text import parse
from graph_opt.ir.verifier import verify
from tests.graph_opt.fusion.test_fuse_moe import run

E, D, H = 4, 6, 5
CONSTANTS = f"""\
  const %two: i64[1] = splat 2
  const %one: i64[1] = splat 1
  const %zero: i64[1] = splat 0
  const %last: i64[1] = splat -1
  const %experts: i64[1] = splat {E}
  const %wide: i64[3] = dense [{E}, 1, {D}]
  const %back: i64[3] = dense [{E}, -1, {D}]
  const %flat: i64[2] = dense [-1, {D}]
  const %column: i64[2] = dense [-1, 1]
  const %times: i64[2] = dense [{E}, 1]
  const %up: f32[{E}, {D}, {H}] = random seed 1 scale 0.5
  const %bias: f32[{E}, 1, {H}] = random seed 2 scale 0.5
  const %down: f32[{E}, {H}, {D}] = random seed 3 scale 0.5
  const %outer: f32[{E}, 1, {D}] = random seed 4 scale 0.5
  %shape = Shape(%logits)
"""
HEAD = f"graph g(%x: f32[n, {D}], %logits: f32[n, {E}], %ids: i64[n, 2]) -> (%y) {{\n{CONSTANTS}"
OUTPUTS = """\
  %values, %found = TopK(%logits, %two)
  %weights = Softmax(%values)
  %none = ConstantOfShape(%shape)
  %s = ScatterElements(%none, %found, %weights) {axis=1}
  %x1 = Unsqueeze(%x, %zero)
  %xe = Expand(%x1, %wide)
  %h0 = MatMul(%xe, %up)
  %h = Add(%h0, %bias)
  %a = Relu(%h)
  %o0 = MatMul(%a, %down)
  %o = Add(%o0, %outer)
  %t = Transpose(%s) {perm=[1, 0]}
  %c = Unsqueeze(%t, %last)
  %m = Mul(%o, %c)
  %y = ReduceSum(%m, %zero) {keepdims=0}
}"""
INPUTS = """\
  const %never: f32[1] = splat -inf
  %values, %found = TopK(%logits, %two)
  %none = Expand(%never, %shape)
  %s = ScatterElements(%none, %found, %values) {axis=1}
  %t = Transpose(%s) {perm=[1, 0]}
  %odds = Sigmoid(%t)
  %c = Reshape(%odds, %column)
  %xt = Tile(%x, %times)
  %xs = Mul(%xt, %c)
  %xe = Reshape(%xs, %back)
  %h = MatMul(%xe, %up)
  %g = Sigmoid(%h)
  %a = Mul(%h, %g)
  %o = MatMul(%a, %down)
  %r = Reshape(%o, %flat)
  %e = Reshape(%r, %back)
  %y = ReduceSum(%e, %zero) {keepdims=0}
}"""


def feeds(tokens: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(tokens)
    return {"x": rng.normal(size=(tokens, D)).astype(np.float32), "ids": rng.integers(0, E, (tokens, 2)),
            "logits": rng.normal(size=(tokens, E)).astype(np.float32)}  # fmt: skip


@pytest.mark.parametrize("form", [OUTPUTS, INPUTS], ids=["weighted results", "weighted tokens"])
def test_tokens_go_to_the_experts_that_they_chose(form: str) -> None:
    before, after = parse(HEAD + form), parse(HEAD + form)
    assert ExpandedExperts().apply(after)
    verify(after)
    ops = [n.op for n in after.nodes]
    assert ops.count("GroupedMatMul") == 2 and ops.count("MoeRoute") == 1
    for tokens in (1, 9):
        np.testing.assert_allclose(run(after, feeds(tokens)), run(before, feeds(tokens)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("form", "reason"), [
    (INPUTS.replace("%h = MatMul(%xe, %up)", "%h0 = MatMul(%xe, %up)\n  %h = Add(%h0, %bias)"), "may add something"),
    (INPUTS.replace("splat -inf", "splat -2.0"), "may add something"),
    (OUTPUTS.replace("%none, %found,", "%none, %ids,"), "may choose an expert twice"),
    (OUTPUTS.replace("%a = Relu(%h)", "%a = Softmax(%h)"), "Softmax among the experts"),
    (OUTPUTS.replace("%h = Add(%h0, %bias)", "%h = CumSum(%h0, %rank)").replace("%values,", "%rank = Squeeze(%one)\n  %values,", 1),
     "CumSum among the experts"),
])  # fmt: skip
def test_others_stay_with_a_note(form: str, reason: str) -> None:
    graph, fusion = parse(HEAD + form), ExpandedExperts()
    assert not fusion.apply(graph)
    assert [reason in n.reason for n in fusion.notes] == [True], fusion.notes
