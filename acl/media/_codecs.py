"""JPEG and PNG."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

from acl._call import integer, status, valued, word
from acl._process import handles, memory, soc_name
from acl.media._channels import bytes_of, check_device, submit
from acl.util import owner_of
from acl_runtime.device import Code, DeviceError, Use
from acl_runtime.device.media import JpegConfig, Picture, images

__all__ = [
    "dvpp_jpeg_decode_async",
    "dvpp_jpeg_encode_async",
    "dvpp_jpeg_get_image_info",
    "dvpp_jpeg_get_image_info_v2",
    "dvpp_jpeg_predict_dec_size",
    "dvpp_jpeg_predict_enc_size",
    "dvpp_png_decode_async",
    "dvpp_png_get_image_info",
    "dvpp_png_get_image_info_v2",
    "dvpp_png_predict_dec_size",
]


@valued(word, word, failure=lambda: (0, 0, 0))
def dvpp_jpeg_get_image_info(address: int, size: int) -> tuple[int, int, int]:
    """Width, height and components of a JPEG in host memory."""
    info = images.read_header(_bytes(address, size), "JPEG")
    return info.width, info.height, info.components


@valued(word, word, failure=lambda: (0, 0, 0, 0))
def dvpp_jpeg_get_image_info_v2(address: int, size: int) -> tuple[int, int, int, int]:
    """Width, height, components and pixel format of a JPEG in host memory."""
    info = images.read_header(_bytes(address, size), "JPEG")
    return info.width, info.height, info.components, int(info.pixel)


@valued(word, word, integer)
def dvpp_jpeg_predict_dec_size(address: int, size: int, format_: int) -> int:
    """Bytes of the decoded picture of a JPEG in host memory."""
    return images.jpeg_decoded_size(_bytes(address, size), format_, images.jpeg_stride_step(soc_name()))


@status(word, word, word, word, word)
def dvpp_jpeg_decode_async(channel: int, address: int, size: int, target: int, stream: int) -> None:
    """Decodes a JPEG in device memory; the description of the output gets the picture's size."""
    picture = handles.get(target, Picture)
    check_device(address, size, "JPEG data")
    uses = [Use(address, size, False, "JPEG data"), *_output_use(picture)]
    step = images.jpeg_stride_step(soc_name())

    def work() -> None:
        data = bytes_of(address, size).tobytes()
        images.prepare_jpeg_output(images.read_header(data, "JPEG"), picture, step)
        images.decode_jpeg(data, picture, _pixels(picture, uses))

    submit(channel, stream, uses, [picture], work)


@valued(word, word)
def dvpp_jpeg_predict_enc_size(source: int, config: int) -> int:
    """Bytes that the encoded picture has at most."""
    picture = handles.get(source, Picture)
    images.check_encoder_input(picture, handles.get(config, JpegConfig))
    return images.jpeg_encoded_size(picture)


@status(word, word, word, word, word, word)
def dvpp_jpeg_encode_async(channel: int, source: int, target: int, size: int, config: int, stream: int) -> None:
    """Encodes a picture into device memory. `size` is the address of a u32: the room there, then the bytes used."""
    picture, settings = copy(handles.get(source, Picture)), copy(handles.get(config, JpegConfig))
    images.check_encoder_input(picture, settings)
    check_device(picture.data, picture.size, "input picture")
    if not size:
        raise DeviceError(Code.INVALID_PARAM, "the address of the size is null")
    size_object = owner_of(size, 4)
    room = int(memory().bytes(size, 4).view(np.uint32)[0])
    check_device(target, room, "encoded picture")

    def work(kept: object = size_object) -> None:
        data = images.encode_jpeg(picture, bytes_of(picture.data, picture.size), settings)
        if len(data) > room:
            raise DeviceError(Code.INVALID_PARAM, f"{len(data)} bytes of JPEG, there is room for {room}")
        bytes_of(target, len(data))[:] = np.frombuffer(data, np.uint8)
        used = np.array([len(data)], np.uint32)
        memory().move(size, used.ctypes.data, 4)

    uses = [
        Use(picture.data, picture.size, False, "input picture"),
        Use(target, room, True, "encoded picture"),
        Use(size, 4, True, "size of the encoded picture"),
    ]
    submit(channel, stream, uses, [], work)


@valued(word, word, failure=lambda: (0, 0, 0))
def dvpp_png_get_image_info(address: int, size: int) -> tuple[int, int, int]:
    """Width, height and components of a PNG in host memory."""
    info = images.read_header(_bytes(address, size), "PNG")
    return info.width, info.height, info.components


@valued(word, word, failure=lambda: (0, 0, 0, 0))
def dvpp_png_get_image_info_v2(address: int, size: int) -> tuple[int, int, int, int]:
    """Width, height, components and pixel format of a PNG in host memory."""
    info = images.read_header(_bytes(address, size), "PNG")
    return info.width, info.height, info.components, int(info.pixel)


@valued(word, word, integer)
def dvpp_png_predict_dec_size(address: int, size: int, format_: int) -> int:
    """Bytes of the decoded picture of a PNG in host memory."""
    return images.png_decoded_size(_bytes(address, size), format_)


@status(word, word, word, word, word)
def dvpp_png_decode_async(channel: int, address: int, size: int, target: int, stream: int) -> None:
    """Decodes a PNG in device memory to RGB; the description of the output gets the picture's size."""
    picture = handles.get(target, Picture)
    check_device(address, size, "PNG data")
    uses = [Use(address, size, False, "PNG data"), *_output_use(picture)]

    def work() -> None:
        data = bytes_of(address, size).tobytes()
        images.prepare_png_output(images.read_header(data, "PNG"), picture)
        images.decode_png(data, picture, _pixels(picture, uses))

    submit(channel, stream, uses, [picture], work)


def _bytes(address: int, size: int) -> bytes:
    if not address or not size:
        raise DeviceError(Code.INVALID_PARAM, "no address or no size")
    return memory().bytes(address, size).tobytes()


def _output_use(picture: Picture) -> list[Use]:
    """The memory of a decoded picture, whose description is checked at the task's turn, when its size is known."""
    return [Use(picture.data, picture.size, True, "output picture")] if picture.data in memory().device else []


def _pixels(picture: Picture, held: Sequence[Use]) -> np.ndarray:
    """The bytes of a decoded picture; INVALID_PARAM unless they are those that were held when the task came."""
    if not any((u.address, u.nbytes) == (picture.data, picture.size) for u in held):
        check_device(picture.data, picture.size, "picture")
    return bytes_of(picture.data, picture.size)
