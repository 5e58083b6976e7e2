"""Merges sibling products of one operand: Q, K and V projections become one batched product.

    x @ W1 [+ b1], x @ W2 [+ b2], ...   ->   y = x @ stack(W) [+ stack(b)];  y[0], y[1], ...

Rules
1. At least two MatMul nodes read the same first operand; their second operands are constant matrices of one shape.
2. Biases are constants of one row, and either all siblings have one or none.
3. Nothing element-wise follows (an epilogue fused into its own product is worth more), and no result is an output.
4. Every target has a kernel of the batched product, of f32 or of f16 numbers.
The results are the leading slices of one tensor, so taking them apart costs nothing: lowering makes them aliases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from graph_opt.fusion.families import Kernels
from graph_opt.ir import Graph, Node, Value, ops
from graph_opt.ir.passes import Note
from graph_opt.ir.rewriter import Rewriter
from tensor_types.dtypes import F16, F32
from tensor_types.recipes import Recipe, cast, reshape, stack


@dataclass(frozen=True)
class _Sibling:
    product: Node
    weight: Recipe
    bias: Recipe | None
    result: Value
    last: Node


@dataclass(frozen=True)
class MergeSiblingMatmuls:
    """See the module."""

    kernels: Kernels
    name: str = "merge-sibling-matmuls"
    notes: list[Note] = field(default_factory=list, compare=False)

    def apply(self, graph: Graph) -> bool:
        changed, rewriter = False, Rewriter(graph)
        for value in list(graph.values.values()):
            for group in _groups(graph, value):
                reason = self._why_not(graph, value, group)
                if reason is None:
                    _merge(rewriter, value, group)
                    changed = True
                else:
                    self.notes.append(Note(group[0].product.name, self.name, reason))
        return changed

    def _why_not(self, graph: Graph, x: Value, group: Sequence[_Sibling]) -> str | None:
        """Numbers for which a target has no product may yet be made halves (`precision.legalise_products`)."""
        weight = _stacked(x, group)
        reason = None
        for dtype in dict.fromkeys((x.dtype, F16 if x.dtype == F32 else x.dtype)):
            merged = Value("merged", dtype, weight.shape, recipe=cast(weight, dtype))
            operands = [Value(x.name, dtype, x.shape, x.format), merged]
            if (found := self.kernels.why_not_made(graph, "MatMul", operands)) is None:
                return None
            reason = reason or found
        return reason


def _groups(graph: Graph, value: Value) -> list[list[_Sibling]]:
    found: dict[object, list[_Sibling]] = {}
    if value.shape is None or value.is_constant or value.rank < 2:
        return []
    for node, index in list(value.uses):
        sibling = _sibling(graph, node) if node.op == "MatMul" and index == 0 else None
        if sibling is not None:
            key = (sibling.weight.shape, sibling.weight.dtype, sibling.bias is None, node.guards)
            found.setdefault(key, []).append(sibling)
    return [group for group in found.values() if len(group) > 1]


def _sibling(graph: Graph, node: Node) -> _Sibling | None:
    weight = node.inputs[1]
    if weight is None or weight.recipe is None or weight.rank != 2 or node not in graph.nodes:
        return None
    result, last, bias = node.output, node, None
    if len(result.uses) == 1 and not graph.is_output(result):
        user, place = next(iter(result.uses))
        other = user.inputs[1 - place] if user.op == "Add" and len(user.inputs) == 2 else None
        if (
            other is not None
            and other.recipe is not None
            and 1 <= other.rank <= result.rank
            and other.recipe.size == other.recipe.shape[-1] == weight.recipe.shape[1]
        ):
            result, last, bias = user.output, user, reshape(other.recipe, [other.recipe.size])
    if graph.is_output(result) or any(_is_elementwise(user) for user, _ in result.uses):
        return None
    return _Sibling(node, weight.recipe, bias, result, last)


def _is_elementwise(node: Node) -> bool:
    declared = ops.get(node.op)
    return declared is not None and declared.kind == "elementwise"


def _stacked(x: Value, group: Sequence[_Sibling]) -> Recipe:
    """The weights of siblings as one, with axes for those of x."""
    return reshape(stack([s.weight for s in group]), (len(group), *(1,) * (x.rank - 2), *group[0].weight.shape))


def _merge(rewriter: Rewriter, x: Value, group: Sequence[_Sibling]) -> None:
    """Replaces the siblings; the new nodes stand where the first of them stood."""
    at = min((s.product for s in group), key=rewriter.graph.nodes.place)
    ones = (1,) * (x.rank - 2)
    stacked = rewriter.constant(_stacked(x, group), f"{at.name}/merged")
    value = rewriter.insert("MatMul", [x, stacked], before=at, name=f"{at.name}/merged").output
    biases = [s.bias for s in group if s.bias is not None]
    if biases:
        bias = reshape(stack(biases), (len(group), *ones, 1, biases[0].size))
        added = rewriter.constant(bias, f"{at.name}/merged_bias")
        value = rewriter.insert("Add", [value, added], before=at, name=f"{at.name}/merged_bias").output
    names = [f"{s.result.name}/slice" for s in group]
    attrs = {"axis": 0, "num_outputs": len(group)}
    parts = rewriter.insert("Split", [value], attrs, before=at, outputs=names, name=f"{at.name}/split")
    axes = rewriter.constant(np.array([0], np.int64), f"{at.name}/axes")
    flats = [
        rewriter.insert("Squeeze", [p, axes], before=at, name=f"{s.product.name}/squeeze").output
        for s, p in zip(group, parts.outputs, strict=True)
    ]
    for sibling, flat in zip(group, flats, strict=True):
        if sibling.last is not sibling.product:
            rewriter.absorb([sibling.product.output], flat)
        rewriter.replace(sibling.result, flat)
        rewriter.erase_dead([sibling.last])
