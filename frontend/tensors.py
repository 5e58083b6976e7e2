"""TensorProto to numpy. Raw bytes are viewed, external data is memory-mapped; neither is copied."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from tensor_types.dtypes import DType, from_onnx
from tensor_types.errors import InvalidModel

EXTERNAL = onnx.TensorProto.EXTERNAL


def element_type(number: int, tensor: str) -> DType:
    """The dtype of an ONNX number; InvalidModel when there is none."""
    try:
        return from_onnx(number)
    except KeyError:
        raise InvalidModel(f"unknown element type {number}", where={"tensor": tensor}) from None


def to_array(proto: onnx.TensorProto, folder: Path) -> np.ndarray:
    """The tensor's content; sub-byte types one element per byte. `folder` is where external data lies."""
    dtype = element_type(proto.data_type, proto.name)
    shape = tuple(proto.dims)
    if any(d < 0 for d in shape):
        raise InvalidModel(f"a constant has the shape {list(shape)}", where={"tensor": proto.name})
    if proto.data_location == EXTERNAL:
        return _external(proto, dtype, shape, folder)
    try:
        if proto.HasField("raw_data") and dtype.bits >= 8 and dtype.kind != "handle":
            return np.frombuffer(proto.raw_data, dtype.numpy).reshape(shape)
        array = numpy_helper.to_array(proto)
    except (ValueError, TypeError) as error:
        raise InvalidModel(
            f"the bytes do not fit {dtype}{list(shape)}", where={"tensor": proto.name}, remedy="export the model again"
        ) from error
    if dtype.kind == "handle":
        decoded = [v.decode() if isinstance(v, bytes) else str(v) for v in array.reshape(-1)]
        return np.array(decoded, object).reshape(shape)
    return array if array.dtype == dtype.numpy else array.astype(dtype.numpy)


def _external(proto: onnx.TensorProto, dtype: DType, shape: tuple[int, ...], folder: Path) -> np.ndarray:
    entries = {item.key: item.value for item in proto.external_data}
    where = {"tensor": proto.name}
    location = entries.get("location", "")
    file = (folder / location).resolve()
    if not location or Path(location).is_absolute() or not file.is_relative_to(folder.resolve()):
        raise InvalidModel(
            f"external data {location!r} lies outside the model's folder", code="E13026", where=where,
            remedy="put the data file beside the model and save a relative location",
        )  # fmt: skip
    count = prod(shape)
    needed = (count * dtype.bits + 7) // 8
    try:
        start, length = int(entries.get("offset") or 0), int(entries.get("length") or needed)
        size = file.stat().st_size
    except ValueError as error:
        raise InvalidModel("offset or length of external data is no number", code="E13005", where=where) from error
    except OSError as error:
        raise InvalidModel(
            f"external data {location!r} cannot be opened: {error.strerror}", code="E13001", where=where,
            remedy="copy the data file together with the model",
        ) from error  # fmt: skip
    if start < 0 or length != needed or start + needed > size:
        raise InvalidModel(
            f"{needed} bytes needed, {length} declared, {max(size - start, 0)} present in {location!r}",
            code="E13015", where=where, remedy="the data file is truncated or belongs to another model: copy it again",
        )  # fmt: skip
    if not count:
        return np.zeros(shape, dtype.numpy)
    if dtype.bits < 8:
        packed = np.memmap(file, np.uint8, "r", start, (needed,))
        return numpy_helper.to_array(
            onnx.TensorProto(data_type=proto.data_type, dims=proto.dims, raw_data=packed.tobytes())
        )
    return np.memmap(file, dtype.numpy, "r", start, shape)


def sparse_to_array(proto: onnx.SparseTensorProto, folder: Path) -> np.ndarray:
    """A sparse tensor, made dense."""
    values, indices = to_array(proto.values, folder), to_array(proto.indices, folder)
    dense = np.zeros(tuple(proto.dims), values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense
