"""The inner container: the table of named byte sections that lies inside partition 3 of the outer file.

Layout, little-endian; offsets count from the start of the container, which is 64-byte aligned in the file:

    header, 64 bytes   magic[8], version u32, section count u32, table bytes u64, container bytes u64,
                       sha256 of the 32 bytes above and the table
    table              one 56-byte row a section (see `_ROW`), then the names, UTF-8, end to end
    sections           each 64-byte aligned, in row order, gaps are zero

A section need not lie inside: `partition` names the outer partition that *is* the section, so that weights
are stored once and still seen by viewers of the outer format, under the same digest rule as everything else.

A section whose kind has the bit DEFLATED is stored as its length (u64) and a zlib stream; digest and size in the table
are those of what is stored, so nothing is inflated before its digest has been checked. With the bit DENSE as well the
stream is LZMA2: two thirds of the bytes of code, and thrice the time, for what a load seldom reads.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache, partial
from typing import Any, NamedTuple

from tensor_types.limits import require_within

from .errors import PackageError

MAGIC = b"OPENATC\0"
VERSION = 2
ALIGNMENT = 64
HOME_PARTITION = 3
"""The outer partition that the container itself occupies; other numbers mark external sections."""

DEFLATED, DENSE = 0x80, 0x40
_PRESET, _DICTIONARY = 1, 1 << 20
"""Of LZMA2: a megabyte holds the kernels of most models, and is all the memory that a reader needs."""
_LENGTH = struct.Struct("<Q")

MAX_SECTIONS = 4096
MAX_NAME_BYTES = 255

_HEADER = struct.Struct("<8sIIQQ32s")
_DIGESTED = 32
"""The part of the header that the header's own digest covers."""
_ROW = struct.Struct("<IHBBQQ32s")
"""name offset within the names, name bytes, kind, partition, section offset, section bytes, sha256."""
_NAME = re.compile(r"[A-Za-z0-9._+=-]+(/[A-Za-z0-9._+=-]+)*")

_DAMAGED = "the file is damaged or not complete: copy it again or convert the model again"


class SectionKind(IntEnum):
    """What a section holds; it decides when its digest is checked."""

    METADATA = 1
    """Checked at load."""
    CODE = 2
    """Tile programs and native objects; checked at load."""
    WEIGHTS = 3
    """Large and mapped; checked only when asked."""


@dataclass(frozen=True, slots=True)
class Section:
    """One row of the table. `offset` and `size` are bytes as stored; `offset` counts from the container's start,
    or from the start of `partition` when that is not HOME_PARTITION."""

    name: str
    kind: SectionKind
    partition: int
    offset: int
    size: int
    sha256: bytes
    deflated: bool = False
    dense: bool = False
    """Of a deflated one, that its stream is LZMA2."""


def deflate(content: bytes | memoryview, dense: bool = False) -> bytes:
    """A content as a deflated section stores it; equal contents give equal bytes."""
    data = memoryview(content).cast("B")
    return _LENGTH.pack(len(data)) + (_lzma().compress(data) if dense else zlib.compress(data, 6))


def inflate(stored: memoryview, name: str, dense: bool = False) -> bytes:
    """The content of a deflated section. PackageError if it is damaged, ResourceLimit if it is beyond the budget."""
    if len(stored) < _LENGTH.size:
        raise PackageError(f"section {name} is not complete", remedy=_DAMAGED)
    (length,) = _LENGTH.unpack_from(stored)
    require_within("section_bytes", length, f"bytes of section {name}")
    if dense and not has_dense():
        raise PackageError(f"section {name} is LZMA2, which this Python was built without",
                           remedy="use a Python with the module lzma, or convert the model here")  # fmt: skip
    stream, failed = (_lzma().decompressor(), _lzma().error) if dense else (zlib.decompressobj(), zlib.error)
    try:
        content: bytes = stream.decompress(stored[_LENGTH.size :], length + 1)  # never more than it says
    except failed as error:
        raise PackageError(f"section {name} cannot be inflated: {error}", remedy=_DAMAGED) from None
    if len(content) != length or not stream.eof or stream.unused_data:
        raise PackageError(f"section {name} does not have the length that it says", remedy=_DAMAGED)
    return content


class _Lzma(NamedTuple):
    compress: Callable[[memoryview], bytes]
    decompressor: Callable[[], Any]
    error: type[Exception]


@lru_cache(maxsize=1)
def _lzma() -> _Lzma:
    """LZMA2, loaded by whoever needs it."""
    import lzma

    form: dict[str, Any] = {
        "format": lzma.FORMAT_RAW,
        "filters": [{"id": lzma.FILTER_LZMA2, "preset": _PRESET, "dict_size": _DICTIONARY}],
    }
    return _Lzma(partial(lzma.compress, **form), partial(lzma.LZMADecompressor, **form), lzma.LZMAError)


def has_dense() -> bool:
    """Whether this Python writes and reads dense sections: some are built without the library."""
    try:
        _lzma()
    except ImportError:
        return False
    return True


