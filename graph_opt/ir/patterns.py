"""Declarative patterns over the graph, matched from the root upwards, with captures and reasons for declining.

    x = any_value("x")
    erf = op("Erf", op("Div", x, scalar(2**0.5)))
    gelu = op("Mul", op("Mul", x, op("Add", erf, scalar(1.0))), scalar(0.5))       # commuted inputs match as well

    conv_bn = op(
        "BatchNormalization",
        op("Conv", any_value("x"), constant("w"), optional(constant("b")), name="conv"),
        constant("gamma"), constant("beta"), constant("mean"), constant("var"), name="bn",
    )

    def fold(rewriter: Rewriter, match: Match) -> Declined | None:
        conv, w = match.node("conv"), match["w"]
        ...
        match.become(rewriter, "Conv", [match["x"], rewriter.constant(...), bias], conv.attrs)

    changed = apply_rules(graph, [Rule("conv-bn", conv_bn, fold)], notes)      # graph_opt/ir/rules.py

Pieces: `any_value(name, where)`, `constant(name, where)`, `scalar(number, name)`, `optional(p)` for an input that may
be absent, `op(...)`, `maybe(op_name, p)` for a node that may be skipped, `one_of(p, q)`, `absent()`, and `product(...)`
of graph_opt/ir/products.py for factors in any order. A capture that occurs twice must be the same value; `op` of
several alternatives is `op("Add|Sub", ...)`, `op("*", ...)` any operator.

Rules. Nodes below the root must have no use outside the match, unless `shared=True` (the rewrite then leaves them
alone). Inputs of commutative operators match in any order. Fewer input patterns than inputs match only if the others
are absent, or with `more=True`. A rewrite may return `Declined`; it must then have changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np

from graph_opt.ir import ops
from graph_opt.ir.core import AttrValue, Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter


@dataclass(frozen=True)
class Declined:
    """Why something did not match or must not be rewritten. `depth` counts the nodes that had matched before."""

    reason: str
    depth: int = 0


@dataclass(frozen=True)
class Match:
    """A matched subgraph: `match["x"]` is the captured value, `match.node("conv")` the captured node."""

    root: Node
    nodes: tuple[Node, ...]
    """Every matched node, root first, without duplicates."""
    bindings: Mapping[str, Value | Node | None]

    def __getitem__(self, name: str) -> Value:
        value = self.bindings[name]
        assert isinstance(value, Value), f"{name} captures no value"
        return value

    def get(self, name: str) -> Value | None:
        """The captured value, None if the optional part is absent."""
        value = self.bindings.get(name)
        return value if isinstance(value, Value) else None

    def node(self, name: str) -> Node:
        node = self.bindings[name]
        assert isinstance(node, Node), f"{name} captures no node"
        return node

    def insert(
        self,
        rewriter: Rewriter,
        op: str,
        inputs: Sequence[Value | None],
        attrs: Mapping[str, AttrValue] | None = None,
        name: str = "",
        instead: Value | None = None,
    ) -> Value:
        """The result of a new node before the root, under the root's guards and by default named after the root."""
        name = name or rewriter.graph.fresh_name(f"{self.root.name}/{op}")
        return rewriter.insert(op, inputs, attrs, before=self.root, name=name, instead=instead).output

    def become(
        self,
        rewriter: Rewriter,
        op: str,
        inputs: Sequence[Value | None],
        attrs: Mapping[str, AttrValue] | None = None,
        name: str = "",
    ) -> None:
        """Puts a new node in the place of the root, by default of its name; what the match held is interior to it."""
        result = self.root.output
        new = last = self.insert(rewriter, op, inputs, attrs, name or self.root.name, instead=result)
        if new.shape is not None and result.shape is not None and new.rank < result.rank:
            # A number of the match had more axes than the tensor that it was applied to.
            axes = rewriter.constant(np.arange(result.rank - new.rank), f"{self.root.name}/axes")
            last = self.insert(rewriter, "Unsqueeze", [new, axes])
        below = [v for n in self.nodes if n is not self.root for v in n.outputs]
        rewriter.absorb([v for v in below if _outside(v, self.nodes, rewriter.graph) is None], new)
        rewriter.replace(result, last)


