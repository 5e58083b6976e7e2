"""Images: Upsample and the first Resize, old names of modes, defaults that changed."""

from __future__ import annotations

import numpy as np

from frontend.normalise.pending import PendingNode, form


@form("Upsample", before=7)
def _height_and_width(node: PendingNode) -> None:
    height, width = node.attrs.pop("height_scale"), node.attrs.pop("width_scale")
    node.attrs["scales"] = (1.0, 1.0, height, width)  # type: ignore[assignment]
    if node.attrs.get("mode") == "bilinear":
        node.attrs["mode"] = "linear"


@form("Upsample", before=11)
def _upsample_is_resize(node: PendingNode) -> None:
    node.move_to_input("scales", 1, np.float32)
    node.op = "Resize"


@form("Resize", before=11)
def _asymmetric(node: PendingNode) -> None:
    """Resize-10: no half pixels; nearest takes the lower neighbour to enlarge an axis, the upper one to shrink it."""
    scales = node.value(1)
    nearest = "by_direction"
    if scales.data is not None and ((scales.data >= 1).all() or (scales.data <= 1).all()):
        nearest = "floor" if (scales.data >= 1).all() else "ceil"
    node.become("Resize", [node.value(0), None, scales], {
        "coordinate_transformation_mode": "asymmetric", "mode": node.attrs.get("mode", "nearest"),
        "nearest_mode": nearest,
    })  # fmt: skip


@form("Resize", before=13)
def _half_pixel_for_nearest(node: PendingNode) -> None:
    """tf_half_pixel_for_nn lies half a pixel above half_pixel, so its floor is the nearest pixel, ties upwards."""
    if node.attrs.get("coordinate_transformation_mode") != "tf_half_pixel_for_nn":
        return
    if node.attrs.get("mode", "nearest") == "nearest" and node.attrs.get("nearest_mode") == "floor":
        node.attrs["coordinate_transformation_mode"] = "half_pixel"
        node.attrs["nearest_mode"] = "round_prefer_ceil"


@form("Resize")
def _empty_means_absent(node: PendingNode) -> None:
    """Scales had to be given even when sizes decided, as an empty tensor; a roi says something in one mode only."""
    cropped = node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    for index, needed in ((1, cropped), (2, True)):
        value = node.input(index)
        if value is not None and (not needed or value.shape == (0,)):
            node.set_input(index, None)


@form("GridSample", before=20)
def _mode_names(node: PendingNode) -> None:
    mode = node.attrs.get("mode", "bilinear")
    node.attrs["mode"] = {"bilinear": "linear", "bicubic": "cubic"}.get(str(mode), str(mode))


@form("RoiAlign", before=16)
def _no_half_pixel(node: PendingNode) -> None:
    node.attrs.setdefault("coordinate_transformation_mode", "output_half_pixel")
