"""Shape arithmetic that inference has already done leaves the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np

from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.infer import infer_node
from graph_opt.ir.ops.registry import content_of, is_fresh
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.scopes import control_graphs, replaceable
from graph_opt.simplify.shape_targets import expand_target, reshape_target
from tensor_types.dims import Dim, names
from tensor_types.proofs import Range, prove_le

TO_THE_END = 2**31 - 1
"""Inference reads this as an end that no extent reaches; it fits i32 and i64."""


@dataclass(frozen=True)
class FoldShapes:
    """Uses what is known of small integer tensors.

    1. A value whose elements are all known numbers becomes a constant. Floats only without zeros, as content has no
       sign of zero.
    2. The target of a Reshape or Expand becomes a constant where numbers, 0 and -1 can say the shape (Expand: 1).
       Another known Reshape target is dropped: the shape of the output is the target.
    3. Sizes of a Resize that are whole multiples of the extents become constant scales.
    4. An end of a Slice at or beyond the extent becomes "to the end".
    5. A vector of extents of a graph input is read off the input by one Shape.
    Chains of Shape, Gather, Concat that fed only these are then dead. What stays is arithmetic on sizes that some
    operator needs as data; kernels read such operands by their symbolic content.
    """

    name: ClassVar[str] = "fold-shapes"

    def apply(self, graph: Graph) -> bool:
        return any([self._fold(part, graph.inputs) for part in control_graphs(graph)])

    def _fold(self, graph: Graph, sources: list[Value]) -> bool:
        rewriter = Rewriter(graph)
        changed = False
        for node in list(graph.nodes):
            changed |= any([_constant(rewriter, value) for value in node.outputs])
            if node.op in ("Reshape", "Expand"):
                changed |= _target(rewriter, node)
            elif node.op == "Resize":
                changed |= _scales(rewriter, node)
            elif node.op == "Slice":
                changed |= _slice_end(rewriter, node)
            if node.op != "Shape":
                changed |= any([_extents(rewriter, node, value, sources) for value in node.outputs])
        if changed:
            rewriter.erase_dead()
        return changed


def _constant(rewriter: Rewriter, value: Value) -> bool:
    content = value.content
    if content is None or not value.is_static or not all(isinstance(v, int) for v in content):
        return False
    if not value.uses and not rewriter.graph.is_output(value):
        return False
    if value.dtype.is_float and 0 in content:
        return False
    try:
        data = np.array(content, value.dtype.numpy).reshape(cast("tuple[int, ...]", value.shape))
    except OverflowError:  # arithmetic that wraps at run time
        return False
    constant = rewriter.graph.add_constant(value.name, data, value.dtype)
    if replaceable(rewriter.graph, value, constant):
        rewriter.replace(value, constant, "folded")
        return True
    del rewriter.graph.values[constant.name]
    return False


def _symbolic(value: Value | None) -> tuple[Dim, ...] | None:
    """The content of an operand that is not a constant."""
    return None if value is None or value.is_constant else content_of(value)


def _target(rewriter: Rewriter, node: Node) -> bool:
    source, target = node.input(0), node.input(1)
    wanted, known = node.output.shape, _symbolic(target)
    if source is None or source.shape is None or known is None or wanted is None:
        return False
    if node.op == "Expand":
        found = expand_target(source.shape, wanted)
    else:
        found = None if node.attrs.get("allowzero") else reshape_target(source.shape, wanted)
    if found is not None:
        node.set_input(1, rewriter.constant(np.array(found, np.int64), f"{node.name}.target"))
        return True
    settled = not any(is_fresh(name) for extent in wanted for name in names(extent))
    if node.op == "Reshape" and settled and not source.is_constant and source.dtype.kind != "handle":
        node.set_input(1, None)
        return True
    return False


def _scales(rewriter: Rewriter, node: Node) -> bool:
    source, shape = node.input(0), node.output.shape
    if _symbolic(node.input(3)) is None or source is None or source.shape is None or shape is None:
        return False
    if node.attrs.get("axes") is not None or node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return False
    pairs = zip(source.shape, shape, strict=True)
    factors = [next((f for f in range(1, 65) if small * f == large), None) for small, large in pairs]
    if None in factors:
        return False
    sizes = node.inputs[3]
    node.set_input(2, rewriter.constant(np.array(factors, np.float32), f"{node.name}.scales"))
    node.set_input(3, None)
    infer_node(rewriter.graph, node)
    if node.output.shape == shape:
        return True
    node.set_input(2, None)
    node.set_input(3, sizes)
    node.output.shape = shape
    return False


def _slice_end(rewriter: Rewriter, node: Node) -> bool:
    """Steps must be positive, so that an end beyond the extent means the extent."""
    source, _, ends, axes, steps = (node.input(i) for i in range(5))
    known = _symbolic(ends)
    if source is None or source.shape is None or ends is None or known is None:
        return False
    if steps is not None and (steps.data is None or (steps.data < 1).any()):
        return False
    if axes is not None and axes.data is None:
        return False
    places = range(len(known)) if axes is None or axes.data is None else axes.data.reshape(-1).tolist()
    ranges = cast("dict[str, Range]", rewriter.graph.dims)
    found: list[int] = []
    for end, axis in zip(known, places, strict=True):
        if isinstance(end, int):
            found.append(end)
        elif prove_le(source.shape[axis], end, ranges):
            found.append(TO_THE_END)
        else:
            return False
    node.set_input(2, rewriter.constant(np.array(found, ends.dtype.numpy), f"{node.name}.ends", ends.dtype))
    return True


def _extents(rewriter: Rewriter, node: Node, value: Value, sources: list[Value]) -> bool:
    content = value.content
    if content is None or value.dtype.name != "i64" or value.shape != (len(content),) or not value.uses:
        return False
    if all(isinstance(d, int) for d in content):
        return False
    for source in sources:
        shape = source.shape or ()
        for start in range(len(shape) - len(content) + 1):
            if shape[start : start + len(content)] != content:
                continue
            attrs = {"start": start, "end": start + len(content)}
            read = rewriter.insert("Shape", [source], attrs, before=node, name=f"{value.name}.extents")
            if replaceable(rewriter.graph, value, read.output):
                rewriter.replace(value, read.output, "same")
                return True
            rewriter.erase_dead([read])
            return False
    return False