@dataclass(frozen=True)
class State:
    """What has matched so far."""

    bindings: Mapping[str, Value | Node | None] = field(default_factory=dict)
    nodes: tuple[tuple[Node, bool], ...] = ()
    """Matched nodes, each with whether it may be shared."""

    def bind(self, name: str, item: Value | Node | None) -> State | None:
        if not name:
            return self
        if name in self.bindings:
            return self if self.bindings[name] is item else None
        return State({**self.bindings, name: item}, self.nodes)

    def with_node(self, node: Node, shared: bool) -> State:
        return self if any(n is node for n, _ in self.nodes) else State(self.bindings, (*self.nodes, (node, shared)))


class Trace:
    """The reason of the attempt that came furthest."""

    def __init__(self) -> None:
        self.best = Declined("nothing matched", -1)

    def fail(self, reason: str, state: State) -> None:
        if len(state.nodes) > self.best.depth:
            self.best = Declined(reason, len(state.nodes))


class Pattern:
    """Base of all pattern pieces; `states` yields each way in which a value matches."""

    def states(self, value: Value | None, state: State, trace: Trace) -> Iterator[State]:
        raise NotImplementedError


class NodePattern(Pattern):
    """A pattern that can be the root of a match: `names` are the operators at which it may begin."""

    names: frozenset[str]

    def node_states(self, node: Node, state: State, trace: Trace) -> Iterator[State]:
        """Each way in which a node matches."""
        raise NotImplementedError


@dataclass(frozen=True)
class _Any(Pattern):
    name: str
    where: Callable[[Value], bool] | None
    only_constant: bool
    what: str

    def states(self, value: Value | None, state: State, trace: Trace) -> Iterator[State]:
        if value is None:
            return trace.fail(f"{self.what} is absent", state)
        if self.only_constant and not value.is_constant:
            return trace.fail(f"%{value.name} is not constant, as {self.what} must be", state)
        if self.where is not None and not self.where(value):
            return trace.fail(f"%{value.name} is not {self.what}", state)
        bound = state.bind(self.name, value)
        if bound is None:
            return trace.fail(f"%{value.name} is not the other {self.what}", state)
        yield bound


@dataclass(frozen=True)
class _Optional(Pattern):
    inner: Pattern

    def states(self, value: Value | None, state: State, trace: Trace) -> Iterator[State]:
        if value is None:
            yield state
        else:
            yield from self.inner.states(value, state, trace)


@dataclass(frozen=True)
class _Absent(Pattern):
    def states(self, value: Value | None, state: State, trace: Trace) -> Iterator[State]:
        if value is not None:
            return trace.fail(f"%{value.name} is present", state)
        yield state


@dataclass(frozen=True)
class _OneOf(Pattern):
    choices: tuple[Pattern, ...]

    def states(self, value: Value | None, state: State, trace: Trace) -> Iterator[State]:
        for choice in self.choices:
            yield from choice.states(value, state, trace)


@dataclass(frozen=True)
class OpPattern(NodePattern):
    """An operator; see `op`."""

    names: frozenset[str]
    inputs: tuple[Pattern, ...]
    name: str
    attrs: Mapping[str, object]
    where: Callable[[Node], bool] | None
    output: int
    shared: bool
    more: bool

    def states(self, value: Value | None, state: State, trace: Trace) -> Iterator[State]:
        wanted = "|".join(sorted(self.names))
        node = None if value is None else value.producer
        if value is None or node is None:
            return trace.fail(
                f"{'an absent input' if value is None else f'%{value.name}'} is not made by {wanted}", state
            )
        if node.outputs[self.output :][:1] != [value]:
            return trace.fail(f"%{value.name} is not output {self.output} of {node}", state)
        yield from self.node_states(node, state, trace)

    def node_states(self, node: Node, state: State, trace: Trace) -> Iterator[State]:
        if node.op not in self.names and "*" not in self.names:
            return trace.fail(f"{node} is not {'|'.join(sorted(self.names))}", state)
        for key, wanted in self.attrs.items():
            found = attribute(node, key)
            if not (wanted(found) if callable(wanted) else _equal(found, wanted)):
                return trace.fail(f"{node} has {key}={found}", state)
        if self.where is not None and not self.where(node):
            return trace.fail(f"{node} does not fulfil its condition", state)
        bound = state.with_node(node, self.shared).bind(self.name, node)
        if bound is None:
            return trace.fail(f"{node} is not the other {self.name}", state)
        given = len(self.inputs)
        if not self.more and any(v is not None for v in node.inputs[given:]):
            return trace.fail(f"{node} has {len(node.inputs)} inputs", state)
        operands = [node.input(i) for i in range(given)]
        declared = ops.get(node.op)
        orders: Iterable[Sequence[Value | None]] = [operands]
        if declared is not None and declared.commutative and given == len(node.inputs) <= 4:
            orders = permutations(operands)
        for order in orders:
            yield from _all(tuple(zip(self.inputs, order, strict=True)), bound, trace)


