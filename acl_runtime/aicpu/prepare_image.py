"""PrepareImage: images as cameras and decoders give them become tensors."""

from __future__ import annotations

import numpy as np

import tensor_types.images as p
from acl_runtime.aicpu.registry import Array, Attrs, Inputs, implementation
from tensor_types.dtypes import F16


@implementation("PrepareImage")
def _prepare(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    image = np.asarray(inputs[0])
    made = _by_parameters(image, np.asarray(inputs[1]), attrs) if len(inputs) > 1 else _by_attributes(image, attrs)
    if made.shape[-1] != attrs["channels"]:
        raise ValueError(f"{attrs['channels']} channels of images of {made.shape[-1]}")
    if attrs["order"] == "NCHW":
        made = made.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(made, np.float16 if attrs["to"] == F16.onnx else np.float32)


def _by_attributes(image: Array, attrs: Attrs) -> Array:
    planes = image
    if attrs.get("format") == p.YUV:
        height = image.shape[1] * 2 // 3
        pairs = image[:, height:].reshape(len(image), height // 2, image.shape[2] // 2, 2)
        planes = np.concatenate([image[:, :height, :, None], pairs.repeat(2, 1).repeat(2, 2)], 3)
    planes = planes[..., list(attrs.get("planes", (0, 1, 2)))]
    if crop := attrs.get("crop"):
        top, left, height, width = crop
        planes = planes[:, top : top + height, left : left + width]
    x = planes.astype(np.float32)
    if attrs.get("matrix"):
        before, after = (np.array(attrs.get(f"{way}_bias", (0, 0, 0)), np.float32) for way in ("input", "output"))
        x = _converted(x, np.array(attrs["matrix"], np.float32).reshape(3, 3), before, 128 + 256 * after)
    count = attrs["channels"]
    mean, least, factor = (
        np.array(attrs.get(name, (default,) * p.PLANES)[:count], np.float32)
        for name, default in (("mean", 0.0), ("least", 0.0), ("factor", 1.0))
    )
    x = (x[..., :count] - mean - least) * factor
    top, bottom, left, right = attrs.get("padding", (0, 0, 0, 0))
    around = ((0, 0), (top, bottom), (left, right), (0, 0))
    return np.pad(x, around, constant_values=attrs.get("padding_value", 0.0))


def _converted(x: Array, matrix: Array, before: Array, after: Array) -> Array:
    """Colours by the matrix, rounded to whole numbers of 0 .. 255."""
    total = (x[..., :3] - before) @ matrix.T + after
    return np.clip(np.floor(total * np.float32(1 / 256)), 0, 255)


def _by_parameters(image: Array, rows: Array, attrs: Attrs) -> Array:
    """IndexError for parameters that lead out of the image."""
    height, width = attrs["size"]
    count = attrs["channels"]
    made = np.zeros((len(rows), height, width, count), np.float32)
    for picture, row in zip(made, rows, strict=True):
        whole = row.astype(np.int64)
        y, inside_y = _positions(height, whole[p.PADDING_TOP], whole[p.HEIGHT], whole[p.TOP])
        x, inside_x = _positions(width, whole[p.PADDING_LEFT], whole[p.WIDTH], whole[p.LEFT])
        planes = []
        for plane in range(p.PLANES if row[p.FORMAT] else 0):
            high, low, of_row, of_column, shift = whole[p.PLANE + 5 * plane : p.PLANE + 5 * plane + 5]
            at = high * 4096 + low + (y[:, None] >> shift) * of_row + (x[None, :] >> shift) * of_column
            if at.min() < 0 or at.max() >= image.size:
                raise IndexError("the parameters lead out of the image")
            planes.append(image[at])
        if not planes:
            raise IndexError("the parameters of an image are not set")
        values = np.stack(planes, -1).astype(np.float32)
        if row[p.CONVERTS]:
            matrix = row[p.MATRIX : p.MATRIX + 9].reshape(3, 3)
            biases = (row[at : at + 3] for at in (p.INPUT_BIAS, p.OUTPUT_BIAS))
            values = _converted(values, matrix, *biases)
        mean, least, factor = (row[at : at + count] for at in (p.MEAN, p.LEAST, p.FACTOR))
        values = (values[..., :count] - mean - least) * factor
        picture[...] = np.where((inside_y[:, None] & inside_x[None, :])[..., None], values, 0)
    return made


def _positions(count: int, before: int, inner: int, start: int) -> tuple[Array, Array]:
    """Where each position of the result is read, and whether it is no padding."""
    at = np.arange(count) - before
    return np.clip(at, 0, max(inner - 1, 0)) + start, (at >= 0) & (at < inner)
