"""Experts as batched products over all tokens, with weights scattered over the experts: tokens go to their own alone.

    s = ScatterElements(zeros[T, E], indices, weights, axis=1)          the rest is 0, or -inf before a Sigmoid
    y = ReduceSum(s transposed [E, T, 1] * expert(x [E, T, D]), axis 0) gpt-oss
    y = ReduceSum(expert(s transposed * x), axis 0)                     Llama 4

becomes, over one row for each choice, sorted by expert, what `fuse_moe` makes of experts one by one.

Rules
1. Values from x to the sum have the experts outermost, then the tokens, then one row: [E, T, width] or [E * T, width].
2. Where an expert was not chosen, what is summed is 0: a factor is, and what stands behind it keeps zeros.
3. Between are products with constants [E, K, N], element-wise operators, and what moves elements within rows.
4. Indices come from a TopK among at most E, so those of a token differ.

Numerics: as in `fuse_moe`, 0 times an infinite result of an expert that was not chosen is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from graph_opt.fusion.expert_choice import distinct_range, is_zeros
from graph_opt.ir import Graph, Node, Value, ops
from graph_opt.ir.core import AttrValue
from graph_opt.ir.passes import Note
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.shape_targets import reshape_target
from tensor_types.dims import Dim, product
from tensor_types.dtypes import I64
from tensor_types.recipes import reshape

_SHAPES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
_KEEP_ZERO = _SHAPES | {"Relu", "Neg", "Abs", "Tanh", "Gelu", "Swish", "Erf", "Cast", "Split", "Slice", "MatMul"}
_MOST = 64
"""Operators between the tokens and the sum."""


class _Misfit(Exception):  # noqa: N818 (an outcome, not an error)
    """Why experts stay as they are."""


@dataclass(frozen=True)
class ExpandedExperts:
    """See the module."""

    name: str = "expanded-experts"
    notes: list[Note] = field(default_factory=list, compare=False)

    def apply(self, graph: Graph) -> bool:
        self.notes.clear()
        changed = False
        for node in list(graph.nodes):
            spread = _spread_below(node) if node.op == "ReduceSum" and graph.values.get(node.output.name) else None
            if spread is None:
                continue
            try:
                _Rewrite(graph, node, spread).run()
                changed = True
            except _Misfit as reason:
                self.notes.append(Note(node.name, self.name, str(reason)))
        return changed


@dataclass(frozen=True)
class _Spread:
    """Weights [T, k] scattered over the experts; `steps` are element-wise operators behind that."""

    scatter: Node
    steps: tuple[Node, ...]
    rest: float
    """What stands where an expert was not chosen."""


def _spread_below(total: Node) -> _Spread | None:
    """The scattered weights that a sum over experts depends on; None if there are none, or if it sums another axis."""
    value, axes = total.inputs[0], total.input(1)
    if value is None or value.shape is None or axes is None or axes.data is None or axes.data.tolist() != [0]:
        return None
    pending, seen = [value], {value}
    while pending and len(seen) < _MOST:
        at = pending.pop()
        spread = _spread(at)
        if spread is not None:
            return spread
        for v in at.producer.inputs if at.producer is not None and at.producer.op != "TopK" else ():
            if v is not None and not v.is_constant and v not in seen:
                seen.add(v)
                pending.append(v)
    return None


def _spread(value: Value) -> _Spread | None:
    """Scattered weights with the experts outermost: [E, T], [E, T, 1] or [E * T, 1]."""
    steps: list[Node] = []
    turned = False
    at: Value | None = value
    while at is not None and at.producer is not None and at.producer.op != "ScatterElements":
        node = at.producer
        if node.op == "Transpose" and not turned and _experts_first(node):
            turned = True
        elif node.op in ("Sigmoid", "Cast"):
            steps.insert(0, node)
        elif node.op not in _SHAPES:
            return None
        at = node.inputs[0]
    if at is None or at.producer is None or not turned or at.rank != 2:
        return None
    node = at.producer
    if node.attrs.get("reduction", "none") != "none" or int(node.attrs.get("axis", 0)) % 2 != 1:  # type: ignore[arg-type]
        return None
    rest = _filled(node.inputs[0])
    for step in steps:
        rest = rest if rest is None or step.op == "Cast" else float(1 / (1 + np.exp(-np.float64(rest))))
    return None if rest is None else _Spread(node, tuple(steps), rest)


def _experts_first(node: Node) -> bool:
    rank = node.output.rank
    return tuple(node.attrs.get("perm") or ()) == (rank - 1, *range(rank - 1))  # type: ignore[arg-type]


def _filled(value: Value | None) -> float | None:
    """The number that all elements are."""
    if is_zeros(value):
        return 0.0
    while value is not None and value.producer is not None and value.producer.op in (*_SHAPES, "Expand"):
        value = value.producer.inputs[0]
    if value is None:
        return None
    data = value.data if value.producer is None else value.producer.attrs.get("value")
    if value.producer is not None and value.producer.op != "ConstantOfShape" or data is None:
        return None
    numbers = np.asarray(data)
    return float(numbers.flat[0]) if numbers.size and (numbers == numbers.flat[0]).all() else None


class _Rewrite:
    def __init__(self, graph: Graph, total: Node, spread: _Spread) -> None:
        self.total, self.spread = total, spread
        self.rewriter = Rewriter(graph)
        self.label = total.name or total.output.name
        shape = spread.scatter.output.shape
        assert shape is not None
        self.tokens, self.experts = shape
        self._made: dict[Value, Value] = {}

    def insert(self, op: str, inputs: Sequence[Value | None], part: str, **attrs: AttrValue) -> Value:
        name = f"{self.label}/{part}"
        return self.rewriter.insert(op, inputs, attrs, before=self.total, name=name).output

    def numbers(self, values: Sequence[int] | int) -> Value:
        return self.rewriter.constant(np.array(values, np.int64), f"{self.label}/numbers")

    def run(self) -> None:
        total, spread = self.total, self.spread
        _, indices, weights = spread.scatter.inputs
        value, result = total.inputs[0], total.output
        assert value is not None and indices is not None and weights is not None
        experts = self.experts
        if not isinstance(experts, int) or experts < 2 or result.shape is None or indices.shape is None:
            raise _Misfit("the number of experts is not known")
        if indices.rank != 2 or indices.shape[0] != self.tokens or not isinstance(indices.shape[1], int):
            raise _Misfit("choices that are not those of one token each")
        limit = distinct_range(indices)
        if limit is None or limit > experts:
            raise _Misfit("a token may choose an expert twice, or none of them")
        if value.shape is None or value.shape[0] != experts or product(value.shape[1:-1]) != self.tokens:
            raise _Misfit("what is summed is not one row for each expert and token")
        self._check(value, set())
        if not self._is_zero(value):
            raise _Misfit("experts that were not chosen may add something")
        target = reshape_target((self.tokens, value.shape[-1]), result.shape)
        if target is None:
            raise _Misfit("the shape of the result is known at run time only")
        if indices.dtype != I64:
            indices = self.insert("Cast", [indices], "indices", to=I64.onnx)
        outputs = [f"{self.label}/route/{part}" for part in ("offsets", "choices", "tokens", "rows")]
        route = self.rewriter.insert("MoeRoute", [indices], {"experts": experts}, before=total, outputs=outputs,
                                     name=f"{self.label}/route")  # fmt: skip
        self.offsets, self.choices, self.owners, rows = route.outputs
        flat = self.insert("Reshape", [indices, self.numbers([-1])], "flat")
        self.expert_of_row = self.insert("Gather", [flat, self.choices], "experts", axis=0)
        made = self.insert("Gather", [self._rows(value), rows], "parts", axis=0)
        made = self.insert("ReduceSum", [made, self.numbers([1])], "sum", keepdims=0)
        self.rewriter.replace(result, self.insert("Reshape", [made, self.numbers(target)], "shaped"))
        self.rewriter.erase_dead([total])

    # --- checking

    def _aligned(self, value: Value) -> bool:
        """One row for each expert and token, experts outermost."""
        shape = value.shape
        return shape is not None and len(shape) > 1 and product(shape[:-1]) == self.tokens * self.experts

    def _of_tokens(self, value: Value) -> bool:
        """One row for each token, the same for all experts."""
        shape = value.shape
        return shape is not None and len(shape) > 1 and product(shape[:-1]) == self.tokens

    def _check(self, value: Value, seen: set[Value]) -> None:
        """Misfit if a row of the value depends on more than the rows of its expert and token."""
        if value in seen or self._is_leaf(value):
            return
        seen.add(value)
        node = value.producer
        if node is None or len(seen) > _MOST or not self._aligned(value):
            raise _Misfit(f"%{value.name} is not computed row by row")
        first = node.inputs[0]
        assert first is not None
        if node.op == "MatMul":
            matrices = node.inputs[1]
            known = matrices is not None and matrices.is_constant and matrices.rank == 3
            if not known or matrices is None or (matrices.shape or ())[0] != self.experts or value.rank != 3:
                raise _Misfit("products with other than a constant matrix for each expert")
            self._check_operand(first, seen)
        elif node.op in (*_SHAPES, "Expand", "Tile"):
            if first.shape is None or not first.shape or first.shape[-1] != (value.shape or ())[-1]:
                raise _Misfit(f"%{value.name} has other rows than what it is made of")
            self._check_operand(first, seen)
        elif node.op in ("Split", "Slice"):
            if not _within_rows(node):
                raise _Misfit(f"{node.op} across rows")
            self._check(first, seen)
        else:
            declared = ops.get(node.op)
            if declared is None or declared.kind != "elementwise" or not declared.deterministic:
                raise _Misfit(f"{node.op} among the experts")
            for operand in node.inputs:
                if operand is not None and not (operand.is_constant and self._spreads(operand) is not None):
                    self._check_operand(operand, seen)

    def _check_operand(self, value: Value, seen: set[Value]) -> None:
        if self._aligned(value) or self._is_leaf(value):
            self._check(value, seen)
        elif not self._of_tokens(value):
            raise _Misfit(f"%{value.name} is neither of tokens nor of experts")

    def _is_leaf(self, value: Value) -> bool:
        spread = _spread(value)
        return spread is not None and spread.scatter is self.spread.scatter and (value.shape or (0,))[-1] == 1

    def _spreads(self, value: Value) -> str | None:
        """How a constant varies: not from row to row, or from expert to expert."""
        shape = value.shape or ()
        lead, rank = shape[:-1], len(shape)
        if rank < 2 or all(d == 1 for d in lead):
            return "all"
        return "expert" if rank == 3 and lead == (self.experts, 1) else None

    def _is_zero(self, value: Value) -> bool:
        """Whether rows of experts that were not chosen are zeros."""
        if self._is_leaf(value):
            found = _spread(value)
            return found is not None and found.rest == 0
        node = value.producer
        if node is None or value.is_constant:
            return False
        known = [v for v in node.inputs if v is not None]
        if node.op == "Mul":
            return any(self._is_zero(v) for v in known)
        if node.op in ("Add", "Sub", "Sum"):
            return all(self._is_zero(v) for v in known)
        return node.op in _KEEP_ZERO and self._is_zero(known[0])

    # --- rewriting

    def _rows(self, value: Value) -> Value:
        """The rows [choices, width] of a checked value."""
        if value not in self._made:
            self._made[value] = self._weights(value) if self._is_leaf(value) else self._row_node(value)
        return self._made[value]

    def _row_node(self, value: Value) -> Value:
        node = value.producer
        assert node is not None
        first = node.inputs[0]
        assert first is not None
        if node.op == "MatMul":
            return self.insert("GroupedMatMul", [self._operand(first), node.inputs[1], self.offsets], node.name)
        if node.op in (*_SHAPES, "Expand", "Tile"):
            return self._operand(first)
        inputs: list[Value | None] = [None if v is None else self._operand(v) for v in node.inputs]
        attrs = dict(node.attrs)
        if node.op == "Split":
            inputs, attrs = [inputs[0], *node.inputs[1:]], {**attrs, "axis": 1}
        elif node.op == "Slice":
            inputs = [inputs[0], *node.inputs[1:3], self.numbers([1]), *node.inputs[4:]]
        name = f"{self.label}/{node.name or value.name}"
        outputs = [f"{name}.{k}" for k in range(len(node.outputs))]
        made = self.rewriter.insert(node.op, inputs, attrs, before=self.total, outputs=outputs, name=name)
        self._made.update(zip(node.outputs, made.outputs, strict=True))
        return self._made[value]

    def _operand(self, value: Value) -> Value:
        if value.is_constant and value.recipe is not None:
            shape = value.recipe.shape
            if self._spreads(value) == "all":
                same = reshape(value.recipe, shape[-1:])
                return value if value.rank < 2 else self.rewriter.constant(same, f"{value.name}/line")
            lines = self.rewriter.constant(reshape(value.recipe, [shape[0], shape[-1]]), f"{value.name}/by_expert")
            return self.insert("Gather", [lines, self.expert_of_row], f"{value.name}/lines", axis=0)
        if self._aligned(value) or self._is_leaf(value):
            return self._rows(value)
        width = (value.shape or ())[-1]
        flat = self.insert("Reshape", [value, self._row_shape(width)], "tokens")
        return self.insert("Gather", [flat, self.owners], "sorted", axis=0)

    def _row_shape(self, width: Dim) -> Value:
        if not isinstance(width, int):
            raise _Misfit("the width of a token is not known")
        return self.numbers([-1, width])

    def _weights(self, value: Value) -> Value:
        found = _spread(value)
        made = self.spread.scatter.inputs[2]
        assert found is not None and made is not None
        made = self.insert("Reshape", [made, self.numbers([-1, 1])], "weights")
        for step in found.steps:
            made = self.insert(step.op, [made], step.name, **step.attrs)
        return self.insert("Gather", [made, self.choices], "row_weights", axis=0)


def _within_rows(node: Node) -> bool:
    if node.op == "Split":
        return int(node.attrs.get("axis", 0)) % node.outputs[0].rank == node.outputs[0].rank - 1  # type: ignore[arg-type]
    axes = node.input(3)
    return axes is not None and axes.data is not None and [int(a) % node.output.rank for a in axes.data.flat] == [
        node.output.rank - 1
    ]
