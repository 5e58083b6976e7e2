"""Movement operators: attributes that became inputs, and operators that were renamed."""

from __future__ import annotations

import numpy as np

from frontend.normalise.pending import PendingNode, form


@form("Reshape", before=5)
def _shape_as_input(node: PendingNode) -> None:
    node.move_to_input("shape", 1)


@form("Squeeze Unsqueeze", before=13)
def _axes_as_input(node: PendingNode) -> None:
    node.move_to_input("axes", 1)


@form("Concat", before=4)
def _old_concat_axis(node: PendingNode) -> None:
    node.attrs.setdefault("axis", 1)


@form("Slice", before=10)
def _bounds_as_inputs(node: PendingNode) -> None:
    for index, name in enumerate(("starts", "ends", "axes")):
        node.move_to_input(name, 1 + index)


@form("Split", before=13)
def _sizes_as_input(node: PendingNode) -> None:
    node.move_to_input("split", 1)


@form("Split", before=18)
def _count_of_parts(node: PendingNode) -> None:
    """Without sizes the outputs, also unused ones, were counted."""
    if node.input(1) is None:
        node.attrs["num_outputs"] = len(node.outputs)


@form("Pad", before=2)
def _paddings(node: PendingNode) -> None:
    node.attrs["pads"] = node.attrs.pop("paddings")


@form("Pad", before=11)
def _pads_as_inputs(node: PendingNode) -> None:
    node.move_to_input("pads", 1)
    node.move_to_input("value", 2, node.value(0).dtype)


@form("Tile", before=6)
def _one_axis(node: PendingNode) -> None:
    """Tile-1 repeated along a single axis, both given as scalars."""
    count, axis = node.value(1), node.value(2)
    if count.data is None or axis.data is None:
        raise node.error("Tile of opset 1 with repeats that are not constant")
    repeats = np.ones(node.rank(0), np.int64)
    repeats[int(axis.data.item())] = int(count.data.item())
    node.become("Tile", [node.value(0), node.ints(repeats, "repeats")])


@form("Scatter", before=11)
def _scatter_elements(node: PendingNode) -> None:
    node.op = "ScatterElements"
