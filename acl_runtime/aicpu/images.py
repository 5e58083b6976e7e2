"""ImageDecoder, where Pillow is installed."""

from __future__ import annotations

import io

import numpy as np

from acl_runtime.aicpu.registry import Array, Attrs, Inputs, implementation
from tensor_types.errors import EnvironmentProblem, InvalidModel


@implementation("ImageDecoder")
def _image_decoder(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise EnvironmentProblem("ImageDecoder needs Pillow", remedy="install the package pillow") from None
    wanted = attrs.get("pixel_format", "RGB")
    try:
        image = Image.open(io.BytesIO(np.asarray(inputs[0], np.uint8).tobytes()))
        pixels = np.asarray(image.convert("L" if wanted == "Grayscale" else "RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise InvalidModel(f"the image cannot be decoded: {error}", remedy="check the model's inputs") from error
    if wanted == "Grayscale":
        return pixels[..., None]
    return pixels[..., ::-1] if wanted == "BGR" else pixels
