"""What a session says of the images of a model with a dynamic image stage (AIPP): equal for all pictures of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from acl._process import memory
from acl_runtime.device import DataBuffer, DeviceModel
from acl_runtime.device.dataset import WrittenImages
from acl_runtime.device.preparation import Preparation
from aclruntime.failures import runtime_errors
from aclruntime.tensors import Tensor
from tensor_types.images import CHANNELS, NUMBERS, image_bytes

_FLOATS = ("dtc_pixel_min", "pixel_var_reci")


class ImageSettings:
    """The part of `InferenceSession` with `aipp_set_...`: values are kept, `set_dym_aipp_info_set` checks and uses
    them for every run from then on."""

    _model: DeviceModel
    _device: int

    def __init__(self) -> None:
        self._pictures = 1
        self._settings: dict[str, tuple[float, ...]] = {}
        self._parameters: list[Tensor] = []
        self._rooms: dict[int, Tensor] = {}
        self._image_bytes = 0

    def get_dym_aipp_input_exist(self) -> int:
        """How many inputs have a dynamic image stage."""
        return len(self._model.description.stages)

    check_dym_aipp_input_exist = get_dym_aipp_input_exist

    def aipp_set_max_batch_size(self, batch: int) -> None:
        """Pictures of a batch."""
        self._pictures = int(batch)

    def aipp_set_input_format(self, name: str) -> None:
        if name not in CHANNELS:
            raise RuntimeError(f"there is no image format {name!r}: use one of {', '.join(CHANNELS)}")
        self._settings["input_format"] = (NUMBERS[name],)

    def aipp_set_src_image_size(self, size: Sequence[int]) -> None:
        """[width, height]."""
        self._set("src_image_size", size)

    def aipp_set_rbuv_swap_switch(self, switch: int) -> None:
        self._set("rbuv_swap_switch", [switch])

    def aipp_set_ax_swap_switch(self, switch: int) -> None:
        self._set("ax_swap_switch", [switch])

    def aipp_set_csc_params(self, numbers: Sequence[int]) -> None:
        """[switch, nine factors by rows, three output biases, three input biases]."""
        self._set("csc_params", numbers)

    def aipp_set_crop_params(self, numbers: Sequence[int]) -> None:
        """[switch, left, top, width, height]."""
        self._set("crop_params", numbers)

    def aipp_set_padding_params(self, numbers: Sequence[int]) -> None:
        """[switch, top, bottom, left, right]."""
        self._set("padding_params", numbers)

    def aipp_set_dtc_pixel_mean(self, numbers: Sequence[int]) -> None:
        self._set("dtc_pixel_mean", numbers)

    def aipp_set_dtc_pixel_min(self, numbers: Sequence[float]) -> None:
        self._set("dtc_pixel_min", numbers)

    def aipp_set_pixel_var_reci(self, numbers: Sequence[float]) -> None:
        self._set("pixel_var_reci", numbers)

    @runtime_errors
    def set_dym_aipp_info_set(self) -> None:
        """Uses what was set. RuntimeError if it does not fit the model."""
        if not self._model.description.stages:
            raise RuntimeError("the model has no dynamic AIPP: convert it with aipp_mode: dynamic")
        preparation = Preparation(self._pictures)
        for name, numbers in self._settings.items():
            if name in Preparation.OF_PICTURE:
                for picture in range(self._pictures):
                    preparation.set(name, (*numbers, picture))
            else:
                preparation.set(name, numbers)
        made = [Tensor(preparation.rows(stage)) for stage in self._model.description.stages]
        for tensor in made:
            tensor.to_device(self._device)
        self._parameters = made
        form = next(name for name, number in NUMBERS.items() if (number,) == self._settings["input_format"])
        width, height = (int(v) for v in self._settings["src_image_size"])
        self._image_bytes = self._pictures * image_bytes(form, height, width)

    def _set(self, name: str, numbers: Sequence[float]) -> None:
        wanted = Preparation.COUNTS[name]
        if len(numbers) != wanted:
            raise RuntimeError(f"{name} takes {wanted} numbers, got {list(numbers)}")
        self._settings[name] = tuple(float(n) if name in _FLOATS else int(n) for n in numbers)

    def _parameter_buffers(self) -> list[DataBuffer]:
        """The inputs behind those that the caller feeds."""
        if len(self._parameters) < len(self._model.description.stages):
            raise RuntimeError("the model has dynamic AIPP: say what the images are with set_dym_aipp_info_set() first")
        return [DataBuffer(t.address, t.size, images=WrittenImages(self._pictures)) for t in self._parameters]

    def _image_buffer(self, index: int, given: DataBuffer) -> DataBuffer:
        """An input with room for the largest images, which begins with those that are given."""
        stage = next((s for s in self._model.description.stages if s.image == index), None)
        if stage is None or given.size == stage.max_bytes:
            return given
        if given.size != self._image_bytes:
            raise RuntimeError(f"the images take {self._image_bytes} bytes, got {given.size}")
        if index not in self._rooms:
            self._rooms[index] = Tensor(np.zeros(stage.max_bytes, np.uint8))
            self._rooms[index].to_device(self._device)
        room = self._rooms[index]
        memory().copy(room.address, given.address, given.size)
        return DataBuffer(room.address, room.size)

