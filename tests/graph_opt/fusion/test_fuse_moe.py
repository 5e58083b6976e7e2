"""Mixture of experts: exported forms as text, what they become, and near misses. Numbers come from numpy, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from acl_runtime.aicpu import evaluate
from graph_opt.fusion.fuse_moe import FuseMoe
from graph_opt.ir import Graph
from graph_opt.ir.text import parse
from graph_opt.ir.verifier import verify

E, D, H = 3, 6, 5
Text = Callable[[int, str], list[str]]
"""Lines of an expert's body over %{x}: its last value is %o{e}."""


def gated(e: int, x: str) -> list[str]:
    return [
        f"%g{e} = MatMul(%{x}, %wg{e})", f"%s{e} = Sigmoid(%g{e})", f"%a{e} = Mul(%g{e}, %s{e})",
        f"%u{e} = MatMul(%{x}, %wu{e})", f"%p{e} = Mul(%a{e}, %u{e})", f"%o{e} = MatMul(%p{e}, %wd{e})",
    ]  # fmt: skip


def commuted(e: int, x: str) -> list[str]:
    """As `gated`; odd experts have the operands of their products the other way round."""
    swaps = {f"Mul(%g{e}, %s{e})": f"Mul(%s{e}, %g{e})", f"Mul(%a{e}, %u{e})": f"Mul(%u{e}, %a{e})"}
    lines = gated(e, x)
    for a, b in swaps.items() if e % 2 else ():
        lines = [line.replace(a, b) for line in lines]
    return lines


def biased(e: int, x: str) -> list[str]:
    """Biases, a factor and a slope of each expert's own, and one number for all."""
    return [
        f"%h{e} = MatMul(%{x}, %wg{e})", f"%b{e} = Add(%bias{e}, %h{e})", f"%c{e} = Clip(%b{e}, _, %six)",
        f"%f{e} = Mul(%c{e}, %factor{e})", f"%o_{e} = MatMul(%f{e}, %wd{e})", f"%o{e} = Add(%o_{e}, %outer{e})",
    ]  # fmt: skip


CONSTANTS = "\n".join(
    [f"  const %wg{e}: f32[{D}, {H}] = random seed {9 * e + 1} scale 0.5\n"
     f"  const %wu{e}: f32[{D}, {H}] = random seed {9 * e + 2} scale 0.5\n"
     f"  const %wd{e}: f32[{H}, {D}] = random seed {9 * e + 3} scale 0.5\n"
     f"  const %bias{e}: f32[{H}] = random seed {9 * e + 4} scale 0.5\n"
     f"  const %outer{e}: f32[1, {D}] = random seed {9 * e + 5} scale 0.5\n"
     f"  const %factor{e}: f32[] = splat {1.5 - e}\n"
     f"  const %e{e}: i64[] = splat {e}" for e in range(E)]
)  # fmt: skip
HEAD = f"""\
graph g(%x: f32[n, {D}], %logits: f32[n, {E}]) -> (%y) {{
{CONSTANTS}
  const %six: f32[] = splat 0.75
  const %none: f32[] = splat 0.0
  const %last: i64[1] = dense [-1]
  const %one: i64[1] = dense [1]
  const %k: i64[1] = dense [2]
  %w: f32[n, 2], %i: i64[n, 2] = TopK(%logits, %k) {{axis=-1}}
"""


def weights(e: int) -> list[str]:
    return [f"%hit{e} = Equal(%i, %e{e})", f"%float{e} = Cast(%hit{e}) {{to=1}}", f"%wh{e} = Mul(%w, %float{e})",
            f"%w{e} = ReduceSum(%wh{e}, %last) {{keepdims=1}}"]  # fmt: skip


def dense(body: Text = gated) -> str:
    lines = [line for e in range(E) for line in (*weights(e), *body(e, "x"), f"%t{e} = Mul(%o{e}, %w{e})")]
    lines += ["%y1 = Add(%t0, %t1)", "%y = Add(%y1, %t2)"]
    return HEAD + "\n".join(f"  {line}" for line in lines) + "\n}\n"


