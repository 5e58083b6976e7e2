"""Every export form of an activation or a norm ends in one operator that onnxruntime computes to the same values."""

from __future__ import annotations

import numpy as np
import pytest

from graph_opt.fusion.expand_composites import ExpandComposites
from graph_opt.fusion.fuse_gelu import FuseGelu
from graph_opt.fusion.fuse_group_norm import FuseGroupNorm
from graph_opt.fusion.fuse_norms import FuseNorms
from graph_opt.fusion.fuse_softmax import FuseSoftmax
from graph_opt.ir.rules import RulePass
from tests.graph_opt.fusion.export_forms import check, graph_of

rng = np.random.default_rng(0)
X = rng.normal(size=(2, 3, 17)).astype(np.float32) * 2 + 1
HEAD = f"""\
graph g(%x: f32[b, s, 17]) -> (%y) {{
  const %axes: i64[1] = dense [-1]
  const %half: f32[] = splat 0.5
  const %one: f32[1] = splat 1.0
  const %zero: f32[] = splat 0.0
  const %two: f32[] = splat 2.0
  const %three: f32[] = splat 3.0
  const %minus: f32[] = splat -0.5
  const %eps: f32[] = splat 1e-05
  const %n: f32[] = splat 17.0
  const %part: f32[] = splat {1 / 17}
  const %root2: f32[] = splat {2**0.5}
  const %cubic: f32[] = splat 0.044715
  const %scale: f32[] = splat {(2 / np.pi) ** 0.5}
  const %gamma: f32[17] = random seed 1 scale 1.0
  const %beta: f32[1, 17] = random seed 2 scale 1.0
  const %row: f32[3, 1] = random seed 3 scale 1.0
  const %back: i64[3] = dense [0, 0, 1]
"""


def form(*lines: str) -> str:
    return HEAD + "".join(f"  {line}\n" for line in lines) + "}\n"


ERF = ("%d = Div(%x, %root2)", "%e = Erf(%d)", "%a = Add(%e, %one)")
CUBE = ("%u = Add(%x, %q)", "%v = Mul(%u, %scale)", "%t = Tanh(%v)", "%a = Add(%t, %one)")
TAIL = ("%h = Mul(%x, %half)", "%y = Mul(%h, %a)")
GELU = {
    "half of x": (*ERF, *TAIL),
    "half last": (*ERF, "%h = Mul(%x, %a)", "%y = Mul(%h, %half)"),
    "half of the bracket": (*ERF, "%h = Mul(%a, %half)", "%y = Mul(%x, %h)"),
    "halved by division": (*ERF, "%h = Mul(%x, %a)", "%y = Div(%h, %two)"),
    "power": ("%p = Pow(%x, %three)", "%q = Mul(%p, %cubic)", *CUBE, *TAIL),
    "cube of products": ("%p = Mul(%x, %x)", "%r = Mul(%p, %x)", "%q = Mul(%cubic, %r)", *CUBE, *TAIL),
    "factor first": ("%p = Mul(%cubic, %x)", "%r = Mul(%x, %p)", "%q = Mul(%x, %r)", *CUBE, *TAIL),
    "x outside": (
        "%p = Mul(%x, %x)", "%q = Mul(%cubic, %p)", "%u = Add(%one, %q)", "%w = Mul(%x, %scale)", "%v = Mul(%w, %u)",
        "%t = Tanh(%v)", "%a = Add(%t, %one)", *TAIL,
    ),
}  # fmt: skip


@pytest.mark.parametrize("lines", GELU.values(), ids=GELU)
def test_gelu(lines: tuple[str, ...]) -> None:
    graph = check(form(*lines), FuseGelu(), ["Gelu"], {"x": X})
    assert graph.nodes[0].attrs["approximate"] == ("none" if any("Erf" in line for line in lines) else "tanh")


