"""What each expert computes, matched structurally against what the others compute.

The *body* of an expert is what leads from its tokens' rows to its result: products with constant matrices and
element-wise operators. Bodies agree if they are the same expression up to the content of constants; operands of
commutative operators may stand in any order. Nothing is known of the expression beforehand.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from graph_opt.ir import Node, Value, ops
from graph_opt.ir.core import AttrValue
from graph_opt.ir.rewriter import Rewriter
from tensor_types.dims import Dim
from tensor_types.recipes import reshape, stack

_SPREADS = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", "Where", "PRelu"})
"""Operators whose constant operands may differ from expert to expert: they broadcast."""

_MOST_NODES = 200
"""Of a body, whose values are visited by recursion."""


class Mismatch(Exception):  # noqa: N818 (an outcome, not an error)
    """Why the experts cannot be computed together."""


@dataclass(frozen=True)
class Leaf:
    """Where a body begins: the rows of `source` [*tokens, width]; with `of_choice`, of each choice its element of
    `source` [*tokens, k], or 1 if that is None."""

    source: Value | None
    of_choice: bool = False


@dataclass
class Body:
    """The body of one expert that gives `result`.

    `lead` are the leading extents of its values, which have one row for each token. `known_leaf` tells leaves by what
    they are; with `open`, whatever the body does not compute is a leaf too.
    """

    result: Value
    lead: tuple[Dim, ...]
    known_leaf: Callable[[Value], Leaf | None]
    open: bool
    nodes: set[Node] = field(default_factory=set)
    operands: dict[Node, list[Value | None]] = field(default_factory=dict)
    """The inputs of each node, in an order that is the same for all bodies that agree."""

    def grow(self, order: Mapping[Node, int], public: set[Value]) -> None:
        """Finds the nodes that only this body needs, from the result upwards; `public` values are needed elsewhere."""
        heap: list[int] = []  # users first
        waiting: dict[int, Node] = {}

        def visit(value: Value | None) -> None:
            if value is not None and value.producer is not None and self.known_leaf(value) is None:
                at = order[value.producer]
                if at not in waiting:
                    waiting[at] = value.producer
                    heapq.heappush(heap, -at)

        visit(self.result)
        while heap:
            node = waiting[-heapq.heappop(heap)]
            mine = node is self.result.producer or (
                public.isdisjoint(node.outputs) and all(u in self.nodes for v in node.outputs for u, _ in v.uses)
            )
            if mine and _acts_on_rows(node):
                self.nodes.add(node)
                for value in node.inputs:
                    visit(value)

    def leaf_of(self, value: Value) -> Leaf | None:
        """The leaf that a value is, None if it is none."""
        leaf = self.known_leaf(value)
        if leaf is None and self.open and not value.is_constant and value.producer not in self.nodes:
            return Leaf(value)
        return leaf

    def number(self, expressions: Expressions) -> int:
        """The number of the body's expression; Mismatch says why it has none."""
        if len(self.nodes) > _MOST_NODES:
            raise Mismatch(f"an expert of more than {_MOST_NODES} nodes")
        return self._number(self.result, None, expressions, {})

    def _number(self, value: Value, user: Node | None, expressions: Expressions, found: dict[Value, int]) -> int:
        if value in found:
            return found[value]
        if value.is_constant:
            return expressions.number(_constant_key(value, user))
        leaf, node = self.leaf_of(value), value.producer
        if leaf is None and node not in self.nodes:
            raise Mismatch(f"%{value.name} is not computed row by row and for one expert alone")
        if not value.shape or value.shape[:-1] != self.lead or not isinstance(value.shape[-1], int):
            raise Mismatch(f"%{value.name} does not have one row of static length for each token")
        key: tuple[object, ...] = ("leaf", leaf)
        if leaf is None and node is not None:
            numbers = [0 if v is None else self._number(v, node, expressions, found) for v in node.inputs]
            places = list(range(len(numbers)))
            declared = ops.get(node.op)
            if declared is not None and declared.commutative:
                places.sort(key=lambda i: numbers[i])
            self.operands[node] = [node.inputs[i] for i in places]
            attrs = tuple(sorted((k, str(v)) for k, v in node.attrs.items()))
            key = (node.op, attrs, *(numbers[i] for i in places))
        found[value] = expressions.number(key)
        return found[value]


