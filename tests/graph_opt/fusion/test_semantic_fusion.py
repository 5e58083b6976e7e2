"""Semantic fusions, as text before and after."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from codegen.kernels import kernels
from codegen.targets import target
from graph_opt.fusion.fuse_attention import FuseAttention
from graph_opt.fusion.fuse_conv_bn import FuseConvBatchNorm
from graph_opt.fusion.fuse_gelu import FuseGelu
from graph_opt.fusion.fuse_norms import FuseNorms
from graph_opt.fusion.merge_matmuls import MergeSiblingMatmuls
from graph_opt.ir import Graph, Node
from graph_opt.ir.text import parse
from graph_opt.ir.verifier import verify
from tests.graph_opt.families import OWN, family, of

ATTENTION = of(family("attention", ["Attention"]))


def graph_of(text: str) -> Graph:
    graph = parse(textwrap.dedent(text))
    verify(graph)
    return graph


def ops(graph: Graph) -> list[str]:
    verify(graph)
    return [n.op for n in graph.nodes]


def test_batch_norm_goes_into_the_convolution() -> None:
    graph = graph_of(
        """\
        graph g(%x: f32[n, 3, h, w]) -> (%y) {
          const %w: f32[4, 3, 1, 1] = random seed 1 scale 1.0
          const %gamma: f32[4] = random seed 2 scale 1.0
          const %beta: f32[4] = random seed 3 scale 1.0
          const %mean: f32[4] = random seed 4 scale 1.0
          const %var: f32[4] = dense [0.5, 1.0, 2.0, 4.0]
          %c = Conv(%x, %w) @conv
          %y = BatchNormalization(%c, %gamma, %beta, %mean, %var) {epsilon=0.001} @bn
          origin "c" = same %c
          origin "y" = same %y
        }
        """
    )
    w, gamma, beta, mean, var = (np.asarray(graph.values[n].data, np.float64) for n in ("w", "gamma", "beta", "mean", "var"))
    assert FuseConvBatchNorm().apply(graph)
    assert ops(graph) == ["Conv"]
    conv = graph.nodes[0]
    scale = gamma / np.sqrt(var + 0.001)
    np.testing.assert_allclose(conv.inputs[1].data, w * scale.reshape(4, 1, 1, 1), rtol=1e-6)
    np.testing.assert_allclose(conv.inputs[2].data, beta - mean * scale, rtol=1e-5, atol=1e-6)
    assert str(graph.outputs[0]).startswith("%y: f32[n, 4, h, w]")
    assert graph.origins["c"].relation == "interior"
    assert graph.origins["y"].relation == "same"


def test_batch_norm_after_a_shared_convolution_becomes_mul_and_add() -> None:
    graph = graph_of(
        """\
        graph g(%x: f32[n, 3, h, w]) -> (%y, %c) {
          const %w: f32[4, 3, 1, 1] = random seed 1 scale 1.0
          const %one: f32[4] = splat 1.5
          %c = Conv(%x, %w)
          %y = BatchNormalization(%c, %one, %one, %one, %one)
        }
        """
    )
    assert FuseConvBatchNorm().apply(graph)
    assert ops(graph) == ["Conv", "Mul", "Add"]


GELU = """\
graph g(%x: f32[n, 8]) -> (%y) {{
  const %half: f32[] = splat 0.5
  const %one: f32[] = splat 1.0
  const %root: f32[] = splat {root}
  %d = {divide}
  %e = Erf(%d)
  %a = Add({add})
  {tail}
}}
"""


@pytest.mark.parametrize(
    ("divide", "root", "add", "tail"),
    [
        ("Div(%x, %root)", 2**0.5, "%e, %one", "%m = Mul(%x, %a)\n  %y = Mul(%m, %half)"),
        ("Mul(%root, %x)", 2**-0.5, "%one, %e", "%m = Mul(%half, %x)\n  %y = Mul(%a, %m)"),
        ("Mul(%x, %root)", 2**-0.5, "%e, %one", "%m = Mul(%a, %half)\n  %y = Mul(%x, %m)"),
    ],
)
def test_gelu_in_any_order(divide: str, root: float, add: str, tail: str) -> None:
    graph = graph_of(GELU.format(divide=divide, root=root, add=add, tail=tail))
    assert FuseGelu().apply(graph)
    assert ops(graph) == ["Gelu"]
    assert graph.outputs[0].name == "y"


def test_a_bracket_that_is_used_elsewhere_is_no_gelu() -> None:
    tail = "%m = Mul(%x, %a)\n  %y0 = Mul(%m, %half)\n  %y = Add(%y0, %a)"
    graph = graph_of(GELU.format(divide="Div(%x, %root)", root=2**0.5, add="%e, %one", tail=tail))
    assert not FuseGelu().apply(graph)


def test_another_constant_is_no_gelu() -> None:
    tail = "%m = Mul(%x, %a)\n  %y = Mul(%m, %half)"
    graph = graph_of(GELU.format(divide="Div(%x, %root)", root=2.0, add="%e, %one", tail=tail))
    assert not FuseGelu().apply(graph)


def test_tanh_gelu_of_gpt2() -> None:
    graph = graph_of(
        f"""\
        graph g(%x: f32[n, 8]) -> (%y) {{
          const %half: f32[] = splat 0.5
          const %one: f32[] = splat 1.0
          const %three: f32[] = splat 3.0
          const %k: f32[] = splat 0.044715
          const %s: f32[] = splat {(2 / np.pi) ** 0.5}
          %p = Pow(%x, %three)
          %q = Mul(%k, %p)
          %a = Add(%x, %q)
          %b = Mul(%s, %a)
          %t = Tanh(%b)
          %c = Add(%one, %t)
          %h = Mul(%half, %x)
          %y = Mul(%h, %c)
        }}
        """
    )
    assert FuseGelu().apply(graph)
    assert ops(graph) == ["Gelu"]
    assert graph.nodes[0].attrs["approximate"] == "tanh"


NORM = """\
graph g(%x: f32[n, s, 16]) -> (%y) {
  const %axes: i64[1] = dense [-1]
  const %eps: f32[] = splat 1e-05
  const %two: f32[] = splat 2.0
  const %gamma: f32[16] = random seed 3 scale 1.0
  const %beta: f32[16] = random seed 4 scale 1.0
  %m = ReduceMean(%x, %axes)
  %d = Sub(%x, %m)
  %q = Pow(%d, %two)
  %v = ReduceMean(%q, %axes)
  %e = Add(%v, %eps)
  %r = Sqrt(%e)
  %z = Div(%d, %r)
  %g = Mul(%z, %gamma)
  %y = Add(%g, %beta)
}
"""


def test_layer_norm_from_primitives() -> None:
    graph = graph_of(NORM)
    assert FuseNorms().apply(graph)
    assert ops(graph) == ["LayerNormalization"]
    node = graph.nodes[0]
    assert node.attrs["axis"] == -1 and node.attrs["epsilon"] == pytest.approx(1e-5)
    assert len(node.inputs) == 3


def test_layer_norm_without_parameters_and_rms_norm() -> None:
    bare = NORM.replace("%z = Div", "%y = Div").replace("  %g = Mul(%z, %gamma)\n", "").replace("  %y = Add(%g, %beta)\n", "")
    graph = graph_of(bare)
    assert FuseNorms().apply(graph)
    assert ops(graph) == ["LayerNormalization"]
    np.testing.assert_array_equal(graph.nodes[0].inputs[1].data, np.ones(16))
    rms = graph_of(
        """\
        graph g(%x: f32[n, s, 16]) -> (%y) {
          const %axes: i64[1] = dense [2]
          const %eps: f32[] = splat 1e-05
          const %gamma: f32[16] = random seed 3 scale 1.0
          %q = Mul(%x, %x)
          %v = ReduceMean(%q, %axes)
          %e = Add(%eps, %v)
          %r = Sqrt(%e)
          %i = Reciprocal(%r)
          %z = Mul(%x, %i)
          %y = Mul(%gamma, %z)
        }
        """
    )
    assert FuseNorms().apply(rms)
    assert ops(rms) == ["RMSNormalization"]


def test_a_mean_over_leading_axes_is_no_norm() -> None:
    assert not FuseNorms().apply(graph_of(NORM.replace("dense [-1]", "dense [1]")))


BERT = """\
graph g(%q0: f32[b, s, 12, 64], %k0: f32[b, s, 12, 64], %v0: f32[b, s, 12, 64], %mask: f32[b, 1, 1, s]) -> (%y) {
  const %eight: f32[] = splat 8.0
  %q = Transpose(%q0) {perm=[0, 2, 1, 3]}
  %k = Transpose(%k0) {perm=[0, 2, 3, 1]}
  %v = Transpose(%v0) {perm=[0, 2, 1, 3]}
  %t = MatMul(%q, %k)
  %u = Div(%t, %eight)
  %a = Add(%mask, %u)
  %p = Softmax(%a) {axis=-1}
  %c = MatMul(%p, %v)
  %y = Transpose(%c) {perm=[0, 2, 1, 3]}
  origin "p" = same %p
  origin "c" = same %c
}
"""


def test_attention_of_bert_is_one_kernel_that_reads_by_strides() -> None:
    graph = graph_of(BERT)
    assert FuseAttention(ATTENTION).apply(graph)
    assert ops(graph) == ["Fused"]
    fused = graph.nodes[0]
    assert {v.name for v in fused.inputs} == {"q0", "k0", "v0", "mask"}
    body = fused.subgraphs["body"]
    assert sorted(n.op for n in body.nodes) == ["Attention", "Transpose", "Transpose", "Transpose", "Transpose"]
    attention = next(n for n in body.nodes if n.op == "Attention")
    assert attention.attrs["scale"] == pytest.approx(0.125)
    assert graph.origins["p"].relation == graph.origins["c"].relation == "interior"


def test_causal_where_becomes_an_added_mask() -> None:
    graph = graph_of(
        BERT.replace("%mask: f32[b, 1, 1, s]", "%mask: bool[1, 1, s, s]")
        .replace("%a = Add(%mask, %u)", "%a = Where(%mask, %u, %low)")
        .replace("  %q = Tr", "  const %low: f32[] = splat -3.4e+38\n  %q = Tr")
    )
    assert FuseAttention(ATTENTION).apply(graph)
    assert ops(graph) == ["Where", "Fused"]


def test_scores_that_are_read_elsewhere_stay() -> None:
    graph = graph_of(BERT.replace("-> (%y)", "-> (%y, %u)"))
    found = FuseAttention(ATTENTION)
    assert not found.apply(graph)
    assert "second use" in next(iter(found.declined.values()))


SIBLINGS = """\
graph g(%x: f32[b, s, 8]) -> (%y, %z, %r) {
  const %w1: f32[8, 4] = random seed 1 scale 1.0
  const %w2: f32[8, 4] = random seed 2 scale 1.0
  const %w3: f32[8, 4] = random seed 3 scale 1.0
  const %b1: f32[4] = random seed 4 scale 1.0
  const %b2: f32[4] = random seed 5 scale 1.0
  %p = MatMul(%x, %w1)
  %a = Add(%b1, %p)
  %q = MatMul(%x, %w2)
  %c = Add(%q, %b2)
  %e = MatMul(%x, %w3)
  %r = Relu(%e)
  %y = Transpose(%a) {perm=[0, 2, 1]}
  %z = Transpose(%c) {perm=[0, 2, 1]}
  origin "a" = same %a
  origin "p" = same %p
}
"""


def test_siblings_become_one_batched_product() -> None:
    graph = graph_of(SIBLINGS)
    w1, w2, b2 = (graph.values[n].data for n in ("w1", "w2", "b2"))
    assert MergeSiblingMatmuls(OWN).apply(graph)
    assert sorted(ops(graph)) == sorted(
        ["MatMul", "Add", "Split", "Squeeze", "Squeeze", "MatMul", "Relu", "Transpose", "Transpose"]
    )
    merged = next(n for n in graph.nodes if n.op == "MatMul" and n.output.rank == 4)
    assert str(merged.output).endswith("f32[2, b, s, 4]")
    np.testing.assert_array_equal(merged.inputs[1].data, np.stack([w1, w2])[:, None])
    bias = next(n for n in graph.nodes if n.op == "Add").inputs[1].data
    np.testing.assert_array_equal(bias[1], b2.reshape(1, 1, 4))
    assert graph.origins["a"].relation == "same"
    assert graph.origins["p"].relation == "interior"


def test_siblings_are_merged_for_a_chip_whose_products_are_of_halves() -> None:
    assert MergeSiblingMatmuls(kernels([target("Ascend310P3")])).apply(graph_of(SIBLINGS))


def test_siblings_stay_where_no_kernel_takes_the_batch() -> None:
    def refuses(node: Node) -> str | None:
        return "batches only of one" if any(v.shape and v.rank > 3 for v in node.outputs) else None

    found = MergeSiblingMatmuls(of(family("matmul", ["MatMul"], refuses=refuses)))
    assert not found.apply(graph_of(SIBLINGS))
    assert [(n.node, n.reason) for n in found.notes] == [(graph_of(SIBLINGS).nodes[0].name, "batches only of one")]


def test_products_of_different_widths_stay_apart() -> None:
    assert not MergeSiblingMatmuls(OWN).apply(graph_of(SIBLINGS.replace("%w2: f32[8, 4]", "%w2: f32[8, 5]").replace("%b2: f32[4]", "%b2: f32[5]")))
