"""Data buffers, tensor descriptions and the datasets that a model reads and writes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tensor_types.dtypes import DTYPES, DType

_BY_ACL = {t.acl: t for t in DTYPES.values() if t.acl >= 0}


def element_type(acl_number: int) -> DType | None:
    """The dtype of an aclDataType; None if there is none."""
    return _BY_ACL.get(acl_number)


@dataclass(eq=False)
class WrittenImages:
    """Parameters of so many images, as they were written at one time."""

    count: int


@dataclass(eq=False)
class DataBuffer:
    """A pointer and a size: it does not own the memory. `gear`: the sizes that were written there as a choice;
    `images`: what was written there of images."""

    address: int
    size: int
    gear: tuple[int, ...] | None = None
    images: WrittenImages | None = None


@dataclass(eq=False)
class TensorDesc:
    """What a caller says of a tensor: aclDataType, dims (-1: dynamic), aclFormat, name, its bytes if they are known."""

    dtype: int
    dims: list[int]
    format: int
    name: str = ""
    constant: bytes | None = None

    @property
    def element_count(self) -> int:
        """0 while a dim is dynamic."""
        return 0 if any(d < 0 for d in self.dims) else math.prod(self.dims)

    @property
    def nbytes(self) -> int:
        element = element_type(self.dtype)
        return 0 if element is None or element.kind == "handle" else self.element_count * element.bytes


@dataclass(eq=False)
class Dataset:
    """Buffers in the order of a model's inputs or outputs, with the tensor descriptions set for some of them."""

    buffers: list[DataBuffer] = field(default_factory=list)
    descs: dict[int, TensorDesc] = field(default_factory=dict)
