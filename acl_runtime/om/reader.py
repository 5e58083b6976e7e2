"""Open a package: map the file, check its structure, give zero-copy views of the sections."""

from __future__ import annotations

import difflib
import hashlib
import math
import mmap
import os
import stat
from collections.abc import Container
from typing import Any

import numpy as np

from tensor_types.dtypes import DTYPES
from tensor_types.error_codes import OPEN_FAILED
from tensor_types.json_text import parse_json

from . import container, model_def, outer
from .container import Section, SectionKind
from .errors import PackageError
from .large_blocks import ask_for_large_pages
from .model_def import FusedGraph
from .writer import HEADER, MAX_HEADER_BYTES, MODEL

_DAMAGED = "the file is damaged or not complete: copy it again or convert the model again"


def cut_short() -> PackageError:
    """The error of a package whose file somebody made shorter."""
    return PackageError(
        "the file of the package was made shorter while it is in use",
        remedy="load the package again; to replace a package, rename the new file to its name",
    )


class Package:
    """An opened package. Its views keep the file mapped, so there is nothing to close; it never changes."""

    def __init__(
        self, header: dict[str, Any], sections: tuple[Section, ...], views: dict[str, memoryview], file: memoryview
    ) -> None:
        self.header = header
        """The header dict that the writer was given."""
        self._sections = sections
        self._views = views
        self._deflated = {s.name: s.dense for s in sections if s.deflated}
        self._file = file

    def require_whole(self) -> None:
        """PackageError if somebody made the file shorter: what is mapped beyond its end would kill the process."""
        mapped = self._file.obj
        assert isinstance(mapped, mmap.mmap)
        if mapped.size() < len(self._file):
            raise cut_short()

    def sections(self) -> tuple[Section, ...]:
        """The table: names, kinds, sizes and digests, of the graph description and the weights too."""
        return self._sections

    def __contains__(self, name: str) -> bool:
        return name in self._views

    def section(self, name: str) -> memoryview:
        """The bytes of a section, read-only and 64-byte aligned (`model_def` and deflated ones are not aligned).

        Raises PackageError if there is none of that name, or it cannot be inflated; ResourceLimit.
        """
        if name not in self._views:
            near = difflib.get_close_matches(name, self._views, 3) or sorted(self._views)[:10]
            raise PackageError(f"the package has no section {name!r}", remedy=f"it has {', '.join(near)}")
        view = self._views[name]
        return memoryview(container.inflate(view, name, self._deflated[name])) if name in self._deflated else view

    def is_readable(self, name: str) -> bool:
        """Whether there is a section of that name that this Python can read."""
        return name in self._views and (not self._deflated.get(name) or container.has_dense())

    def array(self, section: str, dtype: np.dtype | str, shape: tuple[int, ...], offset: int = 0) -> np.ndarray:
        """A read-only array over bytes of `section` from byte `offset` on, without a copy.

        `dtype` is a numpy dtype or a name of `tensor_types.dtypes`. Raises PackageError if the dtype has no bytes, the
        offset is not a multiple of the element size, or the array leaves the section.
        """
        data = self.section(section)
        where = {"tensor": f"{section}+{offset}"}
        if isinstance(dtype, str):
            if dtype not in DTYPES:
                raise PackageError(f"unknown dtype {dtype[:40]!r}", where=where, remedy=_DAMAGED)
            dtype = DTYPES[dtype].numpy
        if dtype.hasobject or not dtype.itemsize:
            raise PackageError(f"dtype {dtype} cannot be mapped", where=where, remedy=_DAMAGED)
        if len(shape) > model_def.MAX_RANK or any(dim < 0 for dim in shape) or offset < 0 or offset % dtype.itemsize:
            raise PackageError(f"shape {shape[:40]} at offset {offset} of {dtype}", where=where, remedy=_DAMAGED)
        count = math.prod(shape)
        if offset + count * dtype.itemsize > len(data):
            raise PackageError(
                f"{dtype}{list(shape)} at offset {offset} leaves a section of {len(data)} bytes",
                where=where,
                remedy=_DAMAGED,
            )
        try:
            if count == 0:  # numpy refuses an empty range at the end of a buffer
                empty = np.empty(shape, dtype)
                empty.flags.writeable = False
                return empty
            return np.frombuffer(data, dtype, count, offset).reshape(shape)
        except ValueError as error:
            raise PackageError(f"shape {shape} of {dtype}: {error}", where=where, remedy=_DAMAGED) from error

    def graph(self) -> FusedGraph:
        """The fused graph as viewers see it. Raises PackageError if it is not one that `write_package` wrote."""
        return model_def.decode(self.section(MODEL))

    def verify(self) -> None:
        """Check the digests of all sections, weights too. Raises PackageError that names the first wrong one."""
        self._verify(tuple(SectionKind))

    def _verify(self, kinds: Container[SectionKind]) -> None:
        for section in self._sections:
            if section.kind in kinds and hashlib.sha256(self._views[section.name]).digest() != section.sha256:
                raise PackageError(f"the digest of section {section.name} does not match", remedy=_DAMAGED)


