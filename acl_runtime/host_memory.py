"""Plain host memory of which nobody keeps books: copied by system calls that fail where a pointer would kill.

On Linux a process may read itself by `process_vm_readv`, which tells of unreadable sources and unwritable targets;
where that is not allowed, and on other systems, bytes go through a pipe, whose `read` and `write` tell as much.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from typing import Any

_CHUNK = 1 << 16
"""Bytes that a pipe takes at once."""
_TOP = 1 << 64


class _Range(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def _function(name: str, result: Any, *arguments: Any) -> Any:
    try:
        found = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (AttributeError, OSError, TypeError):
        return None
    found.argtypes, found.restype = arguments, result
    return found


_SSIZE = ctypes.c_ssize_t
_range = ctypes.POINTER(_Range)
_readv = _function(
    "process_vm_readv", _SSIZE, ctypes.c_int, _range, ctypes.c_ulong, _range, ctypes.c_ulong, ctypes.c_ulong
)
_write = _function("write", _SSIZE, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
_read = _function("read", _SSIZE, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
_pipe_lock = threading.Lock()


def copy(target: int, source: int, nbytes: int) -> bool:
    """Copies between any addresses; False if a byte of the source is not readable or one of the target not writable.
    A target may then hold a part."""
    if max(target, source) + nbytes > _TOP:
        return False
    done = 0
    while done < nbytes:
        count = _copy_some(target + done, source + done, nbytes - done)
        if count <= 0:
            return False
        done += count
    return True


def _copy_some(target: int, source: int, nbytes: int) -> int:
    if _readv is not None:
        here, there = _Range(target, nbytes), _Range(source, nbytes)
        count = int(_readv(os.getpid(), ctypes.byref(here), 1, ctypes.byref(there), 1, 0))
        if count >= 0 or ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM, errno.EINVAL):
            return count
    return _through_a_pipe(target, source, min(nbytes, _CHUNK))


def _through_a_pipe(target: int, source: int, nbytes: int) -> int:
    if _write is None or _read is None:  # no POSIX system: nothing to ask
        ctypes.memmove(target, source, nbytes)
        return nbytes
    with _pipe_lock:
        exit_, entry = os.pipe()
        try:
            written = int(_write(entry, source, nbytes))
            return int(_read(exit_, target, written)) if written > 0 else written
        finally:
            os.close(exit_)
            os.close(entry)


def access(address: int, nbytes: int) -> str:
    """'rw', 'r' or '' for what may be done with every byte of a range. Without /proc/self/maps, by copying it."""
    if not nbytes:
        return "rw"
    try:
        with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
            lines = maps.readlines()
    except OSError:
        return "rw" if copy(ctypes.addressof(ctypes.create_string_buffer(1)), address, 1) else ""
    position, end, allowed = address, address + nbytes, "rw"
    for line in lines:
        bounds, mode = line.split(" ", 2)[:2]
        first, last = (int(n, 16) for n in bounds.split("-"))
        if first <= position < last:
            if mode[0] != "r":
                return ""
            allowed = allowed if mode[1] == "w" else "r"
            position = last
            if position >= end:
                return allowed
    return ""
