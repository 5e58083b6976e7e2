"""The vision unit (VPC): crop, resize and paste from one YUV picture into another.

Resampling is OpenCV's bilinear or nearest: pixel centres at half, edges repeated, no low-pass filter when shrinking.
"""

from __future__ import annotations

import numpy as np
from PIL import Image

from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.media.descriptions import Picture, Region, ResizeConfig
from acl_runtime.device.media.layout import SUBSAMPLED, Pixel, Planes, check_strides, pixel_of, planes

INPUTS = frozenset({Pixel.YUV_400, *SUBSAMPLED})
OUTPUTS = frozenset({Pixel.NV12, Pixel.NV21})
_SHRINK, _GROW = 32, 16
_GREY = 128
_PASTE_STEP = 16
_FILTERS = {0: Image.Resampling.BILINEAR, 1: Image.Resampling.BILINEAR, 2: Image.Resampling.NEAREST}


def whole(picture: Picture) -> Region:
    """All of a picture, odd sides rounded down."""
    return Region(0, picture.width // 2 * 2 - 1, 0, picture.height // 2 * 2 - 1)


def check(source: Picture, target: Picture, crop: Region, paste: Region, config: ResizeConfig | None = None) -> None:
    """DeviceError unless the unit can scale `crop` of `source` to `paste` of `target`."""
    check_strides(source, pixel_of(source.format, INPUTS, "input picture"), "input picture")
    check_strides(target, pixel_of(target.format, OUTPUTS, "output picture"), "output picture")
    _check_region(crop, source, "region of the input", 2)
    _check_region(paste, target, "region of the output", _PASTE_STEP)
    for old, new in ((crop.width, paste.width), (crop.height, paste.height)):
        if new * _SHRINK < old or new > old * _GROW:
            raise DeviceError(Code.INVALID_PARAM, f"a scale of {new}/{old}, allowed are 1/{_SHRINK} to {_GROW}")
    if config is not None and config.interpolation not in _FILTERS:
        raise DeviceError(Code.INVALID_PARAM, f"there is no interpolation {config.interpolation}")


def scale(
    source: Picture, source_data: np.ndarray, target: Picture, target_data: np.ndarray, crop: Region, paste: Region,
    config: ResizeConfig | None = None,
) -> None:  # fmt: skip
    """Scales `crop` of the source to `paste` of the target, whose other pixels stay. The arguments were checked."""
    filter_ = _FILTERS[config.interpolation if config else 0]
    given = planes(source_data, source, Pixel(source.format))
    made = planes(target_data, target, Pixel(target.format))
    rows, columns = SUBSAMPLED.get(Pixel(source.format), (2, 2))
    made.y[_window(paste, 1, 1)] = _resample(given.y, crop, 1, 1, paste.width, paste.height, filter_)
    for old, new in zip(_chroma(given), _chroma(made), strict=True):
        assert new is not None
        place = new[_window(paste, 2, 2)]
        if old is None:
            place[:] = _GREY
        else:
            place[:] = _resample(old, crop, rows, columns, place.shape[1], place.shape[0], filter_)


def _chroma(picture: Planes) -> tuple[np.ndarray | None, np.ndarray | None]:
    return picture.u, picture.v


def _window(region: Region, rows: int, columns: int) -> tuple[slice, slice]:
    top, left = region.top // rows, region.left // columns
    return slice(top, top + region.height // rows), slice(left, left + region.width // columns)


def _resample(
    plane: np.ndarray, crop: Region, rows: int, columns: int, width: int, height: int, filter_: Image.Resampling
) -> np.ndarray:
    cut = np.ascontiguousarray(plane[_window(crop, rows, columns)])
    if cut.shape == (height, width):
        return cut
    box = (0, 0, cut.shape[1], cut.shape[0])
    # On bytes Pillow cuts fractions off; OpenCV rounds.
    image = Image.fromarray(cut.astype(np.float32))
    return np.rint(np.asarray(image.transform((width, height), Image.Transform.EXTENT, box, filter_))).astype(np.uint8)


def _check_region(region: Region, picture: Picture, what: str, step: int) -> None:
    inside = 0 <= region.left < region.right < picture.width and 0 <= region.top < region.bottom < picture.height
    if not inside:
        raise DeviceError(
            Code.INVALID_PARAM,
            f"{what}: {region.left}..{region.right} x {region.top}..{region.bottom} is not inside of "
            f"{picture.width} x {picture.height}",
        )
    if region.left % step or region.top % 2 or not (region.right % 2 and region.bottom % 2):
        raise DeviceError(
            Code.INVALID_PARAM,
            f"{what}: left must be a multiple of {step}, top even, right and bottom odd; got {region.left}, "
            f"{region.top}, {region.right}, {region.bottom}",
        )
