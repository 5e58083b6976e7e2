"""Inputs that take images (AIPP), as the header of a package tells them (docs/architecture.md, section 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.om import PackageError

STATIC, DYNAMIC = "static", "dynamic"
_CHANNELS = {"YUV420SP_U8": 3, "XRGB8888_U8": 4, "RGB888_U8": 3, "YUV400_U8": 1}
_NUMBERS = {"YUV420SP_U8": 1, "XRGB8888_U8": 2, "RGB888_U8": 3, "YUV400_U8": 4}


@dataclass(frozen=True)
class ImageInput:
    """mode: static or dynamic. source: height and width, 0 where a gear decides."""

    mode: str
    format: str
    source: tuple[int, int]

    @property
    def acl_format(self) -> int:
        """aclAippInputFormat."""
        return _NUMBERS[self.format]

    def picture_dims(self, dims: Sequence[int]) -> tuple[int, ...]:
        """[n, h, w, c] of the picture, for the dims of the u8 input; -1 where a gear decides."""
        height, width = (size or -1 for size in self.source)
        return (dims[0], height, width, _CHANNELS[self.format])

    def byte_dims(self, dims: Sequence[int]) -> tuple[int, ...]:
        """Four dims whose product is the bytes of the input."""
        return (*dims, 1) if len(dims) == 3 else tuple(dims)


class Preparation:
    """Parameters of a dynamic stage for a batch of 1 to 127 pictures, checked as they are set."""

    def __init__(self, batch: int) -> None:
        if not 1 <= batch <= _MOST_PICTURES:
            raise DeviceError(Code.INVALID_PARAM, f"a batch of {batch}, 1 to {_MOST_PICTURES} are allowed")
        self.batch = batch
        self.values: dict[str, tuple[float, ...]] = {}
        self.of_picture: list[dict[str, tuple[float, ...]]] = [{} for _ in range(batch)]

    def set(self, name: str, values: Sequence[float]) -> None:
        """INVALID_PARAM for a value outside of the format's range, or a picture that is not in the batch."""
        low, high = _RANGES[name]
        if name in _OF_PICTURE:
            *values, picture = values
            if not 0 <= picture < self.batch:
                raise DeviceError(Code.INVALID_PARAM, f"picture {picture} of a batch of {self.batch}")
        if not all(low <= v <= high for v in values):
            raise DeviceError(Code.INVALID_PARAM, f"{name} takes numbers from {low} to {high}, got {list(values)}")
        place = self.of_picture[int(picture)] if name in _OF_PICTURE else self.values
        place[name] = tuple(values)


_MOST_PICTURES = 127
_RANGES: dict[str, tuple[float, float]] = {
    "input_format": (1, 4), "src_image_size": (0, 4096), "rbuv_swap_switch": (0, 1), "ax_swap_switch": (0, 1),
    "csc_params": (-32768, 32767), "scf_params": (0, 4096), "crop_params": (0, 4096), "padding_params": (0, 32),
    "dtc_pixel_mean": (0, 255), "dtc_pixel_min": (-65504, 65504), "pixel_var_reci": (-65504, 65504),
}  # fmt: skip
_OF_PICTURE = ("scf_params", "crop_params", "padding_params", "dtc_pixel_mean", "dtc_pixel_min", "pixel_var_reci")


def images_of(header: Mapping[str, Any], names: Sequence[str]) -> dict[str, ImageInput]:
    """The inputs of a package that take images, by name. PackageError if the header makes no sense."""
    found = {}
    try:
        for row in header.get("aipp") or ():
            height, width = (int(n) for n in row["source"])
            if row["input"] not in names or row["format"] not in _CHANNELS or row["mode"] not in (STATIC, DYNAMIC):
                raise ValueError(f"{row['input']}, {row['format']}, {row['mode']}")
            found[row["input"]] = ImageInput(row["mode"], row["format"], (height, width))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise PackageError(
            f"the AIPP of the package makes no sense: {error!r}", remedy="convert the model again"
        ) from None
    return found