def sparse(body: Text = gated) -> str:
    lines = ["%shape = Shape(%x)", "%y0 = Expand(%none, %shape)"]
    for e in range(E):
        lines += [
            *weights(e), f"%flat{e} = Squeeze(%w{e}, %one)", f"%used{e} = Greater(%flat{e}, %none)",
            f"%nz{e} = NonZero(%used{e})", f"%rows{e} = Transpose(%nz{e}) {{perm=[1, 0]}}",
            f"%r{e} = Squeeze(%rows{e}, %one)", f"%x{e} = Gather(%x, %r{e}) {{axis=0}}", *body(e, f"x{e}"),
            f"%v{e} = Gather(%w{e}, %r{e}) {{axis=0}}", f"%t{e} = Mul(%o{e}, %v{e})",
            f"%y{e + 1} = ScatterND(%y{e}, %rows{e}, %t{e}) {{reduction=\"add\"}}",
        ]  # fmt: skip
    return HEAD.replace("-> (%y)", f"-> (%y{E})") + "\n".join(f"  {line}" for line in lines) + "\n}\n"


def expert(graph: Graph, body: Text, e: int, x: np.ndarray) -> np.ndarray:
    """What a body computes, in float64."""
    c = {name[: -len(str(e))]: np.asarray(v.data, np.float64) for name, v in graph.values.items()
         if v.data is not None and name.endswith(str(e))}  # fmt: skip
    if body is biased:
        return np.minimum(c["bias"] + x @ c["wg"], 0.75) * c["factor"] @ c["wd"] + c["outer"][0]
    gate = x @ c["wg"]
    return gate / (1 + np.exp(-gate)) * (x @ c["wu"]) @ c["wd"]


