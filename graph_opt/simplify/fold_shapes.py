"""Makes shape arithmetic unnecessary: what inference knows is a constant, or need not be read.

Rules
1. A value whose content is known numbers becomes a constant. Floats only without zeros: content has no sign of zero.
2. A target of Reshape that inference knows becomes a constant with 0 and -1 in place of symbolic extents, when that
   gives the same shape; otherwise it is dropped, and the shape of the output is the target.
3. A target of Expand becomes a constant with 1 for each axis that keeps its extent, when that gives the same shape.
4. Resize by `sizes` that are whole multiples of the input's extents becomes a Resize by constant `scales`.
5. An end of Slice at or beyond the extent becomes "to the end", when all its ends are numbers then.

Any other operand whose `content` is known (Slice, ConstantOfShape, Expand...) stays: a kernel reads the content, and
the nodes that compute it are needed on the AI CPU only if some task reads the value itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np

from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.infer import infer_node
from graph_opt.ir.ops.registry import content_of
from graph_opt.ir.rewriter import Rewriter
from tensor_types.dims import Dim, Range, prove_le
from tensor_types.errors import InvalidModel

TO_THE_END = 2**31 - 1
"""Inference reads this as an end that no extent reaches; it fits i32 and i64."""


@dataclass(frozen=True)
class FoldShapes:
    """See the module."""

    name: ClassVar[str] = "fold-shapes"

    def apply(self, graph: Graph) -> bool:
        rewriter = Rewriter(graph)
        changed = False
        for node in graph.nodes[:]:
            if node.op == "Identity" and graph.is_output(node.output):
                continue  # it carries the public name of a constant
            for value in node.outputs:
                known = _numbers(value)
                if known is not None:
                    rewriter.replace(value, rewriter.constant(known, f"{value.name}.folded", value.dtype), "folded")
                    changed = True
        for node in graph.nodes:
            rule = _RULES.get(node.op)
            if rule is not None and node.output.shape is not None:
                changed |= rule(rewriter, node)
        if changed:
            rewriter.erase_dead()
        return changed


def _numbers(value: Value) -> np.ndarray | None:
    content = value.content
    if content is None or not value.is_static or not all(isinstance(d, int) for d in content):
        return None
    if value.dtype.is_float and 0 in content:
        return None
    if not (value.dtype.is_float or value.dtype.is_integer or value.dtype.kind == "bool"):
        return None
    try:
        array = np.array(content, value.dtype.numpy)
    except OverflowError:  # arithmetic that wraps at run time
        return None
    return array.reshape(cast("tuple[int, ...]", value.shape))


def _symbolic(node: Node, index: int) -> tuple[Value, tuple[Dim, ...]] | None:
    """Input `index` and its content, unless it is absent, a constant or unknown."""
    value = node.input(index)
    content = None if value is None or value.is_constant else content_of(value)
    return None if value is None or content is None else (value, content)


def _keeps_shape(rewriter: Rewriter, node: Node, index: int, numbers: Iterable[int]) -> bool:
    """Sets input `index` to a constant if inference then gives the same shape; whether it did."""
    old, shape = node.inputs[index], node.output.shape
    content = node.output.content
    assert old is not None
    constant = rewriter.constant(np.array(list(numbers), old.dtype.numpy), f"{old.name}.folded", old.dtype)
    node.set_input(index, constant)
    try:
        infer_node(rewriter.graph, node)
    except InvalidModel:
        node.output.shape = None
    if node.output.shape == shape:
        node.output.content = content
        return True
    node.set_input(index, old)
    node.output.shape, node.output.content = shape, content
    return False


def _reshape(rewriter: Rewriter, node: Node) -> bool:
    known, source = _symbolic(node, 1), node.inputs[0]
    shape = node.output.shape
    if known is None or source is None or source.is_constant or shape is None or source.dtype.kind == "handle":
        return False
    given = source.shape or ()
    copies = not node.attrs.get("allowzero")
    target = [
        d if isinstance(d, int) else 0 if copies and axis < len(given) and given[axis] == d else -1
        for axis, d in enumerate(shape)
    ]
    if 0 not in (d for d in shape) and target.count(-1) <= 1 and _keeps_shape(rewriter, node, 1, target):
        return True
    node.set_input(1, None)
    return True


def _expand(rewriter: Rewriter, node: Node) -> bool:
    known, source, shape = _symbolic(node, 1), node.inputs[0], node.output.shape
    if known is None or source is None or source.shape is None or shape is None:
        return False
    kept = (1,) * (len(shape) - source.rank) + source.shape
    target = [d if isinstance(d, int) else 1 for d in shape]
    same = all(isinstance(d, int) or d == k for d, k in zip(shape, kept, strict=True))
    return same and _keeps_shape(rewriter, node, 1, target)


def _resize(rewriter: Rewriter, node: Node) -> bool:
    known, source, shape = _symbolic(node, 3), node.inputs[0], node.output.shape
    if known is None or source is None or source.shape is None or shape is None:
        return False
    if node.attrs.get("axes") is not None or node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return False
    factors = [_multiple(small, large) for small, large in zip(source.shape, shape, strict=True)]
    if None in factors:
        return False
    scales = rewriter.constant(np.array(factors, np.float32), f"{node.output.name}.scales")
    sizes = node.inputs[3]
    node.set_input(2, scales)
    node.set_input(3, None)
    infer_node(rewriter.graph, node)
    if node.output.shape != shape:
        node.set_input(2, None)
        node.set_input(3, sizes)
        node.output.shape = shape
        return False
    return True


def _multiple(small: Dim, large: Dim) -> int | None:
    """How often `small` is in `large`, if that is the same whole number at every run; up to 64."""
    return next((factor for factor in range(1, 65) if small * factor == large), None)


def _slice(rewriter: Rewriter, node: Node) -> bool:
    known, source = _symbolic(node, 2), node.inputs[0]
    if known is None or source is None or source.shape is None:
        return False
    axes, steps = node.input(3), node.input(4)
    places = None if axes is None else content_of(axes)
    forward = steps is None or (steps.data is not None and bool((steps.data > 0).all()))
    if not forward or (axes is not None and places is None):
        return False
    ranges = cast("dict[str, Range]", rewriter.graph.dims)
    ends: list[int] = []
    for i, end in enumerate(known[1]):
        extent = source.shape[int(cast(int, places[i])) if places is not None else i]
        if isinstance(end, int):
            ends.append(end)
        elif prove_le(extent, end, ranges):
            ends.append(TO_THE_END)
        else:
            return False
    return _keeps_shape(rewriter, node, 2, ends)


_RULES: dict[str, Callable[[Rewriter, Node], bool]] = {
    "Reshape": _reshape,
    "Expand": _expand,
    "Resize": _resize,
    "Slice": _slice,
}
