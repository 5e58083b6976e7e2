"""Files in large pages: a core reads memory in pages of 2 MiB up to 1.5 times as fast as in those of 4 KiB.

The page cache keeps in one page what is written at once and lies in one aligned block, and maps it as one. Where the
file comes from the disk, whoever maps it says which pages are wanted. Both are wishes, which a system need not grant.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import BinaryIO

BLOCK = 1 << 21


class LargeBlocks:
    """Writes what it is given to a file, from a place on, in whole aligned blocks; `close` writes the last one."""

    def __init__(self, file: BinaryIO, place: int) -> None:
        file.seek(place)
        self._file = file
        self._held = bytearray()
        self._room = BLOCK - place % BLOCK
        """Bytes until the next block begins, behind those that are held."""

    def write(self, data: memoryview) -> None:
        if self._held or self._room < BLOCK:
            start, data = data[: self._room], data[self._room :]
            self._held += start
            self._room -= len(start)
            if self._room:
                return
            self.close()
        whole = len(data) // BLOCK * BLOCK
        if whole:
            self._file.write(data[:whole])
        self._held += data[whole:]
        self._room = BLOCK - len(self._held)

    def close(self) -> None:
        if self._held:
            self._file.write(self._held)
        self._held = bytearray()
        self._room = BLOCK


def ask_for_large_pages(mapped: mmap.mmap) -> None:
    """Lets what is read from the disk lie in large pages, where the system has them."""
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            mapped.madvise(mmap.MADV_HUGEPAGE)
