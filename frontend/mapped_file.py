"""Keeps big inline tensors in the file: each becomes external data whose location is the model file itself.

A walker over the protobuf wire format (developers.google.com/protocol-buffers/docs/encoding) that descends only into
messages which can hold a big `raw_data`, and copies everything else. Reading then costs no memory for weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx

BIG = 1 << 16
"""Bytes of `raw_data` from which a tensor stays in the file."""

_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5


class MalformedFile(ValueError):
    """The bytes are no protobuf message, or end too early."""


@dataclass
class _Message:
    """Field numbers of a message that lead to big tensors."""

    children: dict[int, _Message] = field(default_factory=dict)


def _number(message: type, name: str) -> int:
    return int(message.DESCRIPTOR.fields_by_name[name].number)  # type: ignore[attr-defined]


_TENSOR, _ATTRIBUTE, _NODE, _GRAPH, _MODEL = _Message(), _Message(), _Message(), _Message(), _Message()
_RAW_DATA = _number(onnx.TensorProto, "raw_data")
_ATTRIBUTE.children = {_number(onnx.AttributeProto, "t"): _TENSOR, _number(onnx.AttributeProto, "g"): _GRAPH}
_NODE.children = {_number(onnx.NodeProto, "attribute"): _ATTRIBUTE}
_GRAPH.children = {_number(onnx.GraphProto, "node"): _NODE, _number(onnx.GraphProto, "initializer"): _TENSOR}
_MODEL.children = {_number(onnx.ModelProto, "graph"): _GRAPH}


def stripped(content: memoryview, location: str) -> bytes:
    """The bytes of a ModelProto, equal to `content` but for big tensors, which refer to `location` instead.

    `content` is the whole file. MalformedFile when a length leads out of its message.
    """
    return b"".join(_strip(content, 0, len(content), _MODEL, location))


def _strip(content: memoryview, start: int, end: int, message: _Message, location: str) -> Iterator[bytes]:
    copied = start  # everything before is written
    for number, begin, first, last in _fields(content, start, end):
        if last - first < BIG:
            continue
        child = message.children.get(number)
        if message is _TENSOR and number == _RAW_DATA:
            yield bytes(content[copied:begin])
            yield _reference({"location": location, "offset": str(first), "length": str(last - first)})
        elif child is not None:
            inner = b"".join(_strip(content, first, last, child, location))
            yield bytes(content[copied:begin]) + _varint(number << 3 | _LEN) + _varint(len(inner)) + inner
        else:
            continue
        copied = last
    yield bytes(content[copied:end])


def _reference(entries: Mapping[str, str]) -> bytes:
    tensor = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return bytes(tensor.SerializeToString())  # fields of a message may come in any order, so this continues the tensor


def _fields(content: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Number, begin, and the range of the payload of each length-delimited field."""
    while at < end:
        begin = at
        key, at = _read_varint(content, at, end)
        kind = key & 7
        if kind == _VARINT:
            _, at = _read_varint(content, at, end)
        elif kind == _LEN:
            length, at = _read_varint(content, at, end)
            if length > end - at:
                raise MalformedFile(f"a field of {length} bytes at {at} leads out of its message")
            yield key >> 3, begin, at, at + length
            at += length
        elif kind in (_I64, _I32):
            at += 8 if kind == _I64 else 4
        else:
            raise MalformedFile(f"wire type {kind} at {begin}")
    if at != end:
        raise MalformedFile(f"a field leads out of its message at {end}")


def _read_varint(content: memoryview, at: int, end: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = content[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise MalformedFile(f"a number does not end at {at}")


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*parts, number))
