"""Files of the cache: what this machine found out once it does not find out again.

A file is named by the digest of everything that decides its content and starts with the digest of that, which is
checked on reading. Files appear under their name only when complete. A folder that cannot be written is only read, one
that others can write is not.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
import time
from functools import lru_cache
from pathlib import Path

from codegen.cache_folder import exposed, is_private, make_private

_log = logging.getLogger(__name__)

_DIGEST = 32
_ROOT = Path(__file__).resolve().parents[1]


@lru_cache(maxsize=8)
def sources_digest(*folders: str) -> str:
    """Digest of the sources in these folders of the product."""
    total = hashlib.sha256()
    for folder in folders:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            total.update(path.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def name_of(*facts: str) -> str:
    """The name of the file whose content these facts decide."""
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()


@lru_cache(maxsize=16)
def _say(problem: str) -> None:
    """Once for each cause and process."""
    _log.warning(
        "kernels are compiled again each time, as the cache is not safe: %s (make it yours alone with chmod go-w, or "
        "let OPENATC_CACHE name a folder that is)", problem,
    )  # fmt: skip


@lru_cache(maxsize=16)
def _say_unwritten(cache: Path, reason: str) -> None:
    """Once for each cause and process."""
    _log.warning(
        "kernels are compiled again next time, as the cache %s cannot be written: %s (free some disk space or make it "
        "writable, or let OPENATC_CACHE name another folder)", cache, reason,
    )  # fmt: skip


_MARK = ".evicted"
_PAUSE = 300
"""Seconds between two looks through a folder: 100 000 files take a second, and a conversion writes a few of them."""


class CacheFiles:
    """The files of one folder; of more than `limit` bytes the least recently used go (`tend`)."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit

    def read(self, name: str) -> bytes | None:
        """The content, or None if it is absent, damaged or may be another user's."""
        path = self.folder / name
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

    def is_writable(self) -> bool:
        """Whether files can be stored, as far as permissions tell: in the folder, or in the first one above it that is
        there, where it would be made."""
        place = next((p for p in (self.folder, *self.folder.parents) if os.path.lexists(p)), self.folder)
        return place.is_dir() and os.access(place, os.W_OK | os.X_OK)

    def write(self, name: str, content: bytes) -> None:
        """Stores a content; where the folder cannot be written, which is said once, or is not used, nothing happens."""
        if self.problem():
            return
        try:
            make_private(self.folder)
            handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(content).digest() + content)
                os.replace(temporary, self.folder / name)
            except BaseException:  # an interrupt leaves no file either
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        except OSError as error:
            _say_unwritten(self.folder.parent, error.strerror or str(error))

    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for _, size, _ in self._entries())

    def tend(self) -> None:
        """`evict`, if nobody did so a short while ago."""
        mark = self.folder / _MARK
        with contextlib.suppress(OSError):
            if abs(time.time() - mark.stat().st_mtime) < _PAUSE:
                return
        self.evict()
        with contextlib.suppress(OSError):
            mark.touch(mode=0o600)

    def evict(self) -> None:
        """Beyond the limit, removes the least recently used files until an eighth of it is free."""
        entries = self._entries()
        total = sum(size for _, size, _ in entries)
        if total <= self.limit:
            return
        for _, size, path in sorted(entries):
            if total <= self.limit - self.limit // 8:
                return
            with contextlib.suppress(OSError):
                os.unlink(path)
                total -= size

    def clear(self) -> int:
        """Removes every file; gives how many."""
        removed = 0
        for _, _, path in self._entries():
            with contextlib.suppress(OSError):
                os.unlink(path)
                removed += 1
        with contextlib.suppress(OSError):
            os.unlink(self.folder / _MARK)
        return removed

    def _entries(self) -> list[tuple[float, int, str]]:
        """Time of last use, bytes and path of each file."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    if entry.name != _MARK:
                        found.append((status.st_mtime, status.st_size, entry.path))
        return found
