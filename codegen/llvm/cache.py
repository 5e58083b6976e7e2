"""The object cache: what this machine compiled once it does not compile again. It keeps kernel images.

Place: `OPENATC_CACHE`, else `~/.cache/openatc` (the platform's cache folder), in it `objects/`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import llvmlite

from codegen.cache_files import CacheFiles, name_of, sources_digest
from codegen.cache_folder import cache_folder
from codegen.llvm.bounds_checks import code_name
from codegen.llvm.workers import Compilation
from codegen.tile.verdicts import verdict_files

DEFAULT_LIMIT = 1 << 30
"""Bytes; the least recently used objects go when it is exceeded."""
_SOURCES = ("codegen/llvm", "codegen/targets", "codegen/tile", "tensor_types")
"""The rooms that decide what a program becomes on a host class."""


@lru_cache(maxsize=1)
def generator_version() -> str:
    """Digest of the sources that turn a program into code, and of the LLVM that does it, which llvmlite brings."""
    return name_of(llvmlite.__version__, sources_digest(*_SOURCES))


class ObjectCache(CacheFiles):
    """Kernel images by program and host class."""

    def __init__(self, folder: Path | None = None, limit: int = DEFAULT_LIMIT) -> None:
        super().__init__(folder or cache_folder() / "objects", limit)

    def key(self, program: bytes, target: object) -> str:
        """The file name of a serialised program's image."""
        return name_of(generator_version(), code_name(target), hashlib.sha256(program).hexdigest())

    def get(self, program: bytes, target: object) -> bytes | None:
        """The image, or None if it is absent, damaged or may be another user's."""
        return self.read(self.key(program, target))

    def put(self, program: bytes, target: object, image: bytes) -> None:
        """Stores an image; does nothing where the folder cannot be written or is not used."""
        self.write(self.key(program, target), image)

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
        self._compilation = Compilation(self.missing, code_name(target), workers, self._keep)

    def result(self) -> list[bytes]:
        """The images in the order of the programs. Raises as `Compilation.result`."""
        for program, image in zip(self.missing, self._compilation.result(), strict=True):
            self._images[program] = image
        if self.missing:
            self._cache.tend()
            verdict_files().tend()
        return [image for p in self._programs if (image := self._images[p]) is not None]

    def _keep(self, program: bytes, image: bytes) -> None:
        self._cache.put(program, self._target, image)
