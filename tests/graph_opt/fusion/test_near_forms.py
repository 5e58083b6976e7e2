"""What looks like a known form and is another function keeps its meaning, whether something of it fuses or not."""

from __future__ import annotations

import numpy as np
import pytest

from graph_opt.fusion.fuse_attention import FuseAttention
from graph_opt.fusion.fuse_gelu import FuseGelu
from graph_opt.fusion.fuse_group_norm import FuseGroupNorm
from graph_opt.fusion.fuse_norms import FuseNorms
from graph_opt.fusion.fuse_softmax import FuseSoftmax
from graph_opt.fusion.merge_matmuls import MergeSiblingMatmuls
from graph_opt.ir.passes import Pass
from graph_opt.ir.verifier import verify
from tests.graph_opt.families import OWN
from tests.graph_opt.fusion.export_forms import graph_of
from tests.graph_opt.simplify.graph_to_onnx import run

RNG = np.random.default_rng(4)
N = 2000
HEAD = f"""\
graph g(%x: f32[3, {N}]) -> (%y) {{
  const %axes: i64[1] = dense [-1]
  const %eps: f32[] = splat 1e-05
  const %others: f32[] = splat {N - 1}.0
  const %root2: f32[] = splat {2**0.5}
  const %one: f32[] = splat 1.0
  const %more: f32[] = splat 1.0008
  const %half: f32[] = splat 0.5
  const %wide: f32[1, 1, 1] = splat 0.5
  const %gamma: f32[{N}] = random seed 1 scale 1.0
  const %weight: f32[{N}, 4] = random seed 2 scale 0.1
  const %other: f32[{N}, 4] = random seed 3 scale 0.1
  const %row: f32[1, 1, 4] = random seed 4 scale 1.0
"""
SHIFTED = ("%m = ReduceMax(%x, %axes)", "%s = Sub(%x, %m)")
CENTRED = ("%m = ReduceMean(%x, %axes)", "%d = Sub(%x, %m)", "%q = Mul(%d, %d)")
DEVIATION = ("%e = Add(%v, %eps)", "%r = Sqrt(%e)")
GELU = ("%d = Div(%x, %root2)", "%e = Erf(%d)")
NEAR: dict[str, tuple[Pass, tuple[str, ...]]] = {
    "maximum off the sum alone": (
        FuseSoftmax(),
        (*SHIFTED, "%e = Exp(%s)", "%t = ReduceSum(%e, %axes)", "%l = Log(%t)", "%y = Sub(%x, %l)"),
    ),
    "maximum off the values alone": (
        FuseSoftmax(),
        (*SHIFTED, "%e = Exp(%x)", "%t = ReduceSum(%e, %axes)", "%l = Log(%t)", "%y = Sub(%s, %l)"),
    ),
    "variance of a sample": (
        FuseNorms(),
        (*CENTRED, "%t = ReduceSum(%q, %axes)", "%v = Div(%t, %others)", *DEVIATION, "%y = Div(%d, %r)"),
    ),
    "norm with a factor": (
        FuseNorms(),
        (*CENTRED, "%v = ReduceMean(%q, %axes)", *DEVIATION, "%z = Div(%d, %r)", "%k = Mul(%z, %more)",
         "%y = Mul(%k, %gamma)"),
    ),
    "more than one added": (FuseGelu(), (*GELU, "%a = Add(%e, %more)", "%b = Mul(%x, %a)", "%y = Mul(%b, %half)")),
    "a number of three axes": (FuseGelu(), (*GELU, "%a = Add(%e, %one)", "%b = Mul(%x, %a)", "%y = Mul(%b, %wide)")),
    "a number as bias": (
        MergeSiblingMatmuls(OWN),
        ("%a = MatMul(%x, %weight)", "%b = Add(%a, %half)", "%c = MatMul(%x, %other)", "%d = Add(%c, %half)",
         "%y = Concat(%b, %d) {axis=0}"),
    ),
    "a bias of three axes": (
        MergeSiblingMatmuls(OWN),
        ("%a = MatMul(%x, %weight)", "%b = Add(%a, %row)", "%c = MatMul(%x, %other)", "%d = Add(%c, %row)",
         "%y = Concat(%b, %d) {axis=0}"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("step,lines", NEAR.values(), ids=NEAR)
def test_the_meaning_stays(step: Pass, lines: tuple[str, ...]) -> None:
    text = HEAD + "".join(f"  {line}\n" for line in lines) + "}\n"
    feeds = {"x": RNG.normal(size=(3, N)).astype(np.float32) + 5}
    graph = graph_of(text)
    wanted = run(graph, feeds)["y"]
    step.apply(graph)
    verify(graph)
    found = run(graph, feeds)["y"]
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


def test_an_activation_keeps_how_the_norm_was_reshaped() -> None:
    graph = graph_of(
        """\
        graph g(%x: f32[2, n, 4]) -> (%y) {
          dim n in [0, inf]
          const %gamma: f32[4] = splat 1.0
          const %target: i64[2] = dense [0, 8]
          %l = LayerNormalization(%x, %gamma)
          %r = Reshape(%l, %target) {allowzero=1}
          %y = Relu(%r)
        }
        """
    )
    FuseGroupNorm().apply(graph)
    assert [n.op for n in graph.nodes] == ["LayerNormalization", "Relu", "Reshape"]
    assert graph.nodes[-1].attrs["allowzero"] == 1


def _attention(q: str, k: str, v: str, mask: str = "1", fill: str = "", dtype: str = "f32") -> bool:
    """Whether softmax(QK + mask) V of these shapes, or with Where(c, scores, fill), becomes one kernel."""
    masked = "%c = Where(%w, %a, %fill)" if fill else "%c = Add(%a, %m)"
    graph = graph_of(
        f"""\
        graph g(%q: {dtype}[{q}], %k: {dtype}[{k}], %v: {dtype}[{v}], %m: {dtype}[{mask}], %w: bool[5, 7]) -> (%y) {{
          const %fill: {dtype}[] = splat {fill or 0}
          %kt = Transpose(%k) {{perm=[0, 1, 3, 2]}}
          %a = MatMul(%q, %kt)
          {masked}
          %p = Softmax(%c) {{axis=-1}}
          %y = MatMul(%p, %v)
        }}
        """
    )
    return FuseAttention(OWN).apply(graph)


@pytest.mark.parametrize(
    "q,k,v,mask",
    [
        ("2, 4, 5, 8", "1, 4, 7, 8", "1, 4, 7, 8", "1"),
        ("1, 4, 5, 8", "2, 4, 7, 8", "2, 4, 7, 8", "1"),
        ("2, 4, 5, 8", "2, 4, 7, 8", "1, 4, 7, 8", "1"),
        ("2, 4, 5, 8", "2, 4, 7, 8", "2, 1, 7, 8", "1"),
        ("2, 1, 5, 8", "2, 4, 7, 8", "2, 4, 7, 8", "1"),
        ("2, 4, 5, 8", "2, 4, 7, 8", "4, 7, 8", "1"),
        ("1, 4, 5, 8", "1, 4, 7, 8", "1, 4, 7, 8", "2, 1, 5, 7"),
        ("1, 4, 1, 8", "1, 4, 7, 8", "1, 4, 7, 8", "5, 7"),
        ("1, 4, 5, 8", "1, 4, 1, 8", "1, 4, 7, 8", "5, 7"),
    ],
)
def test_what_attention_does_not_broadcast(q: str, k: str, v: str, mask: str) -> None:
    assert not _attention(q, k, v, mask)


def test_what_attention_broadcasts() -> None:
    assert _attention("2, 4, 5, 8", "2, 4, 7, 8", "2, 4, 7, 8", "4, 1, 7")
    assert _attention("2, 4, 5, 8", "2, 1, 7, 8", "2, 1, 7, 8")


def test_what_has_no_kernel_stays_primitive() -> None:
    """Attention as ONNX has it pads a mask of one column and gives 0 for a row of -inf: another function."""
    assert not _attention("2, 4, 5, 8", "2, 4, 7, 8", "2, 4, 7, 8", "5, 1", dtype="f64")
    assert not _attention("2, h, 5, 8", "2, h, 7, 8", "2, h, 7, 8", "5, 1")


@pytest.mark.parametrize("fill,fuses", [("-65504.0", False), ("-1e4", False), ("-1e9", True), ("-inf", True)])
def test_a_row_that_is_masked_everywhere_has_equal_scores(fill: str, fuses: bool) -> None:
    """Where gives them the same number; an added one has to swallow the scores."""
    assert _attention("2, 4, 5, 8", "2, 4, 7, 8", "2, 4, 7, 8", fill=fill) is fuses
