"""Recognises a mixture of experts in its two exported forms; tokens then go through their own experts alone.

    dense:   y = sum over e of expert_e(x) * weight_e          weight_e is 0 where expert e was not chosen
    sparse:  y = ScatterND(y, rows_e, expert_e(x[rows_e])), for each e       rows_e: NonZero of weight_e > 0

becomes, over one row for each choice, sorted by expert (see graph_opt.ir.ops.experts):

    offsets, choices, tokens, rows = MoeRoute(indices)
    z = expert(x[tokens], weights[choices])                    products are GroupedMatMul with matrices [E, K, N]
    y = ReduceSum(z[rows], over the choices of a token)

Rules
1. All experts look at the same indices and weights (`expert_choice`); their numbers are 0 .. E - 1, each once, E > 1.
2. The experts' bodies are the same expression up to constants (`expert_bodies`): matrices of one shape, rows of
   constants of one length. What they compute has no use elsewhere.
3. Dense: what is summed is a product with the weight. Terms that are no expert's are added behind.
4. Sparse: an expert's rows come from its own NonZero; indices differ within a token (k = 1, or a TopK made them). Rows
   are added, or written (reduction "none") with k = 1 to a base of zeros. A weight that is not above 0 counts as no
   choice, if the model asks so.
5. An index that names no expert contributes nothing, as in the source.

Numerics. The sum of a token runs over its choices instead of over the experts: as exact, rounded differently. In the
dense form an expert that was not chosen contributes weight 0 times its result; here it contributes 0. These differ only
where that result is infinite or NaN, by the usual contract of fast arithmetic that 0 * x is 0. Chosen experts keep
infinities and NaN, so a NaN in a token still shows in its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.fusion.expert_bodies import Body, Expressions, Leaf, Mismatch, RowBodies
from graph_opt.fusion.expert_choice import Choice, distinct_range, is_zeros, tokens_of, unreshaped, weight_of
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.core import AttrValue
from graph_opt.ir.passes import Declining
from graph_opt.ir.reads import nested_graphs
from graph_opt.ir.rewriter import Rewriter
from tensor_types.dtypes import I64

_SUMS = ("Add", "Sum")
_SCATTERS = ("ScatterND", "ScatterElements")


@dataclass
class _Expert:
    choice: Choice
    body: Body


@dataclass
class _Mixture:
    """Experts whose results the value `root` sums, together with `others`; `members` are the nodes that sum.

    `above_zero` are the weights of choices that do not count unless they are above 0.
    """

    root: Value
    experts: list[_Expert]
    others: list[Value]
    members: list[Node]
    above_zero: Value | None = None


@dataclass(frozen=True)
class FuseMoe(Declining):
    """See the module. Declined candidates, by the name of their last node, and reasons are collected in `declined`."""

    name: ClassVar[str] = "fuse-moe"

    def apply(self, graph: Graph) -> bool:
        changed, public = False, _public(graph)
        for node in reversed(list(graph.nodes)):
            if graph.values.get(node.output.name) is not node.output or node.output.producer is not node:
                continue  # an earlier rewrite removed it
            read = _sparse if node.op in _SCATTERS else _dense if node.op in _SUMS else None
            try:
                mixture = read(node, public) if read is not None else None
                if mixture is not None:
                    _check(graph, mixture, public)
                    _Rewrite(graph, mixture).run()
                    changed, public = True, _public(graph)
            except Mismatch as reason:
                self.declined[node.name or node.output.name] = str(reason)
        return changed


# --- reading


def _public(graph: Graph) -> set[Value]:
    """Values that are read without standing in a use list."""
    return {*graph.outputs, *(o for body in nested_graphs(graph) for o in body.outputs)}


def _only_user(value: Value, public: set[Value]) -> Node | None:
    return next(iter(value.uses))[0] if len(value.uses) == 1 and value not in public else None


def _dense(last: Node, public: set[Value]) -> _Mixture | None:
    """The experts among the terms of a sum; None if there are none, or if a larger sum takes this one."""
    user = _only_user(last.output, public)
    if user is not None and user.op in _SUMS:
        return None
    experts: list[_Expert] = []
    others: list[Value] = []
    members: list[Node] = []
    pending: list[Value | None] = [last.output]
    while pending:
        value = pending.pop()
        node = value.producer if value is not None else None
        if node is not None and node.op in _SUMS and (node is last or _only_user(node.output, public)):
            members.append(node)
            pending.extend(reversed(node.inputs))
        elif value is not None:
            expert = _weighted_term(value)
            if expert is not None:
                experts.append(expert)
            else:
                others.append(value)
    if not experts:
        return None
    if experts[0].body.result.shape == last.output.shape:
        others = [v for v in others if not is_zeros(v)]
    return _Mixture(last.output, experts, others, members)


def _weighted_term(value: Value) -> _Expert | None:
    """A product with the weight of an expert."""
    node = value.producer
    for weight in node.inputs if node is not None and node.op == "Mul" else ():
        choice = weight_of(weight)
        if choice is not None and weight is not None and weight.shape == (*choice.tokens, 1):

            def leaf(inner: Value, own: Choice = choice) -> Leaf | None:
                return Leaf(own.weights, of_choice=True) if weight_of(inner) == own else None

            return _Expert(choice, Body(value, choice.tokens, leaf, open=True))
    return None


def _sparse(last: Node, public: set[Value]) -> _Mixture | None:
    """The experts of a chain of scatters; None if there are none, or if a longer chain takes this one."""
    first = _scattered_rows(last)
    if first is None:
        return None
    user = _only_user(last.output, public)
    if user is not None and user.inputs[0] is last.output and _continues(user, first.choice):
        return None
    experts: list[_Expert] = []
    members: list[Node] = []
    node: Node | None = last
    base: Value | None = None
    while node is not None and _continues(node, first.choice) and (node is last or _only_user(node.output, public)):
        expert = _scattered_rows(node)
        assert expert is not None
        experts.append(expert)
        members.append(node)
        base = node.inputs[0]
        node = base.producer if base is not None else None
    zeros = is_zeros(base)
    choice = first.choice
    single = choice.indices.shape in (choice.tokens, (*choice.tokens, 1))
    added = all(m.attrs.get("reduction", "none") == "add" for m in members)
    if not added and not (single and zeros):
        raise Mismatch("rows are written to what is not zeros, or more than once")
    if not single and distinct_range(choice.indices) is None:
        raise Mismatch("a token may choose an expert twice")
    others = [] if zeros or base is None else [base]
    return _Mixture(last.output, experts, others, members, choice.weights)


def _continues(node: Node, choice: Choice) -> bool:
    """True if the node scatters rows of another expert of the same mixture."""
    expert = _scattered_rows(node)
    other = expert.choice if expert is not None else None
    return other is not None and (other.indices, other.weights) == (choice.indices, choice.weights)


def _scattered_rows(node: Node) -> _Expert | None:
    """The expert whose rows a node adds, or writes, to those of its tokens."""
    if node.op not in _SCATTERS or node.attrs.get("reduction", "none") not in ("none", "add"):
        return None
    rows, updates = node.inputs[1], node.inputs[2]
    if node.op == "ScatterElements":
        spread = rows.producer if rows is not None else None
        if node.attrs.get("axis", 0) != 0 or spread is None or spread.op != "Expand":
            return None
        rows = spread.inputs[0]
    tokens = tokens_of(rows)
    if tokens is None or rows is None or updates is None or not updates.shape:
        return None
    (_, count), own = tokens.found.output.shape or (0, 0), tokens.choice
    if rows.shape != (count, 1) or node.output.shape != (*own.tokens, updates.shape[-1]):
        return None

    def leaf(inner: Value) -> Leaf | None:
        plain = unreshaped(inner)
        gather = plain.producer if plain is not None else None
        if gather is None or gather.op not in ("Gather", "GatherND"):
            return None
        if gather.attrs.get("axis", 0) != 0 or gather.attrs.get("batch_dims", 0) != 0:
            return None
        source, index = gather.inputs[0], gather.inputs[1]
        mine = tokens_of(index)
        if mine is None or mine.found is not tokens.found or index is None or source is None:
            return None
        if index.shape != ((count,) if gather.op == "Gather" else (count, 1)):
            return None
        weight = weight_of(source)
        if weight is not None and weight.indices is own.indices and weight.expert == own.expert:
            return Leaf(weight.weights, of_choice=True)
        return Leaf(source) if inner is plain else None

    return _Expert(own, Body(updates, (count,), leaf, open=False))


# --- checking


def _check(graph: Graph, mixture: _Mixture, public: set[Value]) -> None:
    """Finds the bodies; Mismatch says why the experts cannot be computed together."""
    experts, first = mixture.experts, mixture.experts[0].choice
    if any(e.choice.indices is not first.indices for e in experts):
        raise Mismatch("the terms of one sum are chosen by different indices")
    if not first.tokens:
        raise Mismatch("there is no axis of tokens")
    experts.sort(key=lambda e: e.choice.expert)
    numbers = [e.choice.expert for e in experts]
    if len(numbers) < 2 or numbers != list(range(len(numbers))):
        raise Mismatch(f"the experts' numbers are {numbers}, not 0 .. E - 1 with E > 1")
    order = {n: i for i, n in enumerate(graph.nodes)}
    expressions = Expressions()
    kinds: list[int] = []
    for expert in experts:
        expert.body.grow(order, public)
        kinds.append(expert.body.number(expressions))
        if kinds[-1] != kinds[0]:
            raise Mismatch(f"expert {expert.choice.expert} computes something else than expert 0")
    nodes = [n for e in experts for n in e.body.nodes]
    if not any(n.op == "MatMul" for n in nodes):
        raise Mismatch("the experts have no products")
    if len({n.guards for n in (*nodes, *mixture.members)}) > 1:
        raise Mismatch("parts of it run under different conditions")


# --- rewriting


class _Rewrite:
    """Replaces a mixture that has passed the check."""

    def __init__(self, graph: Graph, mixture: _Mixture) -> None:
        self.graph, self.mixture = graph, mixture
        self.rewriter = Rewriter(graph)
        producer = mixture.root.producer
        assert producer is not None
        self.at = producer
        self.tokens = mixture.experts[0].choice.tokens

    def insert(self, op: str, inputs: Sequence[Value | None], part: str, **attrs: AttrValue) -> Value:
        """A new node before the root; `part` tells its name."""
        name = f"{self.at.name}/{part}"
        return self.rewriter.insert(op, inputs, attrs, before=self.at, name=name).output

    def constant(self, value: np.ndarray | Sequence[int] | int) -> Value:
        """Numbers as a constant; those of Python are i64."""
        return self.rewriter.constant(np.asarray(value), f"{self.at.name}/const")

    def run(self) -> None:
        graph, mixture = self.graph, self.mixture
        indices, counts = self._indices()
        name = f"{self.at.name}/route"
        attrs: dict[str, AttrValue] = {"experts": len(mixture.experts)}
        outputs = [f"{name}/{part}" for part in ("offsets", "choices", "tokens", "rows")]
        route = self.rewriter.insert("MoeRoute", [indices], attrs, before=self.at, outputs=outputs, name=name)
        offsets, self.choices, self.token_of_row, rows = route.outputs
        self.indices = indices
        bodies = [e.body for e in mixture.experts]
        results = RowBodies(self.rewriter, bodies, self._leaf_rows, self._per_row, offsets, self.at).result()
        parts = self.insert("Gather", [results, rows], "parts", axis=0)
        if counts is not None:
            condition = self.insert("Unsqueeze", [counts, self.constant([-1])], "counts")
            zero = self.constant(np.zeros((), results.dtype.numpy))
            parts = self.insert("Where", [condition, parts, zero], "counted")
        total = self.insert("ReduceSum", [parts, self.constant([len(self.tokens)])], "sum", keepdims=0)
        for other in mixture.others:
            total = self.insert("Add", [total, other], "rest")
        self.rewriter.replace(mixture.root, total)
        gone = _unused(self.at, _public(graph))
        self.rewriter.absorb([v for n in gone for v in n.outputs], total)
        self.rewriter.erase_dead(gone)

    def _indices(self) -> tuple[Value, Value | None]:
        """Indices [*tokens, k] below E, and which of them count (None: all)."""
        experts = len(self.mixture.experts)
        indices = self._with_choices(self.mixture.experts[0].choice.indices)
        conditions: list[Value] = []
        limit = distinct_range(self.mixture.experts[0].choice.indices)
        if indices.dtype != I64:
            indices = self.insert("Cast", [indices], "indices", to=I64.onnx)
        if limit is None or limit > experts:
            zero, end = self.constant(0), self.constant(experts)
            not_below = self.insert("GreaterOrEqual", [indices, zero], "not_below")
            below = self.insert("Less", [indices, end], "below")
            conditions.append(self.insert("And", [not_below, below], "known"))
            indices = self.insert("Where", [conditions[0], indices, zero], "indices")
        if self.mixture.above_zero is not None:
            weights = self._with_choices(self.mixture.above_zero)
            none = self.constant(np.zeros((), weights.dtype.numpy))
            conditions.append(self.insert("Greater", [weights, none], "above_zero"))
        if not conditions:
            return indices, None
        return indices, conditions[0] if len(conditions) == 1 else self.insert("And", conditions, "count")

    def _with_choices(self, value: Value) -> Value:
        """A value [*tokens, k], or [*tokens] if each token has one choice, with an axis of choices."""
        if value.shape != self.tokens:
            return value
        return self.insert("Unsqueeze", [value, self.constant([-1])], "choice_axis")

    def _leaf_rows(self, leaf: Leaf) -> Value:
        source = leaf.source
        if source is None:
            return self.constant(np.ones((), self.mixture.root.dtype.numpy))
        if leaf.of_choice:
            column = self.insert("Reshape", [source, self.constant([-1, 1])], "weights")
            return self.insert("Gather", [column, self.choices], "row_weights", axis=0)
        assert source.shape is not None
        width = source.shape[-1]
        if len(source.shape) > 2 and isinstance(width, int):
            source = self.insert("Reshape", [source, self.constant([-1, width])], "flat")
        return self.insert("Gather", [source, self.token_of_row], "sorted", axis=0)

    def _per_row(self, lines: Value) -> Value:
        flat = self.insert("Reshape", [self.indices, self.constant([-1])], "flat_indices")
        experts = self.insert("Gather", [flat, self.choices], "experts", axis=0)
        return self.insert("Gather", [lines, experts], "lines", axis=0)


def _unused(last: Node, public: set[Value]) -> list[Node]:
    """The node, and the nodes above it that nothing else uses."""
    gone: dict[Node, None] = {last: None}
    pending = [last]
    while pending:
        for value in pending.pop().inputs:
            node = value.producer if value is not None else None
            if node is None or node in gone or not public.isdisjoint(node.outputs):
                continue
            if all(u in gone for v in node.outputs for u, _ in v.uses):
                gone[node] = None
                pending.append(node)
    return list(gone)
