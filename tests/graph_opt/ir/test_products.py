"""A product matches however it is bracketed, and only with its number and its factors."""

from __future__ import annotations

import random

import pytest

from graph_opt.ir.core import Graph
from graph_opt.ir.patterns import Declined, Match, any_value, match, op
from graph_opt.ir.products import product
from graph_opt.ir.text import parse

X = any_value("x")
PATTERN = product(op("Tanh", X), X, over=[op("Sqrt", any_value("v"))], number=-0.5)


def expression(seed: int, total: float, factors: tuple[str, ...], divisor: str = "%r") -> Graph:
    """total * the factors / the divisor as a random tree of Mul, Div, Reciprocal and Neg."""
    chance = random.Random(seed)
    parts = [(f, 1, False) for f in factors] + [(divisor, 1, True)]
    constants, lines = [], []

    def number(value: float) -> str:
        constants.append(f"const %k{len(constants)}: f32[] = splat {value}")
        return f"%k{len(constants) - 1}"

    def node(text: str) -> str:
        lines.append(f"%n{len(lines)} = {text}")
        return f"%n{len(lines) - 1}"

    first, second = chance.choice([(4.0, total / 4), (total, 1.0), (-2.0, total / -2)])
    parts += [(number(first), 0, False), (number(1 / second), 0, True)]
    while len(parts) > 1 or parts[0][2]:
        chance.shuffle(parts)
        if not parts[0][1] and (len(parts) == 1 or not parts[1][1]):
            continue  # operators on numbers alone are folded before
        if parts[0][1] and parts[0][2] and (len(parts) == 1 or chance.random() < 0.3):
            parts[0] = (node(f"Reciprocal({parts[0][0]})"), 1, False)
        elif parts[0][1] and chance.random() < 0.2:
            parts[0] = (node(f"Neg({node(f'Neg({parts[0][0]})')})"), 1, parts[0][2])
        elif len(parts) > 1:
            (a, _, below_a), (b, _, below_b) = parts[:2]
            if below_a and not below_b:
                a, below_a, b, below_b = b, below_b, a, below_a
            parts[:2] = [(node(f"{'Mul' if below_a == below_b else 'Div'}({a}, {b})"), 1, below_a)]
    last = f"%y = Mul({parts[0][0]}, {number(1.0)})"
    body = "\n".join([*constants, "%t = Tanh(%x)", "%r = Sqrt(%v)", *lines, last])
    return parse(f"graph g(%x: f32[n], %v: f32[n], %z: f32[n]) -> (%y) {{\n{body}\n}}")


def outcome(graph: Graph) -> Match | Declined:
    root = graph.values["y"].producer
    assert root is not None
    return match(PATTERN, root, graph)


@pytest.mark.parametrize("seed", range(30))
def test_any_bracketing_matches(seed: int) -> None:
    found = outcome(expression(seed, -0.5, ("%t", "%x")))
    assert isinstance(found, Match), found
    assert (found["x"].name, found["v"].name) == ("x", "v")


@pytest.mark.parametrize("seed", range(10))
def test_another_number_or_factor_does_not(seed: int) -> None:
    assert "not -0.5" in outcome(expression(seed, 0.5, ("%t", "%x"))).reason  # type: ignore[union-attr]
    for factors in (("%t",), ("%t", "%x", "%x"), ("%t", "%z")):
        assert isinstance(outcome(expression(seed, -0.5, factors)), Declined)
    assert isinstance(outcome(expression(seed, -0.5, ("%t", "%x"), "%v")), Declined)


@pytest.mark.parametrize(("power", "factors"), [(2, 2), (3, 3)])
def test_small_powers_are_products(power: int, factors: int) -> None:
    graph = parse(f"""graph g(%x: f32[n]) -> (%y) {{
      const %two: f32[] = splat 2.0
      const %p: i64[] = splat {power}
      %q = Pow(%x, %p)
      %y = Mul(%q, %two)
    }}""")
    root = graph.values["y"].producer
    assert root is not None
    assert isinstance(match(product(*[X] * factors, number=2.0), root, graph), Match)
    assert isinstance(match(product(*[X] * (factors + 1), number=2.0), root, graph), Declined)
