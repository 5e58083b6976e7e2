"""Write a package: the outer file with the fused graph and the weights, our container inside partition 3.

File layout: header, partition table, MODEL_DEF | weights | container table, sections. Sizes of streamed sections
are known only after they are written, so the front keeps room for the larger table form and is filled in last.
The same input gives the same bytes: sections are in name order, gaps are zero, nothing of the machine is recorded.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from tensor_types.limits import LIMITS

from . import container, outer
from .container import Section, SectionKind
from .errors import PackageError
from .large_blocks import LargeBlocks
from .model_def import Attribute, FusedGraph, encode_graph, encode_model
from .replace_file import replace_file

Buffer = bytes | bytearray | memoryview | np.ndarray
Content = Buffer | Iterable[Buffer]
"""What a section holds: one buffer, or buffers that are written end to end as they come, one at a time in memory."""

HEADER = "header"
"""The section that holds the header dict as JSON."""
MODEL = "model_def"
"""The section that is the MODEL_DEF partition."""
WEIGHTS = "weights"
"""The section that is the WEIGHTS_DATA partition: every weight once."""
SIZES = "om_info_list"
"""The attribute of the model that lists the bytes of `PARTS`."""
PARTS = ("modeldef", "weight_data", "tbe_kernels", "cust_aicpu_kernel_store", "task_info", "so_store")
MAX_HEADER_BYTES = 1 << 20
_MOST_BYTES = (1 << 63) - 1


def kind_of(name: str) -> SectionKind:
    """The kind of the section of that name: `weights` and `*/weights` are weights, everything else of a host class is
    code, and the rest is metadata."""
    if name == WEIGHTS or name.endswith(f"/{WEIGHTS}"):
        return SectionKind.WEIGHTS
    if name.startswith("class/"):
        return SectionKind.CODE
    return SectionKind.METADATA


def write_package(
    path: str | os.PathLike[str],
    fused_graph: FusedGraph,
    sections: Mapping[str, Content],
    header: Mapping[str, Any],
    deflated: Collection[str] = (),
    dense: Collection[str] = (),
) -> tuple[Section, ...]:
    """Write a package and give its table, digests included.

    `sections` maps names (see `container.check_name`) to content; `weights` becomes the WEIGHTS_DATA partition, which
    the constants of `fused_graph` point into. `header` is a JSON object of at most 1 MiB. Sections in `deflated`, one
    buffer each, are stored compressed, those of them in `dense` in fewer bytes that take longer to read. The file
    appears whole or not at all. Raises PackageError for a bad name, header, graph or constant, and when the disk
    refuses.
    """
    for name in sections:
        container.check_name(name)
        if name in (HEADER, MODEL):
            raise PackageError(f"the section name {name} is taken", remedy="choose another name")
    body = encode_graph(fused_graph)
    most = _with_sizes(fused_graph, _MOST_BYTES, [_MOST_BYTES] * len(PARTS))
    room = len(encode_model(fused_graph.name, body, most))
    inner: dict[str, Content] = {name: sections[name] for name in sections if name != WEIGHTS}
    inner[HEADER] = _encode_header(header)
    with replace_file(path) as file:
        weights_offset = container.align(outer.front_size(3) + room)
        weights = _write(file, weights_offset, WEIGHTS, outer.WEIGHTS_DATA, 0, sections.get(WEIGHTS, b""))
        _check_constants(fused_graph, weights.size)

        base = container.align(weights_offset + weights.size)
        position = container.first_section_offset((MODEL, WEIGHTS, *inner))
        table = [weights]
        for name in sorted(inner):
            position = container.align(position)
            content, packed = inner[name], False
            if name in deflated and isinstance(content, Buffer):
                data = _bytes(content)
                packed = len(data) <= LIMITS["section_bytes"].default  # what is longer, a reader would refuse
                content = container.deflate(data, name in dense) if packed else content
            row = _write(file, base + position, name, container.HOME_PARTITION, position, content)
            table.append(replace(row, deflated=packed, dense=packed and name in dense))
            position += table[-1].size
        model = _with_own_size(fused_graph, body, table)
        digest = hashlib.sha256(model).digest()
        table.insert(0, Section(MODEL, kind_of(MODEL), outer.MODEL_DEF, 0, len(model), digest))
        file.truncate(base + position)  # an empty last section may lie beyond the last byte written
        file.seek(base)
        file.write(container.encode_table(table, position))

        start = outer.table_end(3, base + position)
        partitions = (
            outer.Partition(outer.MODEL_DEF, start, len(model)),
            outer.Partition(outer.WEIGHTS_DATA, weights_offset, weights.size),
            outer.Partition(outer.TBE_KERNELS, base, position),
        )
        file.seek(0)
        file.write(
            outer.encode_front(
                fused_graph.name, len(fused_graph.nodes), fused_graph.dynamic, partitions, base + position
            )
        )
        file.write(model)
    return tuple(table)


def _with_sizes(graph: FusedGraph, weights: int, sizes: Sequence[int]) -> dict[str, Attribute]:
    return {**graph.attrs, "weight_size": weights, SIZES: list(sizes)}


def _with_own_size(graph: FusedGraph, body: bytes, table: Sequence[Section]) -> bytes:
    """The MODEL_DEF message, in which its own size stands beside those of the sections."""

    def total(*parts: str) -> int:
        return sum(s.size for s in table if s.name.rpartition("/")[2] in parts)

    weights, kernels, tasks = total(WEIGHTS), total("objects"), total("plan", "programs")
    model = b""
    while True:
        known = len(model)
        sizes = _with_sizes(graph, weights, [known, weights, kernels, 0, tasks, 0])
        model = encode_model(graph.name, body, sizes)
        if len(model) == known:
            return model


def _encode_header(header: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(dict(header), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise PackageError(f"the header is not plain JSON: {error}", remedy="use dicts, lists and scalars") from error
    if len(text) > MAX_HEADER_BYTES:
        raise PackageError(
            f"the header has {len(text)} bytes, the limit is {MAX_HEADER_BYTES}", remedy="use a section for large data"
        )
    return text.encode()


def _write(file: BinaryIO, place: int, name: str, partition: int, offset: int, content: Content) -> Section:
    blocks = LargeBlocks(file, place)
    if isinstance(content, Buffer):
        data = _bytes(content)
        blocks.write(data)
        blocks.close()
        return Section(name, kind_of(name), partition, offset, len(data), hashlib.sha256(data).digest())
    digest, size = hashlib.sha256(), 0
    # A buffer is hashed while it is written and the next one is made: each takes a third of the time of weights.
    with ThreadPoolExecutor(1) as hashing:
        hashed: Future[None] | None = None
        for chunk in content:
            data = _bytes(chunk)
            if hashed is not None:
                hashed.result()
            hashed = hashing.submit(digest.update, data)
            blocks.write(data)
            size += len(data)
    blocks.close()
    return Section(name, kind_of(name), partition, offset, size, digest.digest())


def _bytes(chunk: Buffer) -> memoryview:
    if isinstance(chunk, np.ndarray):
        if chunk.dtype.hasobject:
            raise TypeError("an array of objects has no bytes to store")
        # Through uint8, because the buffer protocol has no code for bfloat16 and its like.
        return np.ascontiguousarray(chunk).reshape(-1).view(np.uint8).data
    return memoryview(chunk).cast("B")


def _check_constants(graph: FusedGraph, weights_size: int) -> None:
    for const in graph.constants:
        if not 0 <= const.offset <= const.offset + const.size <= weights_size:
            raise PackageError(
                f"constant {const.name} takes bytes {const.offset} to {const.offset + const.size} of {weights_size}",
                where={"tensor": const.name},
                remedy="this is a fault of the compiler: report it with the model",
            )
