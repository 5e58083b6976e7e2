"""Reductions: axes as input, softmax over flattened axes, TopK."""

from __future__ import annotations

import numpy as np

from frontend.normalise.pending import PendingNode, form


@form("ReduceSum", before=13)
@form("ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare", 18)
def _axes_as_input(node: PendingNode) -> None:
    node.move_to_input("axes", 1)


@form("Softmax LogSoftmax Hardmax", before=13)
def _over_flattened_axes(node: PendingNode) -> None:
    """Until opset 12 all axes from `axis` (default 1) on were normalised together, as one."""
    x = node.value(0)
    axis = int(node.attrs.pop("axis", 1))  # type: ignore[arg-type]
    if x.shape is not None:
        axis += len(x.shape) if axis < 0 else 0
        if axis == len(x.shape) - 1:
            return
    elif axis == -1:
        return
    flat = node.emit("Flatten", [x], {"axis": axis})
    shape = node.emit("Shape", [x])
    node.become("Reshape", [node.emit(node.op, [flat]), shape], {"allowzero": 1})


@form("TopK", before=10)
def _k_as_input(node: PendingNode) -> None:
    if "k" in node.attrs:
        node.attrs["k"] = (node.attrs["k"],)  # type: ignore[assignment]
    node.move_to_input("k", 1)


@form("GlobalLpPool LpPool", before=2)
def _whole_power(node: PendingNode) -> None:
    node.attrs["p"] = int(node.attrs.get("p", 2))  # type: ignore[arg-type]


@form("DFT", before=20)
def _axis_as_input(node: PendingNode) -> None:
    node.set_input(2, node.constant(node.attrs.pop("axis", 1), np.int64, "axis"))