def open_package(path: str | os.PathLike[str], verify: bool = False) -> Package:
    """Map and check a package.

    Structure and the digests of code and metadata are always checked, those of weights only with `verify`. A file
    that is not a sound package raises PackageError and nothing else, whatever its bytes.
    """
    try:
        file = _map(path)
        partitions = outer.decode_front(file)
        if outer.TBE_KERNELS not in partitions or outer.MODEL_DEF not in partitions:
            raise PackageError(
                "the .om holds no openatc container",
                remedy="it comes from another compiler: convert the model with atc convert",
            )
        bytes_of = {kind: file[p.offset : p.offset + p.size] for kind, p in partitions.items()}
        if any(p.offset % container.ALIGNMENT for p in partitions.values() if p.type != outer.MODEL_DEF):
            raise PackageError("a partition is not 64-byte aligned", remedy=_DAMAGED)
        sizes = {kind: p.size for kind, p in partitions.items() if kind != outer.TBE_KERNELS}
        sections = container.decode_table(bytes_of[outer.TBE_KERNELS], sizes)
        views = {s.name: bytes_of[s.partition][s.offset : s.offset + s.size] for s in sections}
        if HEADER not in views or MODEL not in views:
            raise PackageError("the package has no header or no graph", remedy=_DAMAGED)
        package = Package({}, sections, views, file)
        package._verify(tuple(SectionKind) if verify else (SectionKind.METADATA, SectionKind.CODE))
        package.header = _decode_header(views[HEADER])
    except PackageError as error:
        message = f"{os.fspath(path)}: {error.message}"
        raise PackageError(message, code=error.code, where=error.where, remedy=error.remedy) from error
    return package


def _map(path: str | os.PathLike[str]) -> memoryview:
    try:
        # Non-blocking, so that a pipe of that name is refused rather than waited for.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size < outer.HEADER_SIZE:
                raise PackageError("this is not an .om file", remedy="give a file that atc convert wrote")
            mapped = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
            ask_for_large_pages(mapped)
            return memoryview(mapped)
        finally:
            os.close(descriptor)
    except (OSError, ValueError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PackageError(
            f"cannot open the package: {reason}", code=OPEN_FAILED, remedy="check the path and its permissions"
        ) from error


def _decode_header(data: memoryview) -> dict[str, Any]:
    if len(data) > MAX_HEADER_BYTES:
        raise PackageError(f"the header has {len(data)} bytes, the limit is {MAX_HEADER_BYTES}", remedy=_DAMAGED)
    try:
        header = parse_json(bytes(data))
    except ValueError as error:
        raise PackageError(f"the header is not JSON: {error}", remedy=_DAMAGED) from error
    if not isinstance(header, dict):
        raise PackageError("the header is not a JSON object", remedy=_DAMAGED)
    return header
