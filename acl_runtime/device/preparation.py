"""What a program says of the images that it gives to a dynamic stage (AIPP), and the parameters that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

import tensor_types.images as p
from acl_runtime.device.aipp import ImageStage
from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.dataset import Dataset, WrittenImages
from acl_runtime.device.memory import Memory

_MOST_PICTURES = 127
_FORMATS = {number: name for name, number in p.NUMBERS.items()}
_OFF = (0,) * 5


class Preparation:
    """Parameters of a dynamic stage for a batch of 1 to 127 pictures, checked one by one as they are set."""

    COUNTS: ClassVar[dict[str, int]] = {
        "input_format": 1, "src_image_size": 2, "rbuv_swap_switch": 1, "ax_swap_switch": 1, "csc_params": 16,
        "scf_params": 5, "crop_params": 5, "padding_params": 5, "dtc_pixel_mean": 4, "dtc_pixel_min": 4,
        "pixel_var_reci": 4,
    }  # fmt: skip
    """How many numbers each parameter has, without that of the picture."""
    OF_PICTURE = ("scf_params", "crop_params", "padding_params", "dtc_pixel_mean", "dtc_pixel_min", "pixel_var_reci")
    """Parameters that each picture has for itself."""
    _RANGES: ClassVar[dict[str, tuple[float, float]]] = {
        "input_format": (1, 4), "src_image_size": (0, 4096), "rbuv_swap_switch": (0, 1), "ax_swap_switch": (0, 1),
        "csc_params": (-32768, 32767), "scf_params": (0, 4096), "crop_params": (0, 4096), "padding_params": (0, 32),
        "dtc_pixel_mean": (0, 255), "dtc_pixel_min": (-65504, 65504), "pixel_var_reci": (-65504, 65504),
    }  # fmt: skip

    def __init__(self, batch: int) -> None:
        if not 1 <= batch <= _MOST_PICTURES:
            raise DeviceError(Code.INVALID_PARAM, f"a batch of {batch}, 1 to {_MOST_PICTURES} are allowed")
        self.batch = batch
        self._values: dict[str, tuple[float, ...]] = {}
        self._of_picture: list[dict[str, tuple[float, ...]]] = [{} for _ in range(batch)]

    def set(self, name: str, values: Sequence[float]) -> None:
        """INVALID_PARAM for a value outside of the format's range, or a picture that is not in the batch.

        FEATURE_NOT_SUPPORT for scaling.
        """
        low, high = self._RANGES[name]
        if name in self.OF_PICTURE:
            *values, picture = values
            if not 0 <= picture < self.batch:
                raise DeviceError(Code.INVALID_PARAM, f"picture {picture} of a batch of {self.batch}")
        if not all(low <= v <= high for v in values):
            raise DeviceError(Code.INVALID_PARAM, f"{name} takes numbers from {low} to {high}, got {list(values)}")
        if name == "scf_params" and values[0]:
            raise DeviceError(Code.FEATURE_NOT_SUPPORT, "images are not scaled here: use media.dvpp_vpc_resize_async")
        place = self._of_picture[int(picture)] if name in self.OF_PICTURE else self._values
        place[name] = tuple(values)

    def write(self, stage: ImageStage, inputs: Dataset, memory: Memory) -> None:
        """Writes the parameters into their input of a dataset, whose executions prepare images so from then on.

        INVALID_PARAM if they do not fit the model, DYNAMIC_INPUT_ADDR_INVALID and DYNAMIC_INPUT_LENGTH_INVALID for the
        buffer; nothing is changed then.
        """
        index = stage.parameters
        if index >= len(inputs.buffers):
            raise DeviceError(Code.INVALID_PARAM, f"the dataset has {len(inputs.buffers)} buffers, none of {index}")
        rows, buffer = self.rows(stage), inputs.buffers[index]
        if buffer.size < rows.nbytes:
            raise DeviceError(
                Code.DYNAMIC_INPUT_LENGTH_INVALID,
                f"parameters of {self.batch} pictures take {rows.nbytes} bytes, input {index} has {buffer.size}",
            )
        try:
            memory.copy(buffer.address, rows.ctypes.data, rows.nbytes)
        except DeviceError as error:
            raise DeviceError(Code.DYNAMIC_INPUT_ADDR_INVALID, error.message) from None
        buffer.images = WrittenImages(self.batch)

    def rows(self, stage: ImageStage) -> np.ndarray:
        """[batch, 64] of f32, as `tensor_types.images` has them. INVALID_PARAM if they do not fit the model."""
        if "input_format" not in self._values or "src_image_size" not in self._values:
            raise DeviceError(Code.INVALID_PARAM, "set_aipp_input_format and set_aipp_src_image_size were not called")
        form = _FORMATS[int(self._values["input_format"][0])]
        width, height = (int(v) for v in self._values["src_image_size"])
        if width < 2 or height < 1 or (form == p.YUV and (width % 2 or height % 2)):
            raise DeviceError(Code.INVALID_PARAM, f"images of {form} cannot be {height} x {width}")
        bytes_ = p.image_bytes(form, height, width)
        if bytes_ * self.batch > stage.max_bytes:
            raise DeviceError(
                Code.INVALID_PARAM,
                f"{self.batch} images of {bytes_} bytes are more than the {stage.max_bytes} of max_src_image_size",
            )
        converts, *colours = self._values.get("csc_params", (0,) * 16)
        channels = p.CHANNELS[form]
        if converts and channels < 3:
            raise DeviceError(Code.INVALID_PARAM, f"images of {form} have no colours to convert")
        given = 3 if converts else channels
        if stage.result[2] > given:
            raise DeviceError(Code.INVALID_PARAM, f"the model takes {stage.result[2]} channels, {form} gives {given}")
        swaps = (bool(self._values.get(f"{name}_swap_switch", (0,))[0]) for name in ("rbuv", "ax"))
        planes = p.plane_order(form, *swaps)
        rows = np.zeros((self.batch, p.COUNT), np.float32)
        for number, (row, picture) in enumerate(zip(rows, self._of_picture, strict=True)):
            row[p.FORMAT] = p.NUMBERS[form]
            row[p.TOP : p.PADDING_LEFT + 1] = _placed(picture, form, (height, width), stage.result)
            for plane in range(p.PLANES):
                at = p.PLANE + 5 * plane
                row[at : at + 5] = _plane(form, planes[min(plane, channels - 1)], height, width, number * bytes_)
            row[p.CONVERTS], row[p.MATRIX : p.MATRIX + 9] = converts, colours[:9]
            row[p.INPUT_BIAS : p.INPUT_BIAS + 3] = colours[12:]
            # What rounds to the nearest whole number is added in units of the factors.
            row[p.OUTPUT_BIAS : p.OUTPUT_BIAS + 3] = [128 + 256 * v for v in colours[9:12]]
            for place, name, default in (
                (p.MEAN, "dtc_pixel_mean", 0), (p.LEAST, "dtc_pixel_min", 0), (p.FACTOR, "pixel_var_reci", 1)
            ):  # fmt: skip
                row[place : place + p.PLANES] = picture.get(name, (default,) * p.PLANES)
        return rows


def plain_images(result: tuple[int, int, int], max_bytes: int, batch: int) -> np.ndarray:
    """Parameters [batch, 64] of images as large as the model's tensor [height, width, channels], which change nothing:
    of a format with so many channels whose images take at most `max_bytes`. DeviceError if there is none."""
    height, width, channels = result
    forms = [name for name, count in p.CHANNELS.items() if count == channels]
    form = min(forms, key=lambda name: (p.image_bytes(name, height, width) * batch > max_bytes, name == p.YUV))
    preparation = Preparation(batch)
    preparation.set("input_format", (p.NUMBERS[form],))
    preparation.set("src_image_size", (width, height))
    return preparation.rows(ImageStage(0, 1, result, max_bytes))


def _placed(
    picture: dict[str, tuple[float, ...]], form: str, source: tuple[int, int], result: tuple[int, int, int]
) -> tuple[int, ...]:
    """Top, left, height and width of what is used, and the padding above and on the left."""
    crops, left, top, width, height = (int(v) for v in picture.get("crop_params", _OFF))
    if not crops:
        top, left, height, width = 0, 0, *source
    if form == p.YUV and (top % 2 or left % 2):
        raise DeviceError(Code.INVALID_PARAM, f"a crop of {form} begins at even places, not at {top}, {left}")
    if not (height and width) or top + height > source[0] or left + width > source[1]:
        raise DeviceError(
            Code.INVALID_PARAM, f"the crop of {height} x {width} at {top}, {left} leaves the {source[0]} x {source[1]}"
        )
    pads, above, below, before, behind = (int(v) for v in picture.get("padding_params", _OFF))
    if not pads:
        above, below, before, behind = 0, 0, 0, 0
    made = (above + height + below, before + width + behind)
    if made != result[:2]:
        raise DeviceError(
            Code.INVALID_PARAM,
            f"crop and padding make {made[0]} x {made[1]}, the model takes {result[0]} x {result[1]}",
        )
    return top, left, height, width, above, before


def _plane(form: str, plane: int, height: int, width: int, first: int) -> tuple[int, ...]:
    """High, low, row, column and shift of a plane of the image that begins at byte `first`."""
    if form == p.YUV:
        at, row, column, shift = (height * width + plane - 1, width, 2, 1) if plane else (0, width, 1, 0)
    else:
        at, row, column, shift = plane, width * p.CHANNELS[form], p.CHANNELS[form], 0
    return (first + at) // 4096, (first + at) % 4096, row, column, shift
