"""TensorProto to numpy. External data, and big inline data, are read-only views of the file."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from tensor_types.dtypes import DType, from_onnx
from tensor_types.errors import InvalidModel

_DAMAGED = "the model is damaged: export it again"


def element_type(number: int, tensor: str) -> DType:
    """The dtype of an ONNX number; InvalidModel when there is none."""
    try:
        return from_onnx(number)
    except KeyError:
        raise InvalidModel(
            f"unknown element type {number}", code="E13014", where={"tensor": tensor}, remedy="export with another type"
        ) from None


def to_array(proto: TensorProto, source: Path) -> np.ndarray:
    """The tensor's content; sub-byte types one element per byte. `source` is the model file.

    Views of a file may begin at any byte: numpy reads unaligned arrays right.
    """
    dtype, shape = element_type(proto.data_type, proto.name), tuple(proto.dims)
    where = {"tensor": proto.name}
    if any(d < 0 for d in shape):
        raise InvalidModel(f"a constant has the shape {list(shape)}", code="E13014", where=where, remedy=_DAMAGED)
    # Fields come in any order: `data_location` may say DEFAULT behind the reference that took the place of raw data.
    if proto.external_data and not proto.HasField("raw_data"):
        return _external(proto, dtype, shape, source)
    try:
        if proto.HasField("raw_data") and dtype.bits >= 8 and dtype.kind != "handle":
            return np.frombuffer(proto.raw_data, dtype.numpy).reshape(shape)
        array = numpy_helper.to_array(proto)
    except (ValueError, TypeError) as error:
        raise InvalidModel(
            f"the data do not fit {dtype}{list(shape)}: {error}", code="E13015", where=where, remedy=_DAMAGED
        ) from error
    if dtype.kind == "handle":
        words = np.empty(array.size, object)
        words[:] = [v.decode("utf-8", "surrogateescape") if isinstance(v, bytes) else str(v) for v in array.flat]
        return words.reshape(shape)
    return array if array.dtype == dtype.numpy else array.astype(dtype.numpy)


def _external(proto: TensorProto, dtype: DType, shape: tuple[int, ...], source: Path) -> np.ndarray:
    entries = {item.key: item.value for item in proto.external_data}
    where = {"tensor": proto.name}
    location = entries.get("location", "")
    folder = source.parent.resolve()
    inline = location == source.name  # the model file itself may be a link to anywhere
    file = source if inline else (folder / location).resolve()
    if not location or Path(location).is_absolute() or not (inline or file.is_relative_to(folder)):
        raise InvalidModel(
            f"external data {location!r} lies outside the model's folder", code="E13026", where=where,
            remedy="put the data file beside the model and save a relative location",
        )  # fmt: skip
    needed = (prod(shape) * dtype.bits + 7) // 8
    try:
        start, length = int(entries.get("offset") or 0), int(entries.get("length") or needed)
    except ValueError as error:
        raise InvalidModel(
            "offset or length of external data is no number", code="E13014", where=where, remedy=_DAMAGED
        ) from error
    if dtype.kind == "handle":
        raise InvalidModel("strings cannot be external data", code="E13014", where=where, remedy=_DAMAGED)
    if not file.is_file():
        raise InvalidModel(
            f"the external data file {location!r} is missing", code="E13001", where=where,
            remedy="copy the data file together with the model",
        )  # fmt: skip
    if start < 0:
        raise InvalidModel(
            f"the external data begin at the negative offset {start}", code="E13015", where=where, remedy=_DAMAGED
        )
    size = file.stat().st_size
    if length != needed or start + needed > size:
        raise InvalidModel(
            f"{needed} bytes needed, {length} declared, {max(size - start, 0)} present in {location!r}",
            code="E13015", where=where, remedy="the data file is truncated or belongs to another model: copy it again",
        )  # fmt: skip
    if not needed:
        return np.zeros(shape, dtype.numpy)
    raw = np.memmap(file, np.uint8, "r", start, (needed,)).view(np.ndarray)
    if dtype.bits < 8:
        packed = TensorProto(data_type=proto.data_type, dims=proto.dims, raw_data=raw.tobytes())
        return numpy_helper.to_array(packed).astype(dtype.numpy, copy=False)
    return raw.view(dtype.numpy).reshape(shape)


def sparse_to_array(proto: onnx.SparseTensorProto, source: Path) -> np.ndarray:
    """A sparse tensor, made dense."""
    values, indices = to_array(proto.values, source), to_array(proto.indices, source)
    dense = np.zeros(tuple(proto.dims), values.dtype)
    try:
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
    except (IndexError, ValueError) as error:
        raise InvalidModel(
            f"indices and values of a sparse tensor do not fit {list(proto.dims)}: {error}", code="E13014",
            where={"tensor": proto.values.name}, remedy=_DAMAGED,
        ) from error  # fmt: skip
    return dense
