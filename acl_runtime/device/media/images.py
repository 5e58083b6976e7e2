"""The image codecs: JPEG to YUV 4:2:0 and back, PNG to RGB.

Only what the hardware decodes is decoded: baseline JPEG of one or three components, PNG of 8 bits.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.media.descriptions import JpegConfig, Picture
from acl_runtime.device.media.layout import Pixel, align, check_address, check_strides, nbytes, pixel_of, planes

DECODED = frozenset({Pixel.NV12, Pixel.NV21})
DECODED_PNG = frozenset({Pixel.RGB_888})
_MAX_PIXELS = 8192 * 8192
_GREY = 128
_EXTRA = 4096
"""Bytes of headers that an encoded picture may have beside its pixels."""
_SUBSAMPLING = {(1, 1): Pixel.YUV444SP, (2, 1): Pixel.YUV422SP, (2, 2): Pixel.NV12}
"""Pixel format of a JPEG by the sampling factors (horizontal, vertical) of its first component."""


@dataclass(frozen=True)
class ImageInfo:
    """What the header of a compressed picture says; `pixel` is the format nearest to how it is stored."""

    width: int
    height: int
    components: int
    pixel: Pixel
    is_progressive: bool


def read_header(data: bytes, kind: str) -> ImageInfo:
    """UNSUPPORTED_JPEG or INVALID_PARAM if `data` is no picture of `kind` ('JPEG' or 'PNG')."""
    with _opened(data, kind) as image:
        components = len(image.getbands())
        pixel = Pixel.YUV_400 if components == 1 else Pixel.RGB_888
        if kind == "JPEG" and components == 3:
            layers = getattr(image, "layer", ())
            factors = (layers[0][1], layers[0][2]) if layers else (2, 2)
            pixel = _SUBSAMPLING.get(factors, Pixel.YUV444SP)
        return ImageInfo(*image.size, components, pixel, bool(image.info.get("progressive")))


def jpeg_stride_step(soc: str) -> int:
    """Step of the width stride of decoded pictures: 128 on Ascend310, 64 on the later chips."""
    return 128 if soc.lower().removeprefix("ascend") == "310" else 64


def jpeg_decoded_size(data: bytes, format_: int, step: int) -> int:
    """Bytes of the decoded picture; `format_` 4:2:0, or that in which the file is stored."""
    info = read_header(data, "JPEG")
    stored = {Pixel.YUV422SP: {Pixel.YUV422SP, Pixel.YVU422SP}, Pixel.YUV444SP: {Pixel.YUV444SP, Pixel.YVU444SP}}
    pixel = pixel_of(format_, frozenset(DECODED | stored.get(info.pixel, set())), "output format")
    return nbytes(pixel, align(info.width, step), align(info.height, 16))


def prepare_jpeg_output(info: ImageInfo, target: Picture, step: int) -> None:
    """Checks the description of the picture that a JPEG is decoded to; strides of 0 become those of the unit."""
    if info.is_progressive or info.components not in (1, 3):
        raise DeviceError(
            Code.UNSUPPORTED_JPEG, "the unit decodes baseline JPEG of one or three components: encode the file so"
        )
    pixel = pixel_of(target.format, DECODED, "output picture")
    target.width, target.height = info.width // 2 * 2, info.height // 2 * 2
    target.width_stride = target.width_stride or align(info.width, step)
    target.height_stride = target.height_stride or align(info.height, 16)
    if target.width_stride % step or target.height_stride % 16:
        raise DeviceError(
            Code.INVALID_PARAM,
            f"output picture: strides of {target.width_stride} x {target.height_stride}, multiples of {step} and 16 "
            "are wanted",
        )
    check_strides(target, pixel, "output picture")


def decode_jpeg(data: bytes, target: Picture, target_data: np.ndarray) -> None:
    """Decodes into a picture that `prepare_jpeg_output` has checked; a grey file gets chroma 128."""
    with _opened(data, "JPEG") as image:
        if image.mode == "RGB":
            image.draft("YCbCr", image.size)  # without the way over RGB and back
        try:
            pixels = np.asarray(image if image.mode in ("L", "YCbCr") else image.convert("YCbCr"))
        except (OSError, SyntaxError, ValueError) as error:
            raise DeviceError(Code.UNSUPPORTED_JPEG, f"the JPEG data cannot be decoded: {error}") from error
    made = planes(target_data, target, Pixel(target.format))
    assert made.u is not None and made.v is not None
    pixels = pixels[: target.height, : target.width]
    if pixels.ndim == 2:
        made.y[:], made.u[:], made.v[:] = pixels, _GREY, _GREY
        return
    made.y[:] = pixels[..., 0]
    quads = pixels[..., 1:].reshape(target.height // 2, 2, target.width // 2, 2, 2).astype(np.uint16)
    chroma = (quads.sum((1, 3)) + 2) // 4
    made.u[:], made.v[:] = chroma[..., 0], chroma[..., 1]


def jpeg_encoded_size(source: Picture) -> int:
    """Bytes that an encoded picture has at most: those of its pixels and headers."""
    return 3 * align(source.width, 16) * align(source.height, 16) + _EXTRA


def encode_jpeg(source: Picture, source_data: np.ndarray, config: JpegConfig) -> bytes:
    """The JPEG file of a 4:2:0 picture."""
    given = planes(source_data, source, Pixel(source.format))
    bands = [given.y, *(c.repeat(2, 0).repeat(2, 1) for c in (given.u, given.v) if c is not None)]
    image = Image.merge("YCbCr", [Image.fromarray(np.ascontiguousarray(b)) for b in bands])
    file = io.BytesIO()
    image.save(file, "JPEG", quality=config.quality, subsampling="4:2:0")
    return file.getvalue()


def check_encoder_input(source: Picture, config: JpegConfig) -> None:
    """INVALID_PARAM unless the picture is 4:2:0 in strides of 16 x 2 and the level is 0 to 100."""
    if not 0 <= config.level <= 100:
        raise DeviceError(Code.INVALID_PARAM, f"a level of {config.level}, allowed are 0 to 100")
    check_strides(source, pixel_of(source.format, DECODED, "input picture"), "input picture")


def png_decoded_size(data: bytes, format_: int) -> int:
    """Bytes of the decoded PNG in RGB, width strides in steps of 128 pixels and height strides of 16."""
    info = read_header(data, "PNG")
    pixel_of(format_, DECODED_PNG, "output format")
    return 3 * align(info.width, 128) * align(info.height, 16)


def decode_png(data: bytes, target: Picture, target_data: np.ndarray) -> None:
    """Decodes into an RGB picture; the description gets size and strides."""
    with _opened(data, "PNG") as image:
        try:
            pixels = np.asarray(image.convert("RGB"))
        except (OSError, SyntaxError, ValueError) as error:
            raise DeviceError(Code.INVALID_PARAM, f"the PNG data cannot be decoded: {error}") from error
    rows = target_data[: target.width_stride * target.height_stride].reshape(target.height_stride, target.width_stride)
    rows[: target.height, : 3 * target.width] = pixels.reshape(target.height, -1)


def prepare_png_output(info: ImageInfo, target: Picture) -> None:
    """Checks the description of the picture that a PNG is decoded to; strides of 0 become those of the unit."""
    pixel_of(target.format, DECODED_PNG, "output picture")
    target.width, target.height = info.width, info.height
    target.width_stride = target.width_stride or 3 * align(info.width, 128)
    target.height_stride = target.height_stride or align(info.height, 16)
    needed = target.width_stride * target.height_stride
    if target.width_stride < 3 * info.width or target.height_stride < info.height or target.size < needed:
        raise DeviceError(
            Code.INVALID_PARAM,
            f"output picture: strides of {target.width_stride} x {target.height_stride} and {target.size} bytes do not "
            f"hold {info.width} x {info.height} pixels of RGB",
        )
    check_address(target.data, "output picture")


def _opened(data: bytes, kind: str) -> Image.Image:
    try:
        image = Image.open(io.BytesIO(data), formats=[kind])
    except Exception as error:  # Pillow's plugins raise whatever a damaged header leads them to
        code = Code.UNSUPPORTED_JPEG if kind == "JPEG" else Code.INVALID_PARAM
        raise DeviceError(code, f"the data is no {kind} file: {error}") from error
    if image.width * image.height > _MAX_PIXELS:
        raise DeviceError(Code.INVALID_PARAM, f"a picture of {image.width} x {image.height}, at most 8192 x 8192")
    return image
