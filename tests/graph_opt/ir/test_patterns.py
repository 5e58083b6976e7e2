"""Patterns match under any order of commutative inputs and any names, and say why they decline."""

import itertools

import pytest

from graph_opt.ir.core import Graph
from graph_opt.ir.passes import Note
from graph_opt.ir.patterns import (
    Declined,
    Match,
    any_value,
    constant,
    match,
    maybe,
    one_of,
    op,
    optional,
    scalar,
)  # fmt: skip
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.rules import Rule, apply_rules
from graph_opt.ir.text import parse, to_text
from graph_opt.ir.verifier import verify

X = any_value("x")
GELU = op("Mul", op("Mul", X, op("Add", op("Erf", op("Div", X, scalar(2**0.5))), scalar(1.0))), scalar(0.5))


def rewrite(rewriter: Rewriter, found: Match) -> None:
    new = rewriter.insert("Gelu", [found["x"]], before=found.root, name="gelu")
    rewriter.replace(found.root.output, new.output, "same")


def gelu_text(orders: tuple[bool, ...], extra: str = "") -> str:
    def pair(index: int, a: str, b: str) -> str:
        return f"{b}, {a}" if orders[index] else f"{a}, {b}"

    return f"""graph g(%in: f32[n]) -> (%out) {{
      const %r2: f32[] = splat 1.4142135
      const %one: f32[1] = splat 1.0
      const %half: f32[] = splat 0.5
      %p: f32[n] = Div(%in, %r2)
      %q: f32[n] = Erf(%p)
      %r: f32[n] = Add({pair(0, "%q", "%one")})
      %s: f32[n] = Mul({pair(1, "%in", "%r")})
      {extra}
      %out: f32[n] = Mul({pair(2, "%s", "%half")})
    }}"""


@pytest.mark.parametrize("orders", list(itertools.product([False, True], repeat=3)))
def test_commuted_inputs_match(orders: tuple[bool, ...]) -> None:
    graph = parse(gelu_text(orders))
    assert apply_rules(graph, [Rule("gelu", GELU, rewrite)])
    verify(graph)
    assert to_text(graph) == "graph g(%in: f32[n]) -> (%out) {\n  %out: f32[n] = Gelu(%in) @gelu\n}\n"


def declines(graph: Graph) -> list[Note]:
    found: list[Note] = []
    before = to_text(graph)
    assert not apply_rules(graph, [Rule("gelu", GELU, rewrite)], found)
    assert to_text(graph) == before
    return found


def test_an_interior_value_with_another_use_declines_with_the_reason() -> None:
    graph = parse(gelu_text((False,) * 3, "%z: f32[n] = Neg(%q) @thief").replace("(%out) {", "(%out, %z) {"))
    assert [d.reason for d in declines(graph)] == ["%q is also used by Neg 'thief'"]


def test_another_constant_declines_with_the_reason() -> None:
    graph = parse(gelu_text((False,) * 3).replace("splat 1.4142135", "splat 1.7"))
    assert [d.reason for d in declines(graph)] == ["%r2 is not the constant 1.4142135623730951"]


def test_a_capture_must_be_the_same_value_everywhere() -> None:
    text = gelu_text((False,) * 3).replace("(%in: f32[n])", "(%in: f32[n], %two: f32[n])")
    graph = parse(text.replace("Div(%in", "Div(%two"))
    assert [d.reason for d in declines(graph)] == ["%two is not the other x"]


CONV_BN = op(
    "BatchNormalization",
    maybe("Identity", op("Conv", any_value("x"), constant("w"), optional(constant("b")), name="conv")),
    constant("gamma"), constant("beta"), constant("mean"), constant("var"),
)  # fmt: skip

CONV_TEXT = """graph g(%x: f32[n, 3, 8, 8]) -> (%y) {{
  const %w: f32[4, 3, 1, 1] = random seed 1 scale 1.0
  const %c: f32[4] = random seed 2 scale 1.0
  %a = Conv(%x, %w{bias}) {{group=1}}
  %i = Identity(%a)
  %y = BatchNormalization({of}, %c, %c, %c, %c)
}}"""


@pytest.mark.parametrize("of", ["%a", "%i"])
@pytest.mark.parametrize("bias", ["", ", _", ", %c"])
def test_optional_inputs_and_nodes(of: str, bias: str) -> None:
    graph = parse(CONV_TEXT.format(of=of, bias=bias))
    found = match(CONV_BN, graph.values["y"].producer, graph)
    if of == "%a":
        assert isinstance(found, Declined)  # the Identity is a second use of the convolution
        Rewriter(graph).erase_dead()
        found = match(CONV_BN, graph.values["y"].producer, graph)
    assert isinstance(found, Match)
    assert found["w"].name == "w"
    assert (found.get("b") is not None) == (bias == ", %c")
    assert found.node("conv").op == "Conv"
    assert len(found.nodes) == (3 if of == "%i" else 2)


def test_attributes_count_with_their_defaults() -> None:
    graph = parse("graph g(%x: f32[n, 4]) -> (%y) {\n  %y = Softmax(%x)\n}")
    node = graph.nodes[0]
    assert isinstance(match(op("Softmax", X, attrs={"axis": -1}), node, graph), Match)
    assert isinstance(match(op("Softmax", X, attrs={"axis": lambda a: a == 1}), node, graph), Declined)


def test_shared_nodes_and_alternatives() -> None:
    graph = parse("""graph g(%x: f32[n]) -> (%y, %z) {
      %a = Sigmoid(%x)
      %y = Mul(%a, %x)
      %z = Exp(%a)
    }""")
    root = graph.values["y"].producer
    strict = op("Mul", X, one_of(op("Tanh", X), op("Sigmoid", X)))
    loose = op("Mul", X, one_of(op("Tanh", X), op("Sigmoid", X, shared=True)))
    assert isinstance(match(strict, root, graph), Declined)
    assert isinstance(match(loose, root, graph), Match)


def test_a_rewrite_may_decline() -> None:
    graph = parse("graph g(%x: f32[n]) -> (%y) {\n  %y = Exp(%x) @e\n}")
    found: list[Note] = []
    assert not apply_rules(graph, [Rule("r", op("Exp", X), lambda r, m: Declined("too small"))], found)
    assert found == [Note("e", "r", "too small")]