class Expressions:
    """Numbers for expressions, equal for equal ones."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}

    def number(self, key: object) -> int:
        """The number of a key, above 0."""
        return self._numbers.setdefault(key, len(self._numbers) + 1)


def _acts_on_rows(node: Node) -> bool:
    declared = ops.get(node.op)
    if len(node.outputs) != 1 or declared is None:
        return False
    if node.op == "MatMul":
        x, weight = node.inputs
        return x is not None and not x.is_constant and weight is not None and weight.is_constant and weight.rank == 2
    return declared.kind == "elementwise" and declared.deterministic


def _constant_key(value: Value, user: Node | None) -> tuple[object, ...]:
    """Matrices and what broadcasts along rows count by shape, other constants by content."""
    recipe = value.recipe
    assert recipe is not None
    if user is not None and user.op == "MatMul":
        return "matrix", recipe.shape, value.dtype
    if recipe.size not in (1, recipe.shape[-1] if recipe.shape else 1):
        raise Mismatch(f"%{value.name} differs from token to token")
    content = b"" if user is not None and user.op in _SPREADS else recipe.array().tobytes()
    return "constant", recipe.size, value.dtype, content


class RowBodies:
    """Emits the bodies of all experts at once, over rows sorted by expert and before the node `before`.

    The bodies must have equal numbers. `leaf_rows` gives the rows [rows, width] of a leaf, `per_row` takes a constant
    [experts, width] to the line of each row's expert; `offsets` are those of MoeRoute.
    """

    def __init__(
        self, rewriter: Rewriter, bodies: Sequence[Body], leaf_rows: Callable[[Leaf], Value],
        per_row: Callable[[Value], Value], offsets: Value, before: Node,
    ) -> None:  # fmt: skip
        self.rewriter, self.bodies, self.before = rewriter, bodies, before
        self.leaf_rows, self.per_row, self.offsets = leaf_rows, per_row, offsets
        self._made: dict[tuple[Value | None, ...], Value] = {}

    def result(self) -> Value:
        """The results [rows, width] of the experts."""
        result = self._rows([b.result for b in self.bodies])
        assert result is not None
        return result

    def _rows(self, values: Sequence[Value | None]) -> Value | None:
        """One value of each expert as rows, or as a constant that all rows share."""
        first, key = values[0], tuple(values)
        if first is None:
            return None
        if key not in self._made:
            leaf = self.bodies[0].leaf_of(first)
            if first.is_constant:
                self._made[key] = self._constant(values)
            elif leaf is not None:
                self._made[key] = self.leaf_rows(leaf)
            else:
                self._made[key] = self._node([v.producer for v in values if v is not None])
        return self._made[key]

    def _node(self, nodes: Sequence[Node | None]) -> Value:
        """The result of one node of each expert."""
        node = nodes[0]
        assert node is not None
        operands = list(zip(*(b.operands[n] for b, n in zip(self.bodies, nodes, strict=True) if n), strict=True))
        attrs: dict[str, AttrValue] = dict(node.attrs)
        op, inputs = node.op, [self._rows(operands[0])]
        if op == "MatMul":
            op = "GroupedMatMul"
            inputs += [self._stacked(operands[1], node.name), self.offsets]
        else:
            inputs += [self._rows(column) for column in operands[1:]]
        return self.rewriter.insert(op, inputs, attrs, before=self.before, name=node.name).output

    def _constant(self, values: Sequence[Value | None]) -> Value:
        """A constant that does not depend on the token: one for all rows, or the line of each row's expert."""
        first = values[0]
        assert first is not None and first.recipe is not None
        if len({v.data.tobytes() for v in values if v is not None and v.data is not None}) > 1:
            return self.per_row(self._stacked(values, first.name, lines=True))
        line = reshape(first.recipe, [first.recipe.size])
        return first if first.rank < 2 else self.rewriter.constant(line, first.name)

    def _stacked(self, values: Sequence[Value | None], name: str, lines: bool = False) -> Value:
        parts = [v.recipe for v in values if v is not None and v.recipe is not None]
        stacked = stack([reshape(p, [p.size]) for p in parts] if lines else parts)
        return self.rewriter.constant(stacked, f"{name}/experts")
