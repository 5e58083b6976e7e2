"""The protobuf wire format, as much of it as MODEL_DEF needs: fields out, checked fields in."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from .errors import PackageError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FLOAT = struct.Struct("<f")
_ONE_BYTE = [bytes((value,)) for value in range(128)]
"""Varints of the most frequent numbers."""
MAX_LIST_BYTES = 1 << 20
"""The longest packed list that is read: a hostile one would grow by an order of magnitude in memory."""


def varint(value: int) -> bytes:
    """A varint; negative numbers as 64-bit two's complement, ten bytes long."""
    if 0 <= value < len(_ONE_BYTE):
        return _ONE_BYTE[value]
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(field: int, value: int) -> bytes:
    """An integer, enum or bool field."""
    return varint(field << 3 | _VARINT) + varint(value)


def single(field: int, value: float) -> bytes:
    """A 32-bit float field."""
    return varint(field << 3 | _FIXED32) + _FLOAT.pack(value)


def message(field: int, content: bytes) -> bytes:
    """A bytes, string or message field."""
    return varint(field << 3 | _BYTES) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """A string field; what UTF-8 cannot state is escaped."""
    return message(field, value.encode("utf-8", "backslashreplace"))


def packed(field: int, values: Iterable[int]) -> bytes:
    """A packed repeated integer field."""
    return message(field, b"".join(varint(v) for v in values))


def map_entry(field: int, key: str, value: bytes) -> bytes:
    """A map entry. Key and value are always written, and in this order: some readers assume both."""
    return message(field, text(1, key) + message(2, value))


def fields(data: memoryview) -> Iterator[tuple[int, int | float | memoryview]]:
    """The (number, value) pairs of a message: int for varints, float for 32-bit ones, a view for bytes.

    64-bit fixed fields are skipped. Raises PackageError at the first byte that is not well-formed.
    """
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, form = tag >> 3, tag & 7
        if form == _VARINT:
            value, position = _read_varint(data, position)
            yield number, value
        elif form == _BYTES:
            size, position = _read_varint(data, position)
            yield number, _take(data, position, size)
            position += size
        elif form == _FIXED32:
            yield number, _FLOAT.unpack(_take(data, position, 4))[0]
            position += 4
        elif form == _FIXED64:
            _take(data, position, 8)
            position += 8
        else:
            raise _malformed()


def as_integer(value: int | float | memoryview) -> int:
    """A field value as a signed 64-bit integer; PackageError if the field had another form."""
    if not isinstance(value, int):
        raise _malformed()
    return value - 2**64 if value >= 2**63 else value


def as_single(value: int | float | memoryview) -> float:
    """A field value as a float; PackageError if the field had another form."""
    if not isinstance(value, float):
        raise _malformed()
    return value


def as_message(value: int | float | memoryview) -> memoryview:
    """A field value as bytes; PackageError if the field had another form."""
    if not isinstance(value, memoryview):
        raise _malformed()
    return value


def as_text(value: int | float | memoryview) -> str:
    """A field value as a string; PackageError if the field had another form or is not UTF-8."""
    try:
        return bytes(as_message(value)).decode()
    except UnicodeDecodeError:
        raise _malformed() from None


def as_integers(value: int | float | memoryview) -> list[int]:
    """The values of a repeated integer field, packed or not."""
    if isinstance(value, int):
        return [as_integer(value)]
    data, position, out = _short(as_message(value)), 0, []
    while position < len(data):
        item, position = _read_varint(data, position)
        out.append(as_integer(item))
    return out


def as_singles(value: int | float | memoryview) -> list[float]:
    """The values of a repeated 32-bit float field, packed or not."""
    if isinstance(value, float):
        return [value]
    data = _short(as_message(value))
    if len(data) % 4:
        raise _malformed()
    return [item for (item,) in _FLOAT.iter_unpack(data)]


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (2**64 - 1), position
    raise _malformed()


def _take(data: memoryview, position: int, size: int) -> memoryview:
    if size > len(data) - position:
        raise _malformed()
    return data[position : position + size]


def _short(data: memoryview) -> memoryview:
    if len(data) > MAX_LIST_BYTES:
        raise _malformed()
    return data


def _malformed() -> PackageError:
    return PackageError(
        "the graph description is not a well-formed message",
        remedy="the file is damaged: copy it again or convert the model again",
    )
