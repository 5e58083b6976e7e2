"""A pattern for products: factors in any order and grouping, divisions and numbers included.

    product(x, op("Add", erf, scalar(1.0)), number=0.5)        # 0.5 * x * (1 + erf), however it is bracketed
    product(x, over=[op("Sqrt", variance)])                    # x / sqrt, x * (1 / sqrt), x * reciprocal(sqrt)

The value is a tree of Mul, Div, Reciprocal, Neg and small integer powers. Constants of one element anywhere in it
multiply to one number; every other leaf must match a factor, and every factor a leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graph_opt.ir.core import Node, Value
from graph_opt.ir.patterns import NodePattern, Pattern, State, Trace

_Term = tuple[Value | None, bool]
"""A factor of the product, and whether it divides."""


def product(*factors: Pattern, over: Sequence[Pattern] = (), number: float = 1.0, tolerance: float = 1e-6) -> Product:
    """`number` times the factors, divided by those of `over`, where `number` may be off by the relative `tolerance`."""
    return Product(factors, tuple(over), number, tolerance)


@dataclass(frozen=True)
class Product(NodePattern):
    """See `product`."""

    above: tuple[Pattern, ...]
    below: tuple[Pattern, ...]
    number: float
    tolerance: float
    names: frozenset[str] = frozenset({"Mul", "Div"})

    def states(self, value: Value | None, state: State, trace: Trace) -> Iterator[State]:
        yield from self._split(((value, False),), (self.above, self.below), 1.0, state, trace)

    def node_states(self, node: Node, state: State, trace: Trace) -> Iterator[State]:
        yield from self.states(node.output, state, trace)

    def _split(
        self,
        terms: tuple[_Term, ...],
        wanted: tuple[tuple[Pattern, ...], tuple[Pattern, ...]],
        number: float,
        state: State,
        trace: Trace,
    ) -> Iterator[State]:
        """Ways to match `terms` with the factors that are still wanted above and below the line."""
        if not terms:
            if abs(number - self.number) > self.tolerance * abs(self.number):
                trace.fail(f"the factor is {number:g}, not {self.number:g}", state)
            elif any(wanted):
                trace.fail("a factor is missing", state)
            else:
                yield state
            return
        (value, inverse), rest = terms[0], terms[1:]
        known = _number(value)
        if known is not None:
            if known or not inverse:
                yield from self._split(rest, wanted, number / known if inverse else number * known, state, trace)
            return
        side = wanted[inverse]
        for i, factor in enumerate(side):
            if factor in side[:i]:
                continue
            left = (*side[:i], *side[i + 1 :])
            pair = (wanted[0], left) if inverse else (left, wanted[1])
            for after in factor.states(value, state, trace):
                yield from self._split(rest, pair, number, after, trace)
        node = None if value is None else value.producer
        parts = () if node is None else _parts(node, inverse)
        left_over = [t for t in (*parts, *rest) if _number(t[0]) is None]
        if node is not None and parts and len(left_over) <= sum(map(len, wanted)):
            sign = -1.0 if node.op == "Neg" else 1.0
            yield from self._split((*parts, *rest), wanted, sign * number, state.with_node(node, False), trace)


def _number(value: Value | None) -> float | None:
    """The number of a constant of one element."""
    if value is None or value.recipe is None or value.recipe.size != 1 or not value.dtype.is_float:
        return None
    return float(value.recipe.array().reshape(()))


def _parts(node: Node, inverse: bool) -> tuple[_Term, ...]:
    """The factors of a node's result; none if it is no product."""
    x, y = node.input(0), node.input(1)
    if node.op == "Mul":
        return (x, inverse), (y, inverse)
    if node.op == "Div":
        return (x, inverse), (y, not inverse)
    if node.op == "Reciprocal":
        return ((x, not inverse),)
    if node.op == "Neg":
        return ((x, inverse),)
    if node.op == "Pow" and y is not None and y.recipe is not None and y.recipe.size == 1:
        power = float(y.recipe.array().reshape(()))
        return ((x, inverse),) * int(power) if power in (2.0, 3.0) else ()
    return ()
