"""TensorProto to numpy: inline data without a copy where the encoding allows, external data memory-mapped."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from tensor_types.dtypes import DType, from_onnx
from tensor_types.errors import InvalidModel

_SUB_BYTE = (TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1)


def dtype_of(number: int, tensor: str) -> DType:
    """The dtype of an ONNX number; InvalidModel names the tensor that has an unknown one."""
    try:
        return from_onnx(number)
    except KeyError:
        raise InvalidModel(
            f"unknown element type {number}", code="E16001", where={"tensor": tensor}, remedy="use a newer openatc"
        ) from None


def array_of(tensor: onnx.TensorProto, folder: Path) -> np.ndarray:
    """The tensor's data; read-only views of the file for external data."""
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, folder)
    type_ = dtype_of(tensor.data_type, tensor.name)
    try:
        if tensor.raw_data and tensor.data_type not in (*_SUB_BYTE, TensorProto.STRING):
            return np.frombuffer(tensor.raw_data, type_.numpy).reshape(tuple(tensor.dims))
        array = numpy_helper.to_array(tensor)
        return array if array.dtype == type_.numpy else array.astype(type_.numpy)
    except (ValueError, TypeError) as error:
        raise InvalidModel(
            f"its data do not fit shape {list(tensor.dims)}: {error}", code="E16001", where={"tensor": tensor.name},
            remedy="export the model again",
        ) from error  # fmt: skip


def _external(tensor: onnx.TensorProto, folder: Path) -> np.ndarray:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    where = {"tensor": tensor.name}
    location = entries.get("location", "")
    path = (folder / location).resolve()
    if not location or not path.is_relative_to(folder.resolve()):
        raise InvalidModel(
            f"external data {location!r} lie outside the model's folder", code="E16001", where=where,
            remedy="put the data file beside the model",
        )  # fmt: skip
    if not path.is_file():
        raise InvalidModel(
            f"external data file {location!r} is missing", code="E16001", where=where,
            remedy="copy the file beside the model",
        )  # fmt: skip
    type_ = dtype_of(tensor.data_type, tensor.name)
    count = int(np.prod(tensor.dims, dtype=np.int64))
    packed = tensor.data_type in _SUB_BYTE
    length = (count + 1) // 2 if packed else count * type_.bytes
    try:
        offset = int(entries.get("offset", "0"))
        stated = int(entries.get("length", length))
    except ValueError:
        offset, stated = -1, -1
    if offset < 0 or stated != length or offset + length > path.stat().st_size:
        raise InvalidModel(
            f"external data of {length} bytes at {offset} do not fit {location!r}", code="E16001", where=where,
            remedy="the file is truncated or belongs to another model; export again",
        )  # fmt: skip
    if not count:
        return np.zeros(tuple(tensor.dims), type_.numpy)
    raw = np.memmap(path, np.uint8, "r", offset, (length,))
    if packed:
        halves = np.stack([raw & 15, raw >> 4], -1).reshape(-1)[:count]
        signed = tensor.data_type == TensorProto.INT4
        numbers = np.where(halves > 7, halves.astype(np.int16) - 16, halves) if signed else halves
        if tensor.data_type == TensorProto.FLOAT4E2M1:
            return halves.view(ml_dtypes.float4_e2m1fn).reshape(tuple(tensor.dims))
        return numbers.astype(type_.numpy).reshape(tuple(tensor.dims))
    return raw.view(type_.numpy).reshape(tuple(tensor.dims))