MEAN = "%m = ReduceMean(%x, %axes)"
CENTRED = (MEAN, "%d = Sub(%x, %m)")
VARIANCE = ("%q = Mul(%d, %d)", "%v = ReduceMean(%q, %axes)", "%e = Add(%v, %eps)")
SQUARES = ("%q = Mul(%x, %x)", "%v = ReduceMean(%q, %axes)", "%e = Add(%v, %eps)")
INVERSE = ("%r = Sqrt(%e)", "%i = Reciprocal(%r)")
PARAMETERS = ("%g = Mul(%z, %gamma)", "%y = Add(%g, %beta)")
FLAX = (
    "%s1 = ReduceSum(%x, %axes) {keepdims=0}", "%m0 = Mul(%s1, %part)", "%q = Mul(%x, %x)",
    "%s2 = ReduceSum(%q, %axes) {keepdims=0}", "%m2 = Mul(%s2, %part)", "%sq = Mul(%m0, %m0)", "%w = Sub(%m2, %sq)",
    "%v0 = Max(%zero, %w)", "%v = Reshape(%v0, %back)", "%m = Reshape(%m0, %back)", "%e = Add(%v, %eps)",
)  # fmt: skip
LAYER = {
    "quotient": (*CENTRED, *VARIANCE, "%r = Sqrt(%e)", "%z = Div(%d, %r)", *PARAMETERS),
    "square by power": (
        *CENTRED, "%q = Pow(%d, %two)", "%v = ReduceMean(%q, %axes)", "%e = Add(%v, %eps)", "%r = Pow(%e, %half)",
        "%z = Div(%d, %r)", *PARAMETERS,
    ),
    "two differences": (
        MEAN, "%d = Sub(%x, %m)", "%d2 = Sub(%x, %m)", *VARIANCE, "%r = Sqrt(%e)", "%z = Div(%d2, %r)", *PARAMETERS,
    ),
    "reciprocal": (*CENTRED, *VARIANCE, *INVERSE, "%z = Mul(%d, %i)", *PARAMETERS),
    "one over": (*CENTRED, *VARIANCE, "%r = Sqrt(%e)", "%i = Div(%one, %r)", "%z = Mul(%d, %i)", *PARAMETERS),
    "scaled inverse": (*CENTRED, *VARIANCE, *INVERSE, "%k = Mul(%i, %gamma)", "%g = Mul(%d, %k)", "%y = Add(%g, %beta)"),
    "reassociated": (
        *CENTRED, *VARIANCE, *INVERSE, "%k = Mul(%i, %gamma)", "%p = Mul(%x, %k)", "%o = Mul(%m, %k)",
        "%c = Sub(%beta, %o)", "%y = Add(%p, %c)",
    ),
    "sums": (
        "%s = ReduceSum(%x, %axes)", "%m = Div(%s, %n)", "%d = Sub(%x, %m)", "%q = Mul(%d, %d)",
        "%t = ReduceSum(%q, %axes)", "%v = Mul(%t, %part)", "%e = Add(%v, %eps)", "%r = Sqrt(%e)", "%z = Div(%d, %r)",
        *PARAMETERS,
    ),
    "moments": (
        *FLAX, "%d = Sub(%x, %m)", *INVERSE, "%k = Mul(%i, %gamma)", "%g = Mul(%d, %k)", "%y = Add(%g, %beta)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("lines", LAYER.values(), ids=LAYER)
def test_layer_norm(lines: tuple[str, ...]) -> None:
    graph = check(form(*lines), FuseNorms(), ["LayerNormalization"], {"x": X})
    node = graph.nodes[0]
    assert len(node.inputs) == 3 and node.attrs["epsilon"] == pytest.approx(1e-5)


RMS = {
    "quotient": (*SQUARES, "%r = Sqrt(%e)", "%z = Div(%x, %r)", "%y = Mul(%gamma, %z)"),
    "reciprocal": (*SQUARES, *INVERSE, "%z = Mul(%x, %i)", "%y = Mul(%gamma, %z)"),
    "scaled inverse": (*SQUARES, *INVERSE, "%k = Mul(%i, %gamma)", "%y = Mul(%x, %k)"),
    "without gamma": (*SQUARES, *INVERSE, "%y = Mul(%x, %i)"),
    "length": ("%r = ReduceL2(%x, %axes)", "%y = Div(%x, %r)"),
    "length from squares": ("%q = Mul(%x, %x)", "%v = ReduceSum(%q, %axes)", "%r = Sqrt(%v)", "%y = Div(%x, %r)"),
    "length with epsilon": ("%v = ReduceSumSquare(%x, %axes)", "%e = Add(%v, %eps)", *INVERSE, "%y = Mul(%x, %i)"),
}


@pytest.mark.parametrize("lines", RMS.values(), ids=RMS)
def test_rms_and_l2_norm(lines: tuple[str, ...]) -> None:
    check(form(*lines), FuseNorms(), ["RMSNormalization"], {"x": X})


SHIFT = ("%m = ReduceMax(%x, %axes)", "%d = Sub(%x, %m)")
SOFTMAX = {
    "shifted": (*SHIFT, "%p = Exp(%d)", "%t = ReduceSum(%p, %axes)", "%y = Div(%p, %t)"),
    "plain": ("%p = Exp(%x)", "%t = ReduceSum(%p, %axes)", "%i = Reciprocal(%t)", "%y = Mul(%p, %i)"),
    "put back": (
        "%m0 = ReduceMax(%x, %axes) {keepdims=0}", "%m = Unsqueeze(%m0, %axes)", "%d = Sub(%x, %m)", "%p = Exp(%d)",
        "%t0 = ReduceSum(%p, %axes) {keepdims=0}", "%t = Reshape(%t0, %back)", "%y = Div(%p, %t)",
    ),
    "log of the sum": (*SHIFT, "%p = Exp(%d)", "%t = ReduceSum(%p, %axes)", "%l = Log(%t)", "%y = Sub(%d, %l)"),
    "log-sum-exp": ("%l = ReduceLogSumExp(%x, %axes)", "%y = Sub(%x, %l)"),
}  # fmt: skip


@pytest.mark.parametrize("name", SOFTMAX)
def test_softmax(name: str) -> None:
    check(form(*SOFTMAX[name]), FuseSoftmax(), ["LogSoftmax" if "log" in name else "Softmax"], {"x": X})


NEAR_MISSES = {
    "another use": (FuseNorms, form(*LAYER["quotient"]).replace("-> (%y)", "-> (%y, %v)"), "%v is a graph output"),
    "leading axes": (FuseNorms, form(*RMS["without gamma"]).replace("dense [-1]", "dense [1]"), "not over trailing axes"),
    "another count": (FuseNorms, form(*LAYER["sums"]).replace(f"splat {1 / 17}", "splat 0.0625"), "not divided by"),
    "put back elsewhere": (
        FuseSoftmax,
        form(*SOFTMAX["put back"]).replace("dense [0, 0, 1]", "dense [0, 1, -1]"),
        "does not come back where it was",
    ),
    "another constant": (FuseGelu, form(*GELU["half of x"]).replace(f"splat {2**0.5}", "splat 1.5"), "the factor is 0.66"),
}  # fmt: skip


@pytest.mark.parametrize(("fusion", "text", "reason"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_a_near_miss_says_why(fusion: type[RulePass], text: str, reason: str) -> None:
    graph, found = graph_of(text), fusion()
    assert not found.apply(graph)
    assert any(reason in note.reason for note in found.notes), found.notes


def test_a_variance_over_other_axes_than_the_mean_is_an_rms_norm_of_the_difference() -> None:
    text = form(*LAYER["quotient"]).replace("%v = ReduceMean(%q, %axes)", "%v = ReduceMean(%q, %both)")
    text = text.replace("  const %n:", "  const %both: i64[2] = dense [1, 2]\n  const %n:")
    check(text, FuseNorms(), ["ReduceMean", "Sub", "RMSNormalization", "Mul", "Add"], {"x": X})


HALVES = HEAD.replace("%x: f32", "%x: f16").replace("f32[17]", "f16[17]").replace("f32[1, 17]", "f16[1, 17]")


def test_casts_around_square_and_root_go() -> None:
    lines = (
        MEAN, "%d = Sub(%x, %m)", "%c = Cast(%d) {to=1}", "%q = Mul(%c, %c)", "%v = ReduceMean(%q, %axes)",
        "%e = Add(%v, %eps)", "%r = Sqrt(%e)", "%k = Cast(%r) {to=10}", "%z = Div(%d, %k)", *PARAMETERS,
    )  # fmt: skip
    text = HALVES + "".join(f"  {line}\n" for line in lines) + "}\n"
    graph = check(text, FuseNorms(), ["LayerNormalization"], {"x": X.astype(np.float16)}, rtol=8e-3)
    assert graph.outputs[0].dtype.name == "f16" and graph.nodes[0].inputs[1].dtype.name == "f16"


def test_a_norm_that_changes_the_dtype_keeps_its_casts() -> None:
    lines = (
        "%w = Cast(%x) {to=1}", "%q = Mul(%w, %w)", "%v = ReduceMean(%q, %axes)", "%e = Add(%v, %eps)", "%r = Sqrt(%e)",
        "%z = Div(%w, %r)", "%h = Cast(%z) {to=10}", "%y = Mul(%gamma, %h)",
    )  # fmt: skip
    text = HALVES + "".join(f"  {line}\n" for line in lines) + "}\n"
    expected = ["Cast", "RMSNormalization", "Cast", "Mul"]
    check(text, FuseNorms(), expected, {"x": X.astype(np.float16)}, rtol=4e-3)


def test_parameters_that_only_broadcast_stay_behind_the_norm() -> None:
    lines = [line.replace("%gamma", "%row") for line in LAYER["quotient"]]
    check(form(*lines).replace("b, s, 17", "b, 3, 17"), FuseNorms(), ["LayerNormalization", "Mul", "Add"], {"x": X})


IMAGE = rng.normal(size=(2, 6, 3, 5)).astype(np.float32) * 3 + 2
GROUPS = """\
graph g(%x: f32[n, 6, h, w]) -> (%y) {
  const %split: i64[3] = dense [0, 3, -1]
  const %ones: f32[3] = splat 1.0
  const %zeros: f32[3] = splat 0.0
  const %scale: f32[6] = random seed 1 scale 1.0
  const %bias: f32[6] = random seed 2 scale 1.0
  const %gamma: f32[6, 1, 1] = random seed 1 scale 1.0
  const %beta: f32[6, 1, 1] = random seed 2 scale 1.0
"""
EXPORTED = (
    "  %shape = Shape(%x)\n  %r = Reshape(%x, %split)\n  %i = InstanceNormalization(%r, %ones, %zeros) {epsilon=0.001}\n"
    "  %b = Reshape(%i, %shape)\n  %m = Mul(%b, %gamma)\n  %y = Add(%m, %beta)\n}\n"
)


def test_group_norm() -> None:
    operator = GROUPS + "  %y = GroupNormalization(%x, %scale, %bias) {num_groups=3, epsilon=0.001}\n}\n"
    # The target of a reshape to a shape that is known, but not as numbers, is dropped.
    known = EXPORTED.replace("%b = Reshape(%i, %shape)", "%b: f32[n, 6, h, w] = Reshape(%i)")
    for text in (operator, GROUPS + EXPORTED, GROUPS + known):
        graph = graph_of(text)
        assert FuseGroupNorm().apply(graph)
        assert "LayerNormalization" in [n.op for n in graph.nodes]
        assert not {"InstanceNormalization", "GroupNormalization", "Mul", "Add"} & {n.op for n in graph.nodes}


@pytest.mark.parametrize("tail", ["%g = Sigmoid(%a)\n  %y = Mul(%a, %g)", "%y = Relu(%a)"])
def test_an_activation_goes_before_the_reshape(tail: str) -> None:
    text = (GROUPS + EXPORTED).replace("%y = Add(%m, %beta)", "%a = Add(%m, %beta)\n  " + tail)
    graph = graph_of(text)
    assert FuseGroupNorm().apply(graph)
    assert [n.op for n in graph.nodes][-1] == "Reshape"
    assert graph.nodes[-1].inputs[0].producer.op == tail.split(" = ")[-1].partition("(")[0]


def test_groups_of_the_whole_batch_are_no_group_norm() -> None:
    found = FuseGroupNorm()
    assert not found.apply(graph_of((GROUPS + EXPORTED).replace("dense [0, 3, -1]", "dense [1, 3, -1]")))
    assert "whole channels" in found.notes[0].reason


TOKENS = """\
graph g(%x: f32[b, s, 17], %skip: f32[b, s, 17]) -> ({outputs}) {{
  const %gamma: f32[17] = random seed 1 scale 1.0
  const %beta: f32[17] = random seed 2 scale 1.0
  const %bias: f32[17] = random seed 3 scale 1.0
  {node}
}}
"""
SKIP = "com.microsoft::SkipLayerNormalization"
COMPOSITES = {
    "gelu": ("%y", "%y = com.microsoft::Gelu(%x)", ["Gelu"]),
    "bias gelu": ("%y", "%y = com.microsoft::BiasGelu(%x, %bias)", ["Add", "Gelu"]),
    "fast gelu": ("%y", "%y = com.microsoft::FastGelu(%x, %bias)", ["Add", "Gelu"]),
    "fast gelu alone": ("%y", "%y = com.microsoft::FastGelu(%x)", ["Gelu"]),
    "skip norm": ("%y", f"%y = {SKIP}(%x, %skip, %gamma, %beta, %bias)", ["Add", "Add", "LayerNormalization"]),
    "skip norm and sum": (
        "%y, %sum", f"%y, %m, %i, %sum = {SKIP}(%x, %skip, %gamma) {{epsilon=0.01}}", ["Add", "LayerNormalization"],
    ),
    "skip rms norm": (
        "%y, %sum", "%y, %m, %i, %sum = com.microsoft::SkipSimplifiedLayerNormalization(%x, %skip, %gamma, %bias)",
        ["Add", "Add", "RMSNormalization"],
    ),
    "l1": ("%y", "%y = LpNormalization(%x) {p=1, axis=1}", ["ReduceL1", "Equal", "Where", "Div"]),
    "l2": ("%y", "%y = LpNormalization(%x)", ["ReduceL2", "Equal", "Where", "Div"]),
    "mean and variance": (
        "%y", "%y = MeanVarianceNormalization(%x) {axes=[0, 2]}",
        ["ReduceMean", "Sub", "Mul", "ReduceMean", "Sqrt", "Add", "Div"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("outputs", "node", "expected"), COMPOSITES.values(), ids=COMPOSITES)
def test_composites(outputs: str, node: str, expected: list[str]) -> None:
    feeds = {"x": X.copy(), "skip": rng.normal(size=X.shape).astype(np.float32)}
    feeds["x"][1, 2] = 0.0
    check(TOKENS.format(outputs=outputs, node=node), ExpandComposites(), expected, feeds, rtol=1e-4)


def test_moments_of_a_skip_norm_keep_it() -> None:
    found = ExpandComposites()
    assert not found.apply(graph_of(TOKENS.format(outputs="%y, %m", node=f"%y, %m = {SKIP}(%x, %skip, %gamma)")))
    assert "mean or deviation" in found.notes[0].reason
