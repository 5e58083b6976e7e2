"""Where the pixels of a picture lie: formats, strides, sizes, and its planes as arrays.

A semi-planar picture of strides (ws, hs) has hs rows of luma, then the rows of interleaved chroma: hs/2 of ws bytes for
4:2:0, hs of ws for 4:2:2, hs of 2*ws for 4:4:4.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.media.descriptions import Picture

MIN_STRIDE, MAX_STRIDE = 32, 16384
MIN_HEIGHT, MAX_SIDE = 6, 8192
ADDRESS_STEP = 16


class Pixel(IntEnum):
    """acldvppPixelFormat, as far as the units take or give it."""

    YUV_400 = 0
    NV12 = 1
    NV21 = 2
    YUV422SP = 3
    YVU422SP = 4
    YUV444SP = 5
    YVU444SP = 6
    RGB_888 = 12
    BGR_888 = 13


SUBSAMPLED = {
    Pixel.NV12: (2, 2), Pixel.NV21: (2, 2), Pixel.YUV422SP: (1, 2), Pixel.YVU422SP: (1, 2), Pixel.YUV444SP: (1, 1),
    Pixel.YVU444SP: (1, 1),
}  # fmt: skip
"""Rows and columns of luma to one of chroma."""
_V_FIRST = frozenset({Pixel.NV21, Pixel.YVU422SP, Pixel.YVU444SP})
_PACKED = {Pixel.RGB_888: 3, Pixel.BGR_888: 3}


@dataclass(frozen=True)
class Planes:
    """Views of a picture's pixels: y [h, w], u and v [h/sy, w/sx] (None for grey)."""

    y: np.ndarray
    u: np.ndarray | None
    v: np.ndarray | None


def align(value: int, step: int) -> int:
    return -(-value // step) * step


def pixel_of(number: int, allowed: frozenset[Pixel], what: str) -> Pixel:
    """The format; INVALID_PARAM for a number that is none, FEATURE_NOT_SUPPORT for one that a unit does not take."""
    if number not in allowed:
        known = ", ".join(f"{p.name} {p.value}" for p in sorted(allowed))
        code = Code.FEATURE_NOT_SUPPORT if 0 <= number <= 1000 else Code.INVALID_PARAM
        raise DeviceError(code, f"{what}: pixel format {number} is not taken here, only {known}")
    return Pixel(number)


def nbytes(pixel: Pixel, width_stride: int, height_stride: int) -> int:
    """Bytes of a picture with these strides."""
    luma = width_stride * height_stride
    if pixel in SUBSAMPLED:
        rows, columns = SUBSAMPLED[pixel]
        return luma + 2 * luma // (rows * columns)
    return luma


def check_strides(picture: Picture, pixel: Pixel, what: str) -> None:
    """INVALID_PARAM unless strides, sides and size are what the vision unit (VPC) documents: width strides in steps of
    16 (of packed pixels: of 16 pixels), height strides in steps of 2, strides 32 to 16384 bytes, at least 6 rows."""
    step, pixel_bytes = 16 * _PACKED.get(pixel, 1), _PACKED.get(pixel, 1)
    ws, hs = picture.width_stride, picture.height_stride
    problem = None
    if not (0 < picture.width <= MAX_SIDE and MIN_HEIGHT <= picture.height <= MAX_SIDE):
        problem = f"a size of {picture.width} x {picture.height} (at least {MIN_HEIGHT} rows, at most {MAX_SIDE})"
    elif ws % step or not MIN_STRIDE <= ws <= MAX_STRIDE:
        problem = f"a width stride of {ws}, no multiple of {step} from {MIN_STRIDE} to {MAX_STRIDE}"
    elif hs % 2 or hs > MAX_STRIDE:
        problem = f"a height stride of {hs}, no multiple of 2 up to {MAX_STRIDE}"
    elif ws < picture.width // 2 * 2 * pixel_bytes or hs < picture.height // 2 * 2:
        problem = f"strides of {ws} x {hs} for a picture of {picture.width} x {picture.height}"
    elif picture.size < nbytes(pixel, ws, hs):
        problem = f"a size of {picture.size} bytes, strides {ws} x {hs} take {nbytes(pixel, ws, hs)}"
    if problem:
        raise DeviceError(Code.INVALID_PARAM, f"{what}: {problem}")
    check_address(picture.data, what)


def check_address(address: int, what: str) -> None:
    """INVALID_PARAM for no address, UNALIGNED for one that is no multiple of 16."""
    if not address:
        raise DeviceError(Code.INVALID_PARAM, f"{what}: the address is null")
    if address % ADDRESS_STEP:
        raise DeviceError(Code.MEMORY_ADDRESS_UNALIGNED, f"{what}: {address:#x} is no multiple of {ADDRESS_STEP}")


def planes(data: np.ndarray, picture: Picture, pixel: Pixel) -> Planes:
    """Views of a semi-planar or grey picture over its bytes; an odd side loses its last row or column."""
    ws, hs = picture.width_stride, picture.height_stride
    width, height = picture.width // 2 * 2, picture.height // 2 * 2
    luma = data[: ws * hs].reshape(hs, ws)[:height, :width]
    if pixel not in SUBSAMPLED:
        return Planes(luma, None, None)
    rows, columns = SUBSAMPLED[pixel]
    stride = 2 * ws // columns
    chroma = data[ws * hs : nbytes(pixel, ws, hs)].reshape(hs // rows, stride // 2, 2)
    chroma = chroma[: height // rows, : width // columns]
    first, second = chroma[..., 0], chroma[..., 1]
    return Planes(luma, second, first) if pixel in _V_FIRST else Planes(luma, first, second)
