"""The public `.om` outer file: a 256-byte header, a partition table, the partitions.

Partition offsets count from the end of the table. The table has a 32-bit form and, for files beyond 4 GiB, a
64-bit form; readers tell them apart by trying the 32-bit form first. That works only if MODEL_DEF comes first at
offset 0 and is not alone: the first two rows of a 64-bit table then read as type 0 twice, which is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from .errors import PackageError

MODEL_DEF = 0
WEIGHTS_DATA = 1
TASK_INFO = 2
TBE_KERNELS = 3
CUST_AICPU_KERNELS = 4
MODEL_INOUT_INFO = 8
PARTITION_TYPES = frozenset((MODEL_DEF, WEIGHTS_DATA, TASK_INFO, TBE_KERNELS, CUST_AICPU_KERNELS, MODEL_INOUT_INFO))
"""The types that we write. Others make viewers fail on content that is not in their own record format."""

MAGIC = b"IMOD"
HEADER_SIZE = 256
LIMIT_32BIT = 2**32 - 1
"""The largest partition end that the 32-bit table form can state."""

_HEADER = struct.Struct("<4sII64sIBBBB32sI32sII20sB3xQBB62x")
_COUNT_32, _ROW_32 = struct.Struct("<I"), struct.Struct("<III")
_COUNT_64, _ROW_64 = struct.Struct("<II"), struct.Struct("<QQQ")
_VERSION = 0x20000000
"""The lowest header version that has the model_num field."""

_DAMAGED = "the file is damaged or not complete: copy it again or convert the model again"


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: its type, and its place as an absolute byte offset in the file and a size in bytes."""

    type: int
    offset: int
    size: int


def front_size(partition_count: int) -> int:
    """The most bytes that header and table can take; a writer keeps so much free and decides on the form last."""
    return HEADER_SIZE + _COUNT_64.size + partition_count * _ROW_64.size


def table_end(partition_count: int, last_byte: int) -> int:
    """The file offset at which the table ends and MODEL_DEF starts, for a file of `last_byte` bytes."""
    if last_byte <= LIMIT_32BIT:
        return HEADER_SIZE + _COUNT_32.size + partition_count * _ROW_32.size
    return front_size(partition_count)


def encode_front(name: str, node_count: int, dynamic: bool, partitions: Sequence[Partition], file_size: int) -> bytes:
    """Header and table for `partitions`, of which the first is MODEL_DEF and starts at `table_end`."""
    start = table_end(len(partitions), file_size)
    if len(partitions) < 2 or partitions[0].type != MODEL_DEF or partitions[0].offset != start:
        raise ValueError("MODEL_DEF must come first, right behind the table, and not alone")
    if not {p.type for p in partitions} <= PARTITION_TYPES:
        raise ValueError("a partition type that viewers cannot open")
    header = _HEADER.pack(
        MAGIC,
        HEADER_SIZE,
        _VERSION,
        b"",  # checksum: the inner container has digests of its own
        min(file_size - HEADER_SIZE, LIMIT_32BIT),
        0,  # is_encrypt
        0,  # is_checksum
        0,  # modeltype: IR model
        0,  # genmode: offline
        name.encode("utf-8", "backslashreplace")[:31].decode("utf-8", "ignore").encode(),
        min(node_count, LIMIT_32BIT),
        b"",  # userdefineinfo
        0,  # om_ir_version
        1,  # model_num
        b"",  # platform_version
        0,  # platform_type
        file_size - HEADER_SIZE,
        0,  # need_check_os_cpu_info
        dynamic,
    )
    narrow = start != front_size(len(partitions))
    count = _COUNT_32.pack(len(partitions)) if narrow else _COUNT_64.pack(len(partitions), 0)
    row = _ROW_32 if narrow else _ROW_64
    return header + count + b"".join(row.pack(p.type, p.offset - start, p.size) for p in partitions)


def decode_front(file: memoryview) -> dict[int, Partition]:
    """The checked partitions of a file by type: none leaves the file, none overlaps another. PackageError else."""
    if len(file) < HEADER_SIZE + _COUNT_32.size or file[:4] != MAGIC:
        raise PackageError("this is not an .om file", remedy="give a file that atc convert wrote")
    header_size = _HEADER.unpack_from(file)[1]
    if header_size != HEADER_SIZE:
        raise PackageError(f"the header says that it has {header_size} bytes, 256 are right", remedy=_DAMAGED)
    for count_form, row_form in ((_COUNT_32, _ROW_32), (_COUNT_64, _ROW_64)):
        partitions = _decode_table(file, count_form, row_form)
        if partitions is not None:
            return partitions
    raise PackageError("the partition table is not valid", remedy=_DAMAGED)


def _decode_table(file: memoryview, count_form: struct.Struct, row_form: struct.Struct) -> dict[int, Partition] | None:
    if HEADER_SIZE + count_form.size > len(file):
        return None
    count = count_form.unpack_from(file, HEADER_SIZE)[0]
    start = HEADER_SIZE + count_form.size + count * row_form.size
    if not 2 <= count <= len(PARTITION_TYPES) or start > len(file):
        return None
    partitions: dict[int, Partition] = {}
    for i in range(count):
        kind, offset, size = row_form.unpack_from(file, HEADER_SIZE + count_form.size + i * row_form.size)
        if kind not in PARTITION_TYPES or kind in partitions or start + offset + size > len(file):
            return None
        partitions[kind] = Partition(kind, start + offset, size)
    by_place = sorted(partitions.values(), key=lambda p: (p.offset, p.size))
    if any(a.offset + a.size > b.offset for a, b in zip(by_place, by_place[1:], strict=False)):
        return None
    return partitions
