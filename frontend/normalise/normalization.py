"""Normalizations: outputs of batch normalisation, scales per group, across-channel variance."""

from __future__ import annotations

import numpy as np

from frontend.normalise.pending import PendingNode, form
from graph_opt.ir import Value


@form("BatchNormalization", before=14)
def _saved_statistics(node: PendingNode) -> None:
    """Until opset 13 training was told by the number of outputs, and two of them only served the gradient."""
    if any(node.outputs[3:]):
        raise node.error("saved_mean and saved_var, outputs for training, are used")
    del node.outputs[3:]
    if any(node.outputs[1:]):
        node.attrs["training_mode"] = 1
    else:
        del node.outputs[1:]


@form("BatchNormalization", before=9)
def _per_activation(node: PendingNode) -> None:
    """spatial=0 keeps statistics for every activation: plain arithmetic over the axes behind the batch."""
    if node.attrs.pop("spatial", 1):
        return
    x, scale, bias, mean, var = (node.value(i) for i in range(5))
    epsilon = node.constant(node.attrs.get("epsilon", 1e-5), x.dtype, "epsilon")
    deviation = node.emit("Sqrt", [node.emit("Add", [var, epsilon])])
    centred = node.emit("Div", [node.emit("Sub", [x, mean]), deviation])
    node.become("Add", [node.emit("Mul", [centred, scale]), bias])


@form("GroupNormalization", before=21)
def _per_channel(node: PendingNode) -> None:
    """Scale and bias held one number per group."""
    shape = node.value(0).shape
    groups = int(node.attrs["num_groups"])  # type: ignore[arg-type]
    if shape is None or not isinstance(shape[1], int):
        raise node.error("GroupNormalization with an unknown number of channels")
    for index in (1, 2):
        node.set_input(index, _repeated(node, node.value(index), groups, shape[1] // groups))


def _repeated(node: PendingNode, value: Value, groups: int, times: int) -> Value:
    if value.data is not None:
        return node.constant(np.repeat(value.data, times), value.dtype, "per_channel")
    column = node.emit("Unsqueeze", [value, node.ints([1], "axes")])
    spread = node.emit("Expand", [column, node.ints([groups, times], "sizes")])
    return node.emit("Reshape", [spread, node.ints([-1], "vector")])


@form("MeanVarianceNormalization", before=9)
def _axes_from_flags(node: PendingNode) -> None:
    across = node.attrs.pop("across_channels", 0)
    if not node.attrs.pop("normalize_variance", 1):
        axes = node.ints((0, 2, 3) if not across else (0, 1, 2, 3), "axes")
        node.become("Sub", [node.value(0), node.emit("ReduceMean", [node.value(0), axes])])
        return
    node.attrs["axes"] = (0, 1, 2, 3) if across else (0, 2, 3)