def routed(graph: Graph, body: Text, x: np.ndarray, weights: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Token by token: the sum over the experts that it chose."""
    y = np.zeros((*x.shape[:-1], D))
    for t in np.ndindex(x.shape[:-1]):
        for weight, e in zip(weights[t], indices[t], strict=True):
            if 0 <= e < E:
                y[t] += float(weight) * expert(graph, body, int(e), x[t].astype(np.float64))
    return y


def top(logits: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    indices = np.argsort(-logits, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(logits, indices, -1), indices


def run(graph: Graph, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    """The first output, operator by operator in numpy."""
    values = {v.name: np.asarray(v.data) for v in graph.constants()} | dict(feeds)
    for node in graph.nodes:
        inputs = [None if v is None else values[v.name] for v in node.inputs]
        results = evaluate(node.op, node.attrs, inputs, len(node.outputs))
        values.update({v.name: r for v, r in zip(node.outputs, results, strict=True)})
    return np.asarray(values[graph.outputs[0].name])


def fused(text: str) -> tuple[Graph, Graph]:
    """The graph before and after the pass, which must apply and leave nothing of the form behind."""
    before, after = parse(text), parse(text)
    verify(before)
    found = FuseMoe()
    assert found.apply(after), found.declined
    verify(after)
    ops = [n.op for n in after.nodes]
    assert ops.count("MoeRoute") == 1
    assert not {"MatMul", "NonZero", "ScatterND", "ScatterElements", "Equal"} & set(ops)
    assert after.outputs[0].name == before.outputs[0].name
    return before, after


def feeds(tokens: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(tokens, D)).astype(np.float32),
            "logits": rng.normal(size=(tokens, E)).astype(np.float32)}  # fmt: skip


@pytest.mark.parametrize("body", [gated, commuted, biased])
@pytest.mark.parametrize("form", [dense, sparse])
def test_the_exported_forms(form: Callable[[Text], str], body: Text) -> None:
    before, after = fused(form(body))
    products = [n for n in after.nodes if n.op == "GroupedMatMul"]
    assert len(products) == (2 if body is biased else 3)
    assert all(n.inputs[1] is not None and n.inputs[1].shape[0] == E for n in products)
    for tokens in (1, 7, 33):
        given = feeds(tokens)
        weight, indices = top(given["logits"], 2)
        # The sparse form asks for weights above 0.
        weight = np.maximum(weight, 0) if form is sparse else weight
        want = routed(before, body, given["x"], weight, indices)
        np.testing.assert_allclose(run(after, given), want, 1e-5, 1e-5)
        np.testing.assert_allclose(run(before, given), want, 1e-5, 1e-5)


def test_tokens_go_through_their_experts_alone() -> None:
    _, after = fused(dense())
    tokens = next(n for n in after.nodes if n.op == "MoeRoute").inputs[0]
    (product,) = {n.output.shape[0] for n in after.nodes if n.op == "GroupedMatMul" and n.output.shape}
    assert tokens is not None and tokens.shape is not None and product == 2 * tokens.shape[0]


@pytest.mark.parametrize("form", [dense, sparse])
def test_origins(form: Callable[[Text], str]) -> None:
    text = form(gated).rstrip()[:-1]
    names = ["g1", "p2", "o0", "t1", "wh0", "hit2"]
    graph = parse(text + "".join(f'  origin "src_{n}" = same %{n}\n' for n in names) + '  origin "i" = same %i\n}\n')
    assert FuseMoe().apply(graph)
    public = graph.outputs[0].name
    assert {(graph.origins[f"src_{n}"].relation, graph.origins[f"src_{n}"].value) for n in names} == {
        ("interior", public)
    }
    assert graph.origins["i"].relation == "same"


def test_other_terms_of_the_sum_stay() -> None:
    text = dense().replace("%y = Add(%y1, %t2)", "%y2 = Add(%x, %y1)\n  %y = Sum(%t2, %y2, %x)")
    before, after = fused(text)
    given = feeds(9)
    want = routed(before, gated, given["x"], *top(given["logits"], 2)) + 2 * given["x"].astype(np.float64)
    np.testing.assert_allclose(run(after, given), want, 1e-5, 1e-5)


def test_a_base_of_other_numbers_is_added() -> None:
    text = sparse().replace("ScatterND(%y0,", "ScatterND(%x,")
    before, after = fused(text)
    given = feeds(9)
    weight, indices = top(given["logits"], 2)
    want = routed(before, gated, given["x"], np.maximum(weight, 0), indices) + given["x"].astype(np.float64)
    np.testing.assert_allclose(run(after, given), want, 1e-5, 1e-5)


def test_scatter_elements() -> None:
    text = sparse()
    for e in range(E):
        old = f'ScatterND(%y{e}, %rows{e}, %t{e}) {{reduction="add"}}'
        spread = f"%size{e} = Shape(%t{e})\n  %wide{e} = Expand(%rows{e}, %size{e})\n  %y{e + 1} = "
        assert f"%y{e + 1} = {old}" in text
        new = f'ScatterElements(%y{e}, %wide{e}, %t{e}) {{axis=0, reduction="add"}}'
        text = text.replace(f"%y{e + 1} = {old}", spread + new)
    before, after = fused(text)
    given = feeds(9)
    weight, indices = top(given["logits"], 2)
    want = routed(before, gated, given["x"], np.maximum(weight, 0), indices)
    np.testing.assert_allclose(run(after, given), want, 1e-5, 1e-5)


def test_tokens_of_which_any_choice_hits() -> None:
    text = sparse()
    for e in range(E):
        text = text.replace(
            f"%used{e} = Greater(%flat{e}, %none)",
            f"%whole{e} = Cast(%hit{e}) {{to=6}}\n  %any{e} = ReduceMax(%whole{e}, %last) {{keepdims=0}}\n"
            f"  %used{e} = Cast(%any{e}) {{to=9}}",
        ).replace(f"  %flat{e} = Squeeze(%w{e}, %one)\n", "")
    before, after = fused(text)
    given = feeds(9)
    want = routed(before, gated, given["x"], *top(given["logits"], 2))
    np.testing.assert_allclose(run(after, given), want, 1e-5, 1e-5)


def test_weights_by_where() -> None:
    text = dense().replace("Mul(%w, %float1)", "Where(%hit1, %w, %none)")
    text = text.replace("  %float1 = Cast(%hit1) {to=1}\n", "")
    before, after = fused(text)
    given = feeds(9)
    want = routed(before, gated, given["x"], *top(given["logits"], 2))
    np.testing.assert_allclose(run(after, given), want, 1e-5, 1e-5)


def test_several_leading_axes() -> None:
    text = dense().replace(f"f32[n, {D}], %logits: f32[n, {E}]", f"f32[b, n, {D}], %logits: f32[b, n, {E}]")
    text = text.replace("f32[n, 2]", "f32[b, n, 2]").replace("i64[n, 2]", "i64[b, n, 2]")
    before, after = fused(text)
    given = {k: v.reshape(2, 5, -1) for k, v in feeds(10).items()}
    want = routed(before, gated, given["x"], *top(given["logits"], 2))
    np.testing.assert_allclose(run(after, given), want, 1e-5, 1e-5)


def test_indices_that_name_no_expert_contribute_nothing() -> None:
    text = dense().replace("%logits: f32[n, 3]", "%w: f32[n, 2], %i: i64[n, 2]")
    text = "\n".join(line for line in text.split("\n") if "TopK" not in line)
    before, after = fused(text)
    rng = np.random.default_rng(5)
    given = {"x": feeds(40)["x"], "w": rng.normal(size=(40, 2)).astype(np.float32), "i": rng.integers(-2, 6, (40, 2))}
    assert (given["i"][:, 0] == given["i"][:, 1]).any(), "a token that chooses an expert twice"
    want = routed(before, gated, given["x"], given["w"], given["i"])
    np.testing.assert_allclose(run(after, given), want, 1e-5, 1e-5)
    # A row that no expert's is stays 0 even if the token holds infinities.
    given["x"][3], given["i"][3] = np.inf, -1
    np.testing.assert_array_equal(run(after, given)[3], np.zeros(D))


ONE = f"""\
graph g(%x: f32[n, {D}], %i: i64[n]) -> (%y{E}) {{
{CONSTANTS}
  const %six: f32[] = splat 0.75
  const %y0: f32[7, {D}] = splat 0.0
"""


def one_choice() -> str:
    """Indices without an axis of choices, no weights, GatherND, rows that are written instead of added."""
    lines = []
    for e in range(E):
        lines += [
            f"%hit{e} = Equal(%e{e}, %i)", f"%nz{e} = NonZero(%hit{e})", f"%rows{e} = Transpose(%nz{e}) {{perm=[1, 0]}}",
            f"%x{e} = GatherND(%x, %rows{e})", *biased(e, f"x{e}"),
            f"%y{e + 1} = ScatterND(%y{e}, %rows{e}, %o{e})",
        ]  # fmt: skip
    return ONE.replace("[n", "[7") + "\n".join(f"  {line}" for line in lines) + "\n}\n"


def test_one_choice_without_weights() -> None:
    before, after = fused(one_choice())
    for indices in ([2, 0, 0, 1, 2, 0, 1], [1] * 7, [0, 3, -1, 2, 1, 5, 0]):
        given = {"x": feeds(7)["x"], "i": np.array(indices)}
        want = routed(before, biased, given["x"], np.ones((7, 1)), given["i"][:, None])
        np.testing.assert_allclose(run(after, given), want, 1e-5, 1e-5)


EXTRA = f"""\
const %wsq: f32[{E}, {H}] = random seed 99 scale 1.0
  const %wrow: f32[1, {D}] = random seed 98 scale 1.0
  const %c: bool[] = splat true
"""
NEAR_MISSES: dict[str, tuple[str, str, str, str]] = {
    "another operator": (dense(), "%s1 = Sigmoid", "%s1 = Tanh", "expert 1 computes something else"),
    "another number in a clip": (
        dense(biased), "%c1 = Clip(%b1, _, %six)", "%c1 = Clip(%b1, _, %factor1)", "computes something else"
    ),
    "another attribute": (
        dense().replace("Sigmoid(%g0)", "HardSigmoid(%g0)").replace("Sigmoid(%g2)", "HardSigmoid(%g2)"),
        "Sigmoid(%g1)", "HardSigmoid(%g1) {alpha=0.5}", "computes something else"
    ),
    "matrices of another size": (
        dense().replace("const %wu1: f32[6, 5]", "const %wu1: f32[6, 1]"), "", "", "computes something else"
    ),
    "another operand": (dense(), "%u1 = MatMul(%x, %wu1)", "%u1 = MatMul(%logits, %wsq)", "computes something else"),
    "a value with another use": (dense(), "-> (%y)", "-> (%y, %p1)", "expert 1 computes something else"),
    "an expert is missing": (dense(), "const %e1: i64[] = splat 1", "const %e1: i64[] = splat 3", "numbers are"),
    "an expert occurs twice": (dense(), "const %e1: i64[] = splat 1", "const %e1: i64[] = splat 0", "numbers are"),
    "other indices": (dense(), "%hit1 = Equal(%i, %e1)", "%i1 = Neg(%i)\n  %hit1 = Equal(%i1, %e1)", "different indices"),
    "a matrix that only the run knows": (
        dense(), "%g1 = MatMul(%x, %wg1)", "%wr1 = Softmax(%wg1)\n  %g1 = MatMul(%x, %wr1)", "expert 1 computes"
    ),
    "rows that are constants": (
        dense(), "%g1 = MatMul(%x, %wg1)", "%g1 = MatMul(%wrow, %wg1)", "does not have one row"
    ),
    "a constant of each token": (
        dense(biased).replace("[n,", "[7,").replace("const %bias1: f32[5]", "const %bias1: f32[7, 5]"), "", "",
        "differs from token to token"
    ),
    "an expert of very many nodes": (
        dense(), "%s1 = Sigmoid(%g1)", "\n  ".join(
            ["%c0 = Abs(%g1)", *(f"%c{i + 1} = Abs(%c{i})" for i in range(2000)), "%s1 = Sigmoid(%c2000)"]),
        "more than"
    ),
    "no product": (
        "".join(line + "\n" for line in dense(lambda e, x: [f"%o{e} = Relu(%{x})"]).splitlines()), "", "", "no products"
    ),
    "tokens of another expert": (sparse(), "%x1 = Gather(%x, %r1)", "%x1 = Gather(%x, %r0)", "one row of static length"),
    "the weight of another expert": (
        sparse(), "%v1 = Gather(%w1, %r1)", "%v1 = Gather(%w0, %r1)", "computes something else"
    ),
    "rows of another axis": (sparse(), "Gather(%x, %r1) {axis=0}", "Gather(%x, %r1) {axis=1}", "one row of static length"),
    "rows written over each other": (sparse(), ' {reduction="add"}', "", "more than once"),
    "a base that is overwritten": (one_choice(), "%y0: f32[7, 6] = splat 0.0", "%y0: f32[7, 6] = splat 1.0", "zeros"),
    "an expert chosen twice": (
        sparse(), "TopK(%logits, %k) {axis=-1}", "TopK(%logits, %k) {axis=0}", "may choose an expert twice"
    ),
    "a maximum is no weight": (dense(), "%w1 = ReduceSum(", "%w1 = ReduceMax(", "numbers are [0, 2]"),
    "a mean is no weight": (dense(), "%w1 = ReduceSum(", "%w1 = ReduceMean(", "numbers are [0, 2]"),
    "a threshold above 0": (
        sparse(), "Greater(%flat1, %none)", "Greater(%flat1, %six)", "numbers are"
    ),
    "under a condition": (dense(), "%p1 = Mul(%a1, %u1)", "%p1 = Mul(%a1, %u1) if %c", "conditions"),
}  # fmt: skip


@pytest.mark.parametrize("miss", NEAR_MISSES)
def test_near_misses(miss: str) -> None:
    text, old, new, reason = NEAR_MISSES[miss]
    changed = text.replace(old, new)
    assert not old or changed != text
    graph = parse(changed.replace("const %six", f"{EXTRA}  const %six"))
    before = [n.op for n in graph.nodes]
    found = FuseMoe()
    assert not found.apply(graph)
    assert [n.op for n in graph.nodes] == before
    assert any(reason in text for text in found.declined.values()), found.declined


@pytest.mark.parametrize(
    "text",
    [
        dense().replace("Mul(%o0, %w0)", "Relu(%o0)").replace("Mul(%o1, %w1)", "Relu(%o1)").replace("Mul(%o2, %w2)",
                                                                                                  "Relu(%o2)"),
        "graph g(%x: f32[n, 6], %z: f32[n, 6]) -> (%y) {\n  %y = Add(%x, %z)\n}\n",
    ],
)  # fmt: skip
def test_sums_without_experts_are_no_candidates(text: str) -> None:
    found = FuseMoe()
    assert not found.apply(parse(text)) and not found.declined