def align(position: int) -> int:
    """The first multiple of ALIGNMENT that is not below `position`."""
    return -(-position // ALIGNMENT) * ALIGNMENT


def check_name(name: str) -> None:
    """PackageError unless `name` is slash-separated words of letters, digits and `._+=-`, 1 to 255 bytes."""
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_BYTES:
        raise PackageError(
            f"bad section name {name[:80]!r}",
            remedy="use words of letters, digits and ._+=- separated by slashes, 255 bytes at most",
        )


def first_section_offset(names: Iterable[str]) -> int:
    """Bytes from the container's start to its first section, known before any content is."""
    return align(_HEADER.size + sum(_ROW.size + len(name.encode()) for name in names))


def encode_table(sections: Sequence[Section], container_size: int) -> bytes:
    """Header and table, without the padding up to the first section."""
    if len(sections) > MAX_SECTIONS:
        raise PackageError(f"{len(sections)} sections, the limit is {MAX_SECTIONS}", remedy="merge some sections")
    rows, names = bytearray(), bytearray()
    for section in sections:
        check_name(section.name)
        name = section.name.encode()
        rows += _ROW.pack(
            len(names), len(name), section.kind | DEFLATED * section.deflated | DENSE * section.dense,
            section.partition, section.offset, section.size, section.sha256,
        )  # fmt: skip
        names += name
    table = bytes(rows + names)
    header = _HEADER.pack(MAGIC, VERSION, len(sections), len(table), container_size, bytes(32))[:_DIGESTED]
    return header + hashlib.sha256(header + table).digest() + table


def decode_table(container: memoryview, partition_sizes: Mapping[int, int]) -> tuple[Section, ...]:
    """The checked table of a container.

    `container` is the whole container; `partition_sizes` gives the bytes of the outer partitions that external
    sections may name. Every count, length and offset is checked before it is used: after this call each section
    lies within its place, none overlaps another, no name appears twice. Raises PackageError otherwise.
    """
    if len(container) < _HEADER.size:
        raise PackageError(f"the container has {len(container)} bytes, its header needs 64", remedy=_DAMAGED)
    magic, version, count, table_size, size, digest = _HEADER.unpack_from(container)
    if magic != MAGIC:
        raise PackageError(
            "partition 3 does not hold an openatc container",
            remedy="this .om comes from another compiler: convert the model with atc convert",
        )
    if version != VERSION:
        raise PackageError(
            f"container version {version}, this program reads version {VERSION}",
            remedy="convert the model again, or use the program version that wrote the file",
        )
    if size != len(container):
        raise PackageError(f"the container says {size} bytes and has {len(container)}", remedy=_DAMAGED)
    if count > MAX_SECTIONS or not count * _ROW.size <= table_size <= count * (_ROW.size + MAX_NAME_BYTES):
        raise PackageError(f"{count} sections in a table of {table_size} bytes", remedy=_DAMAGED)
    if _HEADER.size + table_size > size:
        raise PackageError(f"the table of {table_size} bytes leaves the container", remedy=_DAMAGED)
    table = container[_HEADER.size : _HEADER.size + table_size]
    checksum = hashlib.sha256(container[:_DIGESTED])
    checksum.update(table)
    if checksum.digest() != digest:
        raise PackageError("the digest of the section table does not match", remedy=_DAMAGED)
    rows = [_ROW.unpack_from(table, i * _ROW.size) for i in range(count)]
    names = bytes(table[count * _ROW.size :])
    sections = tuple(_section(row, names) for row in rows)
    _check_placement(sections, align(_HEADER.size + table_size), size, partition_sizes)
    return sections


def _section(row: tuple[int, int, int, int, int, int, bytes], names: bytes) -> Section:
    name_offset, name_size, kind, partition, offset, size, sha256 = row
    if name_offset + name_size > len(names):
        raise PackageError("a section name leaves the name table", remedy=_DAMAGED)
    try:
        name = names[name_offset : name_offset + name_size].decode("ascii")
        section_kind = SectionKind(kind & ~(DEFLATED | DENSE))
    except ValueError:
        raise PackageError("a section has an unknown kind or a name that is not text", remedy=_DAMAGED) from None
    check_name(name)
    deflated, dense = bool(kind & DEFLATED), bool(kind & DENSE)
    if dense and not deflated:
        raise PackageError(f"section {name} is dense and not deflated", remedy=_DAMAGED)
    return Section(name, section_kind, partition, offset, size, sha256, deflated, dense)


def _check_placement(
    sections: tuple[Section, ...], first: int, container_size: int, partition_sizes: Mapping[int, int]
) -> None:
    if len({section.name for section in sections}) != len(sections):
        raise PackageError("a section name appears twice", remedy=_DAMAGED)
    external = [section for section in sections if section.partition != HOME_PARTITION]
    if len({section.partition for section in external}) != len(external):
        raise PackageError("two sections claim the same partition", remedy=_DAMAGED)
    for section in external:
        if section.deflated or section.offset != 0 or partition_sizes.get(section.partition) != section.size:
            raise PackageError(f"section {section.name} does not match partition {section.partition}", remedy=_DAMAGED)
    end = first
    for section in sorted((s for s in sections if s.partition == HOME_PARTITION), key=lambda s: (s.offset, s.size)):
        if section.offset % ALIGNMENT:
            raise PackageError(f"section {section.name} is not {ALIGNMENT}-byte aligned", remedy=_DAMAGED)
        if section.offset < end:
            raise PackageError(f"section {section.name} overlaps what precedes it", remedy=_DAMAGED)
        end = section.offset + section.size
        if end > container_size:
            raise PackageError(f"section {section.name} leaves the container", remedy=_DAMAGED)
