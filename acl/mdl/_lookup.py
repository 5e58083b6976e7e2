"""Items of descriptions and datasets, by handle, number or name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from acl._process import handles
from acl_runtime.device import Code, DeviceError, ModelDescription, TensorDescription

_T = TypeVar("_T")
_MAX_NAME = 127


class Description:
    """A model description that `get_desc` fills."""

    def __init__(self) -> None:
        self.model: ModelDescription | None = None


def model_of(desc: int) -> ModelDescription:
    model = handles.get(desc, Description).model
    if model is None:
        raise DeviceError(Code.INVALID_PARAM, "get_desc has not filled the description")
    return model


def item(items: Sequence[_T], index: int) -> _T:
    if index >= len(items):
        raise DeviceError(Code.INVALID_PARAM, f"there is no number {index} among {len(items)}")
    return items[index]


def index_of(tensors: Sequence[TensorDescription], name: str) -> int:
    for number, tensor in enumerate(tensors):
        if tensor.name == name:
            return number
    raise DeviceError(Code.INVALID_PARAM, f"no tensor is called {name}; there are {[t.name for t in tensors]}")


def dims_dict(name: str, dims: Sequence[int], short_name: str = "") -> dict[str, Any]:
    """aclmdlIODims; a name that is too long is replaced."""
    return {"name": name if len(name) <= _MAX_NAME else short_name, "dimCount": len(dims), "dims": list(dims)}
