"""Operators of constants as steps of a recipe, so that big weights are changed while they are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graph_opt.ir import ops
from graph_opt.ir.core import Node
from tensor_types.dims import product
from tensor_types.recipes import Computed, Recipe, join, permute, reshape

Evaluate = Callable[[str, Mapping[str, Any], Sequence[np.ndarray | None], int], Sequence[Any]]
"""op, attributes, inputs, number of outputs -> results; raises UnsupportedOperator for an op that it does not know."""

_SAME_ORDER = {"Reshape", "Squeeze", "Unsqueeze", "Flatten"}


def recipe_of(node: Node, evaluate: Evaluate) -> Recipe | None:
    """The only output of a node of constants, whose shape is known, as a recipe; None if it is none of these:

    1. Reshape, Squeeze, Unsqueeze and Flatten keep the order of elements; Transpose and Concat move them.
    2. An element-wise operator is computed box by box by `evaluate`.
    """
    result, declared = node.output, ops.get(node.op)
    operands = [v.recipe for v in node.inputs if v is not None and v.recipe is not None]
    if len(node.outputs) != 1 or len(operands) != len(node.inputs) or not operands or not result.is_static:
        return None
    shape = tuple(int(d) for d in result.shape or ())  # type: ignore[arg-type]
    if not product(shape) or any(r.dtype.kind == "handle" for r in operands):
        return None
    attrs: dict[str, Any] = dict(node.attrs)
    if node.op in _SAME_ORDER:
        return reshape(operands[0], shape) if operands[0].size == product(shape) else None
    if node.op == "Transpose":
        rank = len(shape)
        return permute(operands[0], attrs.get("perm") or tuple(reversed(range(rank))))
    if node.op == "Concat":
        return join(operands, int(attrs["axis"]) % len(shape))
    if declared is not None and declared.kind == "elementwise" and _broadcast(operands) == shape:
        name = (node.op, tuple(sorted((k, str(v)) for k, v in attrs.items())))

        def apply(arrays: Sequence[np.ndarray]) -> Any:
            return evaluate(node.op, attrs, arrays, 1)[0]

        return Computed(name, apply, tuple(operands), shape, result.dtype)
    return None


def _broadcast(operands: Sequence[Recipe]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(*(o.shape for o in operands))
    except ValueError:
        return None
