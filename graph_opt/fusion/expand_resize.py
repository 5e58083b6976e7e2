"""Writes a Resize that has no kernel of its own as gathers along its axes, weighted where it interpolates.

Every axis is resized by itself: an element of the result is a sum of a few elements of the axis, and which ones, with
what weights, is found out by resizing the unit vectors of that axis. So all modes, roundings and edges are those of the
operator's definition.

    nearest:          Gather(x, places)
    linear, cubic:    Gather(x, places_0) * weights_0 + Gather(x, places_1) * weights_1 + ...

Rules
1. The sizes of the axes that change are numbers. Floats interpolate, every dtype takes its nearest.
2. Up to 4 elements make one of the result; antialiasing that needs more stays.
3. A form that a kernel takes as it is stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.fusion.families import Kernels
from graph_opt.ir.core import AttrValue, Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.constant_recipes import Evaluate
from tensor_types.dtypes import F32
from tensor_types.errors import OpenAtcError

_TAPS = 4
_LONGEST = 2048
"""Longest axis whose unit vectors are looked at, before and after."""


@dataclass(frozen=True)
class ExpandResize:
    """See the module. `evaluate` computes an operator: op, attributes, inputs, number of outputs -> results."""

    kernels: Kernels
    evaluate: Evaluate
    name: ClassVar[str] = "expand-resize"

    def apply(self, graph: Graph) -> bool:
        rewriter = Rewriter(graph)
        gone = []
        for node in [n for n in graph.nodes if n.op == "Resize"]:
            if self.kernels.why_not_alone(graph, node) is None:
                continue
            new = self._rewritten(rewriter, node)
            if new is not None:
                rewriter.replace(node.output, new, "same")
                gone.append(node)
        rewriter.erase_dead(gone)
        return bool(gone)

    def _rewritten(self, rewriter: Rewriter, node: Node) -> Value | None:
        x, result = node.inputs[0], node.output
        if x is None or x.shape is None or result.shape is None or not x.format.is_plain:
            return None
        mode = str(node.attrs.get("mode", "nearest"))
        if mode != "nearest" and not x.dtype.is_float:
            return None
        changed = [
            axis for axis, (size, wanted) in enumerate(zip(x.shape, result.shape, strict=True))
            if size != wanted or _scaled(node, axis)
        ]  # fmt: skip
        weights = {axis: self._weights(node, axis, len(x.shape), x.shape[axis], result.shape[axis]) for axis in changed}
        found = {axis: w for axis, w in weights.items() if w is not None}
        if not found or len(found) < len(changed):
            return None
        if max(_taps(w) for w in found.values()) > (1 if mode == "nearest" else _TAPS):
            return None
        value = x
        # Axes that shrink go first: what is behind has less to do.
        for axis in sorted(found, key=lambda k: found[k].shape[1] / found[k].shape[0]):
            value = _resized(rewriter, node, value, axis, found[axis], mode == "nearest")
        return value

    def _weights(self, node: Node, axis: int, rank: int, size: object, wanted: object) -> np.ndarray | None:
        """[element, element of the result]: what resizing one axis makes of its unit vectors."""
        if not isinstance(size, int) or not isinstance(wanted, int) or not 0 < max(size, wanted) <= _LONGEST:
            return None
        scales, sizes = (*node.inputs, None, None, None)[2:4]
        axes = list(node.attrs.get("axes") or range(rank))  # type: ignore[call-overload]
        place = axes.index(axis) if axis in axes else axes.index(axis - rank)
        attrs: dict[str, AttrValue] = {
            k: v for k, v in node.attrs.items() if k not in ("axes", "keep_aspect_ratio_policy")
        }
        if attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
            return None
        factor = target = None
        if scales is not None and scales.shape != (0,):
            if scales.data is None:
                return None
            factor = np.array([1, scales.data.reshape(-1)[place]], np.float32)
        elif sizes is not None:
            target = np.array([size, wanted], np.int64)
        try:
            (found,) = self.evaluate("Resize", attrs, [np.eye(size, dtype=np.float32), None, factor, target], 1)
        except OpenAtcError:
            return None
        weights = np.asarray(found, np.float32)
        return weights if weights.shape == (size, wanted) else None


def _taps(weights: np.ndarray) -> int:
    """Most elements that make one of the result."""
    return max(1, int((weights != 0).sum(0).max()))


def _scaled(node: Node, axis: int) -> bool:
    """True if a scale other than 1 moves the elements of an axis that keeps its size."""
    scales = (*node.inputs, None, None)[2]
    if scales is None or scales.data is None or not scales.data.size:
        return False
    rank = len(node.output.shape or ())
    axes = [int(a) % rank for a in node.attrs.get("axes") or range(rank)]  # type: ignore[attr-defined, union-attr]
    return axis in axes and float(scales.data.reshape(-1)[axes.index(axis)]) != 1


def _resized(rewriter: Rewriter, node: Node, x: Value, axis: int, weights: np.ndarray, nearest: bool) -> Value:
    own = node.name or node.output.name
    order = np.argsort(weights == 0, axis=0, kind="stable")  # the elements that count come first, in order

    def insert(op: str, inputs: list[Value], attrs: dict[str, AttrValue] | None = None) -> Value:
        return rewriter.insert(op, inputs, attrs, before=node, name=f"{own}/{op.lower()}").output

    total: Value | None = None
    for tap in range(1 if nearest else _taps(weights)):
        places = rewriter.constant(order[tap].astype(np.int64), f"{own}/places")
        part = insert("Gather", [x, places], {"axis": axis})
        if not nearest:
            shape = [-1 if k == axis else 1 for k in range(len(x.shape or ()))]
            factors = weights[order[tap], np.arange(weights.shape[1])].reshape(shape)
            dtype = x.dtype if x.dtype.is_float else F32
            part = insert("Mul", [part, rewriter.constant(factors.astype(dtype.numpy), f"{own}/weights", dtype)])
        total = part if total is None else insert("Add", [total, part])
    assert total is not None
    return total
