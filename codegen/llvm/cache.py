"""The object cache: what this machine compiled once it does not compile again. It keeps kernel images.

Place: `OPENATC_CACHE`, else `~/.cache/openatc` (the platform's cache folder), in it `objects/`. A file is named by the
digest of everything that decides its bytes and starts with the digest of its content, which is checked on reading.
Files appear under their name only when complete. A folder that cannot be written is only read, one that others can
write is not.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from codegen.llvm.cache_folder import cache_folder, exposed, is_private, make_private
from codegen.llvm.workers import Compilation
from codegen.targets.hosts import host_class

_log = logging.getLogger(__name__)

DEFAULT_LIMIT = 1 << 30
"""Bytes; the least recently used objects go when it is exceeded."""
_DIGEST = 32
_SOURCES = ("codegen/llvm", "codegen/targets", "codegen/tile", "tensor_types")
"""The rooms that decide what a program becomes on a host class."""


@lru_cache(maxsize=1)
def generator_version() -> str:
    """Digest of the sources that turn a program into code, and of the LLVM that does it."""
    root = Path(__file__).resolve().parents[2]
    total = hashlib.sha256(f"{llvmlite.__version__} {llvm.llvm_version_info}".encode())
    for folder in _SOURCES:
        for path in sorted((root / folder).rglob("*.py")):
            total.update(path.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


@lru_cache(maxsize=16)
def _say(problem: str) -> None:
    """Once for each cause and process."""
    _log.warning(
        "kernels are compiled again each time, as the cache is not safe: %s (make it yours alone with chmod go-w, or "
        "let OPENATC_CACHE name a folder that is)", problem,
    )  # fmt: skip


class ObjectCache:
    """Kernel images by program and host class."""

    def __init__(self, folder: Path | None = None, limit: int = DEFAULT_LIMIT) -> None:
        self.folder = folder or cache_folder() / "objects"
        self.limit = limit

    def key(self, program: bytes, target: object) -> str:
        """The file name of a serialised program's image."""
        host = host_class(target)
        parts = [generator_version(), host.name, hashlib.sha256(program).hexdigest()]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()

    def get(self, program: bytes, target: object) -> bytes | None:
        """The image, or None if it is absent, damaged or may be another user's."""
        path = self.folder / self.key(program, target)
        if problem := self.problem():
            _say(problem)
            return None
        if not is_private(path):
            return None
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if hashlib.sha256(data[_DIGEST:]).digest() != data[:_DIGEST]:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return data[_DIGEST:]

    def problem(self) -> str:
        """Why the folder is not used, if it is there: others may have put code into it. "" if it is used."""
        there = [path for path in (self.folder.parent, self.folder) if os.path.lexists(path)]
        return next((why for path in there if hasattr(os, "geteuid") and (why := exposed(path))), "")

    def put(self, program: bytes, target: object, image: bytes) -> None:
        """Stores an image; does nothing where the folder cannot be written or is not used."""
        if self.problem():
            return
        try:
            make_private(self.folder)
            handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(image).digest() + image)
                os.replace(temporary, self.folder / self.key(program, target))
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
        except OSError:
            return

    def size(self) -> int:
        """Bytes of all objects."""
        return sum(size for _, size, _ in self._entries())

    def evict(self) -> None:
        """Removes the least recently used objects until the limit holds."""
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total <= self.limit:
                return
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size

    def clear(self) -> int:
        """Removes every object; gives how many."""
        removed = 0
        for _, _, path in self._entries():
            with contextlib.suppress(OSError):
                path.unlink()
                removed += 1
        return removed

    def _entries(self) -> list[tuple[float, int, Path]]:
        found = []
        try:
            paths = list(self.folder.iterdir())
        except OSError:
            return []
        for path in paths:
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        return found

    def compile(self, programs: Sequence[bytes], target: object, workers: int | None = None) -> list[bytes]:
        """Images of the programs in order; equal programs and cached ones are not compiled again. Raises as
        `Compilation.result`."""
        return self.begin(programs, target, workers).result()

    def begin(self, programs: Sequence[bytes], target: object, workers: int | None = None) -> CachedCompilation:
        """Starts to compile the programs that are not cached."""
        return CachedCompilation(self, programs, target, workers)


class CachedCompilation:
    """Images from the cache, and others that are being compiled for it; `missing` are the programs of those."""

    def __init__(self, cache: ObjectCache, programs: Sequence[bytes], target: object, workers: int | None) -> None:
        self._cache, self._programs, self._target = cache, programs, target
        self._images: dict[bytes, bytes | None] = {p: cache.get(p, target) for p in programs}
        self.missing = [p for p, image in self._images.items() if image is None]
        self._compilation = Compilation(self.missing, host_class(target).name, workers, self._keep)

    def result(self) -> list[bytes]:
        """The images in the order of the programs. Raises as `Compilation.result`."""
        for program, image in zip(self.missing, self._compilation.result(), strict=True):
            self._images[program] = image
        if self.missing:
            self._cache.evict()
        return [image for p in self._programs if (image := self._images[p]) is not None]

    def _keep(self, program: bytes, image: bytes) -> None:
        self._cache.put(program, self._target, image)
