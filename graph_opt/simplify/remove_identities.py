"""Nodes that give their input back go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.ops.registry import content_of
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.scopes import replace_nodes
from tensor_types.recipes import blocks

_SAME_SHAPE = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile"}
_SINGLE = {"Concat", "Sum", "Max", "Min", "Mean"}


@dataclass(frozen=True)
class RemoveIdentities:
    """Removes nodes whose result is one of their inputs, bit for bit.

    Identity, Dropout of inference, Cast to the same dtype; Reshape, Squeeze, Expand, Tile... to the same shape;
    Transpose in order; Pad by nothing; Slice of everything; Concat, Sum, Max of a single input; a float plus -0 or
    minus 0, an integer plus or minus 0; times 1, divided by 1, to the power of 1; the maximum with -inf, the minimum
    with inf. A float plus +0 is not one of them: it turns -0 into +0. Nor is Clip without bounds, which makes
    infinities finite.
    """

    name: ClassVar[str] = "remove-identities"

    def apply(self, graph: Graph) -> bool:
        return replace_nodes(graph, _source)


def _source(rewriter: Rewriter, node: Node) -> Value | None:
    source, result = unchanged_input(node), node.output
    if source is None or any(v.uses or rewriter.graph.is_output(v) for v in node.outputs[1:]):
        return None
    return source if source.dtype == result.dtype and source.format == result.format else None


def unchanged_input(node: Node) -> Value | None:
    """The input that the node's first output equals; None when it changes something."""
    x = node.input(0)
    if x is None:
        return None
    op, y = node.op, node.output
    same_shape = x.shape is not None and x.shape == y.shape
    if op == "Identity":
        return x
    if op == "Dropout":
        training = node.input(2)
        return x if training is None or (training.data is not None and not training.data.any()) else None
    if op in ("Cast", "CastLike"):
        return x if x.dtype == y.dtype else None
    if op in _SAME_SHAPE:
        return x if same_shape else None
    if op in _SINGLE and len(node.inputs) == 1:
        return x
    if op == "Split":
        return x if len(node.outputs) == 1 and same_shape else None
    if op == "Transpose":
        perm = node.attrs.get("perm")
        order = [int(p) for p in perm] if perm is not None else []  # type: ignore[union-attr]
        return x if same_shape and perm is not None and order == sorted(order) else None
    if op == "Pad":
        pads = node.input(1)
        content = None if pads is None else content_of(pads)
        return x if content is not None and not any(p != 0 for p in content) else None
    if op == "Slice":
        steps = node.input(4)
        forward = steps is None or (steps.data is not None and bool((steps.data == 1).all()))
        return x if same_shape and forward else None
    return _neutral_operand(node)


def _neutral_operand(node: Node) -> Value | None:
    """The other operand of arithmetic with a constant that changes nothing."""
    if node.op not in ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min") or len(node.inputs) != 2:
        return None
    a, b = node.inputs
    for x, other in ((a, b), (b, a)):
        if x is None or other is None or other.recipe is None or x.shape is None or x.shape != node.output.shape:
            continue
        if other is a and node.op in ("Sub", "Div", "Pow"):
            continue
        is_number = other.recipe.size and other.dtype.kind in ("float", "int", "uint")
        if is_number and all(_neutral(node.op, part) for part in blocks(other.recipe)):
            return x
    return None


def _neutral(op: str, data: np.ndarray) -> bool:
    if op in ("Mul", "Div", "Pow"):
        return bool((data == 1).all())
    if op in ("Max", "Min"):
        return bool((data == (-np.inf if op == "Max" else np.inf)).all())
    if not (data == 0).all():
        return False
    if not np.issubdtype(data.dtype, np.integer):
        signs = np.signbit(data.astype(np.float64))
        return bool(signs.all() if op == "Add" else not signs.any())
    return True
