"""Element-wise operators: old broadcasting, bounds of Clip, Dropout, casts by name."""

from __future__ import annotations

import numpy as np
import onnx

from frontend.normalise.pending import PendingNode, form
from tensor_types.dtypes import BOOL


@form("Add Sub Mul Div Pow And Or Xor Equal Greater Less", before=7)
def _align_to_axis(node: PendingNode) -> None:
    """The second operand lay along the first one from `axis` on; axes of one behind it say the same."""
    axis = node.attrs.pop("axis", None)
    node.attrs.pop("broadcast", None)
    if axis is None:
        return
    first, second = node.rank(0), node.rank(1)
    start = int(axis) + first if int(axis) < 0 else int(axis)  # type: ignore[arg-type]
    behind = first - start - second
    if behind > 0:
        axes = node.ints(range(second, second + behind), "axes")
        node.set_input(1, node.emit("Unsqueeze", [node.value(1), axes]))


@form("PRelu", before=7)
def _slope_per_channel(node: PendingNode) -> None:
    rank = node.rank(0)
    if node.rank(1) == 1 and rank > 2 and node.value(1).shape != (1,):
        axes = node.ints(range(1, rank - 1), "axes")
        node.set_input(1, node.emit("Unsqueeze", [node.value(1), axes]))


@form("Clip", before=11)
def _bounds_as_inputs(node: PendingNode) -> None:
    dtype = node.value(0).dtype
    node.move_to_input("min", 1, dtype)
    node.move_to_input("max", 2, dtype)


@form("Selu", before=6)
def _old_selu_defaults(node: PendingNode) -> None:
    node.attrs.setdefault("alpha", 1.6732)
    node.attrs.setdefault("gamma", 1.0507)


@form("Cast", before=6)
def _type_by_name(node: PendingNode) -> None:
    to = node.attrs.get("to")
    if isinstance(to, str):
        if to.upper() not in onnx.TensorProto.DataType.keys():
            raise node.error(f"to is {to[:40]!r}, which is no dtype")
        node.attrs["to"] = onnx.TensorProto.DataType.Value(to.upper())


@form("CastLike")
def _cast_to_dtype(node: PendingNode) -> None:
    """Only the dtype of the second operand matters: its shape need not even broadcast to the first one's."""
    target = node.value(1).dtype
    if target.onnx > 0:
        node.become("Cast", [node.value(0)], {**node.attrs, "to": target.onnx})


@form("Dropout")
def _dropout_does_nothing(node: PendingNode) -> None:
    """Inference: the data passes, the mask is all true. Training that is asked for, or may be, is kept."""
    training = node.input(2)
    if training is not None and (training.data is None or training.data.any()):
        return
    data = node.value(0)
    if len(node.outputs) > 1:
        mask = node.outputs[1]
        if mask:
            shape = node.emit("Shape", [data])
            dtype = data.dtype if node.opset < 10 else BOOL
            node.replaced[mask] = node.emit("ConstantOfShape", [shape], {"value": np.ones(1, dtype.numpy)})
        del node.outputs[1:]
    node.become("Identity", [data])
