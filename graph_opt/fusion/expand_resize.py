"""Writes a Resize that has no kernel of its own as gathers along its axes, weighted where it interpolates.

Every axis is resized by itself: an element of the result is a sum of a few elements of the axis, and which ones, with
what weights, is found out by resizing the unit vectors of that axis. So all modes, roundings and edges are those of the
operator's definition.

Where a size is known only at run time a task of the AI CPU finds these out, ResizeTaps, for one axis at a time.

    nearest:          Gather(x, places)
    linear, cubic:    Gather(x, places_0) * weights_0 + Gather(x, places_1) * weights_1 + ...

Rules
1. Floats interpolate, every dtype takes its nearest.
2. Up to 4 elements make one of the result; antialiasing that needs more stays, and at run time all of it.
3. A form that a kernel takes as it is stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.fusion.families import Kernels
from graph_opt.ir.core import AttrValue, Graph, Node, Value
from graph_opt.ir.infer import infer_graph
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.constant_recipes import Evaluate
from tensor_types.dtypes import F32, I64
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
            new = self._rewritten(rewriter, node) or _at_run_time(rewriter, node)
            if new is not None:
                rewriter.replace(node.output, new, "same")
                gone.append(node)
        rewriter.erase_dead(gone)
        if gone:
            infer_graph(graph)  # another tensor decides a size
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


def _at_run_time(rewriter: Rewriter, node: Node) -> Value | None:
    x, result = node.inputs[0], node.output
    if x is None or x.shape is None or result.shape is None or not x.format.is_plain or node.attrs.get("antialias"):
        return None
    mode, transform = str(node.attrs.get("mode", "nearest")), node.attrs.get("coordinate_transformation_mode")
    if x.dtype.kind == "handle" or transform == "tf_crop_and_resize" or mode != "nearest" and not x.dtype.is_float:
        return None
    rank, own = len(x.shape), node.name or node.output.name
    scales, sizes = (*node.inputs, None, None, None)[2:4]
    axes = [int(a) % rank for a in node.attrs.get("axes") or range(rank)]  # type: ignore[attr-defined, union-attr]
    changed = [a for a in axes if x.shape[a] != result.shape[a] or scales is not None and _is_scaled(scales, axes, a)]
    left_out = ("axes", "antialias", "extrapolation_value")
    attrs: dict[str, AttrValue] = {k: v for k, v in node.attrs.items() if k not in left_out}
    shape = rewriter.insert("Shape", [x], before=node, name=f"{own}/shape").output
    given = [shape, None if scales is not None and scales.shape == (0,) else scales, sizes]
    outputs = [f"{own}/places", f"{own}/weights"]
    value = x
    for axis in changed:
        like = Value("", I64, (0, result.shape[axis]))
        taps = rewriter.insert(
            "ResizeTaps", given, {**attrs, "resized": tuple(axes), "place": axes.index(axis)}, before=node,
            outputs=outputs, name=f"{own}/taps{axis}", instead=like,
        )  # fmt: skip
        value = _weighted(rewriter, node, value, axis, taps, mode == "nearest")
    return value if value.shape == result.shape and value is not x else None


def _is_scaled(scales: Value, axes: list[int], axis: int) -> bool:
    """False where a scale is known to be 1."""
    return scales.shape != (0,) and (scales.data is None or float(scales.data.reshape(-1)[axes.index(axis)]) != 1)


def _weighted(rewriter: Rewriter, node: Node, x: Value, axis: int, taps: Node, nearest: bool) -> Value:
    """Along one axis, the sum of the elements that the taps tell."""
    own, rank = node.name or node.output.name, len(x.shape or ())

    def insert(op: str, inputs: list[Value], attrs: dict[str, AttrValue] | None = None) -> Value:
        return rewriter.insert(op, inputs, attrs, before=node, name=f"{own}/{op.lower()}").output

    places, weights = taps.outputs
    shape = rewriter.constant(np.array([-1 if k == axis else 1 for k in range(rank)]), f"{own}/along")
    total: Value | None = None
    for tap in range(int((places.shape or (1,))[0])):  # type: ignore[arg-type]
        which = rewriter.constant(np.array(tap), f"{own}/tap")
        part = insert("Gather", [x, insert("Gather", [places, which], {"axis": 0})], {"axis": axis})
        if not nearest:
            factors = insert("Reshape", [insert("Gather", [weights, which], {"axis": 0}), shape])
            factors = factors if x.dtype == F32 else insert("Cast", [factors], {"to": x.dtype.onnx})
            part = insert("Mul", [part, factors])
        total = part if total is None else insert("Add", [total, part])
    assert total is not None
    return total


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
