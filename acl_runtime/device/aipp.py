"""Inputs that take images (AIPP), as the header of a package tells them (docs/architecture.md, section 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acl_runtime.om import PackageError
from tensor_types.images import CHANNELS, NUMBERS

STATIC, DYNAMIC = "static", "dynamic"


@dataclass(frozen=True)
class ImageInput:
    """An input whose preparation the package holds. source: height and width, 0 where a gear decides."""

    format: str
    source: tuple[int, int]

    @property
    def acl_format(self) -> int:
        """aclAippInputFormat."""
        return NUMBERS[self.format]

    def picture_dims(self, dims: Sequence[int]) -> tuple[int, ...]:
        """[n, h, w, c] of the picture, for the dims of the u8 input; -1 where a gear decides."""
        height, width = (size or -1 for size in self.source)
        return (dims[0], height, width, CHANNELS[self.format])

    def byte_dims(self, dims: Sequence[int]) -> tuple[int, ...]:
        """Four dims whose product is the bytes of the input."""
        return (*dims, 1) if len(dims) == 3 else tuple(dims)


@dataclass(frozen=True)
class ImageStage:
    """An input whose preparation a program says at run time: `image` and `parameters` are numbers of inputs, `result`
    the height, width and channels of the model, `max_bytes` those of all images of a batch."""

    image: int
    parameters: int
    result: tuple[int, int, int]
    max_bytes: int


def images_of(header: Mapping[str, Any], names: Sequence[str]) -> tuple[dict[str, ImageInput], tuple[ImageStage, ...]]:
    """The inputs of a package that take images: by name with the preparation in the package, and with one at run time.

    PackageError if the header makes no sense.
    """
    found, stages = {}, []
    try:
        for row in header.get("aipp") or ():
            if row["mode"] == DYNAMIC:
                height, width, channels = (int(n) for n in row["result"])
                image, parameters = names.index(row["input"]), names.index(row["parameters"])
                stages.append(ImageStage(image, parameters, (height, width, channels), int(row["max_bytes"])))
                continue
            height, width = (int(n) for n in row["source"])
            if row["input"] not in names or row["format"] not in CHANNELS or row["mode"] != STATIC:
                raise ValueError(f"{row['input']}, {row['format']}, {row['mode']}")
            found[row["input"]] = ImageInput(row["format"], (height, width))
        if [s.parameters for s in stages] != [*range(len(names) - len(stages), len(names))]:
            raise ValueError("parameters of images are not the last inputs")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise PackageError(
            f"the AIPP of the package makes no sense: {error!r}", remedy="convert the model again"
        ) from None
    return found, tuple(stages)
