"""Products of a chip whose cube has no f32, as text before and after."""

import numpy as np

from codegen.kernels import kernels
from codegen.targets import target
from graph_opt.ir.text import parse, to_text
from graph_opt.ir.verifier import verify
from graph_opt.precision.legalise_products import LegaliseProducts

HALVES = LegaliseProducts(kernels([target("Ascend310P3")]))


def after(text: str) -> str:
    graph = parse(text)
    HALVES.apply(graph)
    verify(graph)
    return to_text(graph)


def test_operands_are_rounded_and_sums_stay_f32() -> None:
    found = after("""graph g(%x: f32[4, 8]) -> (%y) {
  const %w: f32[8, 8] = splat 0.1
  %a: f32[4, 8] = MatMul(%x, %w) @fc
  %b: f32[4, 8] = Add(%a, %x) @residual
  %y: f32[4, 8] = MatMul(%b, %w) @fc2
}""")
    assert found == """graph g(%x: f32[4, 8]) -> (%y) {
  const %w/f16: f16[8, 8] = splat 0.1
  %x/f16: f16[4, 8] = Cast(%x) {to=10} @x/f16
  %a: f32[4, 8] = MatMul(%x/f16, %w/f16) {result_dtype="f32"} @fc
  %b: f32[4, 8] = Add(%a, %x) @residual
  %b/f16: f16[4, 8] = Cast(%b) {to=10} @b/f16
  %y: f32[4, 8] = MatMul(%b/f16, %w/f16) {result_dtype="f32"} @fc2
}
"""
    assert [(n.node, n.step) for n in HALVES.notes] == [("fc", "legalise-products"), ("fc2", "legalise-products")]


def test_attention_computes_in_halves_and_casts_back() -> None:
    found = after("""graph g(%q: f32[1, 2, 4, 8]) -> (%y) {
  %a: f32[1, 2, 4, 8] = Attention(%q, %q, %q) @attention
  %y: f32[1, 2, 4, 8] = Relu(%a) @relu
}""")
    assert '%a: f16[1, 2, 4, 8] = Attention(%q/f16, %q/f16, %q/f16)' in found
    assert 'f32[1, 2, 4, 8] = Cast(%a) {to=1}' in found


def test_depthwise_convolutions_and_wide_cubes_are_left_alone() -> None:
    text = """graph g(%x: f32[1, 4, 8, 8]) -> (%y) {
  const %w: f32[4, 1, 3, 3] = splat 0.5
  %y: f32[1, 4, 6, 6] = Conv(%x, %w) {group=4} @depthwise
}
"""
    assert after(text) == to_text(parse(text))
    product = """graph g(%x: f32[4, 8]) -> (%y) {
  const %w: f32[8, 8] = splat 0.5
  %y: f32[4, 8] = MatMul(%x, %w) @fc
}
"""
    graph = parse(product)
    assert not LegaliseProducts(kernels([target("Ascend910B2")])).apply(graph)
    assert to_text(graph) == to_text(parse(product))


def test_constants_stay_finite() -> None:
    graph = parse("""graph g(%x: f32[4, 8]) -> (%y) {
  const %w: f32[8, 8] = splat 1e30
  %y: f32[4, 8] = MatMul(%x, %w) @fc
}""")
    HALVES.apply(graph)
    assert np.isfinite(graph.values["w/f16"].data.astype(np.float64)).all()