def _all(pairs: tuple[tuple[Pattern, Value | None], ...], state: State, trace: Trace) -> Iterator[State]:
    if not pairs:
        yield state
        return
    (pattern, value), rest = pairs[0], pairs[1:]
    for after in pattern.states(value, state, trace):
        yield from _all(rest, after, trace)


def _equal(found: object, wanted: object) -> bool:
    if isinstance(wanted, (tuple, list)):
        return isinstance(found, (tuple, list)) and tuple(found) == tuple(wanted)
    return found == wanted


def attribute(node: Node, name: str) -> AttrValue:
    """The attribute of a node, or the default that its operator declares, else None."""
    declared = ops.get(node.op)
    if name in node.attrs or declared is None or name not in declared.attrs:
        return node.attrs.get(name)
    return declared.attrs[name].default


# --- pieces


def any_value(name: str = "", where: Callable[[Value], bool] | None = None, *, what: str = "") -> Pattern:
    """Any present value for which `where` holds; `what` describes the condition in a reason."""
    return _Any(name, where, False, what or name or "a value")


def constant(name: str = "", where: Callable[[Value], bool] | None = None, *, what: str = "") -> Pattern:
    """A constant."""
    return _Any(name, where, True, what or name or "a constant")


def scalar(number: float | None = None, name: str = "", *, tolerance: float = 1e-6) -> Pattern:
    """A constant of one element; with `number`, of that value up to a relative `tolerance`."""

    def fits(value: Value) -> bool:
        if value.recipe is None or value.recipe.size != 1:
            return False
        if number is None:
            return True
        return abs(float(value.recipe.array().reshape(-1)[0]) - number) <= tolerance * max(abs(number), 1e-30)

    return _Any(name, fits, True, f"the constant {number}" if number is not None else name or "a scalar constant")


def op(
    names: str,
    *inputs: Pattern,
    name: str = "",
    attrs: Mapping[str, object] | None = None,
    where: Callable[[Node], bool] | None = None,
    output: int = 0,
    shared: bool = False,
    more: bool = False,
) -> OpPattern:
    """A node whose operator is one of `names` (joined by '|'), reached by its output number `output`.

    `attrs` maps names to a value or a predicate, defaults of the operator included.
    """
    return OpPattern(frozenset(names.split("|")), inputs, name, dict(attrs or {}), where, output, shared, more)


def optional(inner: Pattern) -> Pattern:
    """An input that may be absent."""
    return _Optional(inner)


def absent() -> Pattern:
    """An input that must be absent."""
    return _Absent()


def one_of(*choices: Pattern) -> Pattern:
    """The first choice that leads to a match."""
    return _OneOf(choices)


def maybe(names: str, inner: Pattern, *others: Pattern, name: str = "", shared: bool = False) -> Pattern:
    """`inner`, possibly below one more node, whose other inputs match `others`."""
    return _OneOf((op(names, inner, *others, name=name, shared=shared), inner))


# --- matching


def match(pattern: NodePattern, node: Node, graph: Graph) -> Match | Declined:
    """Matches the pattern with `node` as its root."""
    trace = Trace()
    for state in pattern.node_states(node, State(), trace):
        nodes = tuple(n for n, _ in state.nodes)
        leak = _leak(state, node, graph)
        if leak is None:
            return Match(node, nodes, state.bindings)
        trace.fail(leak, State({}, (*state.nodes, (node, True))))
    return trace.best


def _leak(state: State, root: Node, graph: Graph) -> str | None:
    members = [n for n, _ in state.nodes]
    made = [v for node, shared in state.nodes if node is not root and not shared for v in node.outputs]
    return next((leak for v in made if (leak := _outside(v, members, graph)) is not None), None)


def _outside(value: Value, members: Sequence[Node], graph: Graph) -> str | None:
    """What reads the value outside of a set of nodes."""
    if graph.is_output(value):
        return f"%{value.name} is a graph output"
    user = next((u for u, _ in value.uses if u not in members), None)
    return None if user is None else f"%{value.name} is also used by {user}"
