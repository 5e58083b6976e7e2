"""acl.util: addresses of Python objects, objects over addresses, threads."""

from __future__ import annotations

import ctypes
import math
import threading
import warnings
import weakref
from typing import Any

import numpy as np

from acl._call import anything, function, integer, plain, valued, word
from acl._process import memory
from acl_runtime import host_memory

__all__ = [
    "bytes_to_ptr",
    "numpy_contiguous_to_ptr",
    "numpy_to_ptr",
    "ptr_to_bytes",
    "ptr_to_numpy",
    "start_thread",
    "stop_thread",
]

_NUMPY_TYPES = {
    0: "?", 1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "l", 8: "L", 9: "q", 10: "Q", 11: "f", 12: "d",
    14: "F", 15: "D", 23: "e",
}  # fmt: skip

# CPython has each of these objects once: whoever wrote into one would change it for the whole program.
_SHORT_SLOT = 16
# Addresses of objects that were given out, so that work in flight can keep its object: arrays by weak reference, bytes
# (which have none) by their size.
_arrays: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()
_given: dict[int, int] = {}
_MOST_GIVEN = 4096
_HEADER = bytes.__basicsize__ - 1  # references, type, size, hash; then the bytes
_short: np.ndarray = np.zeros((257, _SHORT_SLOT), np.uint8)


def bytes_to_ptr(value: bytes, /) -> int:
    """The address of the bytes; what is written there is seen in the object, except for 0 or 1 bytes."""
    if not isinstance(value, bytes):
        raise ValueError(f"acl.util.bytes_to_ptr: bytes expected, not {type(value).__name__}")
    if len(value) < 2:
        slot = _short[value[0] if value else 256]
        slot[0] = value[0] if value else 0
        return int(slot.ctypes.data)
    address = ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p).value or 0
    _given[address] = len(value)
    if len(_given) > _MOST_GIVEN:
        _given.pop(next(iter(_given)), None)
    return address


def numpy_to_ptr(array: np.ndarray, /) -> int:
    """The address of an array's data."""
    if not isinstance(array, np.ndarray):
        raise ValueError(f"acl.util.numpy_to_ptr: an array expected, not {type(array).__name__}")
    warnings.warn("acl.util.numpy_to_ptr is deprecated: use acl.util.bytes_to_ptr", DeprecationWarning, stacklevel=2)
    if not array.flags.c_contiguous:
        warnings.warn("the array is not contiguous", stacklevel=2)
    _arrays[array.ctypes.data] = array
    return array.ctypes.data


def numpy_contiguous_to_ptr(array: np.ndarray, /) -> tuple[int, np.ndarray]:
    """The address of an array's data, and the array: a copy if the one given is not contiguous."""
    if not isinstance(array, np.ndarray):
        raise ValueError(f"acl.util.numpy_contiguous_to_ptr: an array expected, not {type(array).__name__}")
    array = np.ascontiguousarray(array)
    _arrays[array.ctypes.data] = array
    return array.ctypes.data, array


def owner_of(address: int, nbytes: int) -> object | None:
    """The object over whose bytes work is to be queued, if its address came from here: a reference keeps it alive.

    The caller has said that it is alive now; that the memory is still laid out as this very object is checked.
    """
    array = _arrays.get(address)
    if array is not None and array.nbytes >= nbytes:
        return array
    size = _given.get(address)
    start = address - _HEADER
    head = np.zeros(_HEADER // 8, np.uint64)
    if size is None or size < nbytes or not host_memory.copy(head.ctypes.data, start, _HEADER):
        return None
    return ctypes.cast(start, ctypes.py_object).value if (head[1], head[2]) == (id(bytes), size) else None


@plain(word, word, failure=None)
def ptr_to_bytes(address: int, size: int) -> bytes:
    """A copy of memory of any kind; None if there is none at the address."""
    return memory().bytes(address, size).tobytes()


def _shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple):
        raise TypeError(f"tuple expected, not {type(value).__name__}")
    return tuple(word(size) for size in value)


def _numpy_type(value: Any) -> np.dtype:
    if integer(value) not in _NUMPY_TYPES:
        raise TypeError(f"there is no type number {value}")
    return np.dtype(_NUMPY_TYPES[value])


@plain(word, _shape, _numpy_type, failure=None)
def ptr_to_numpy(address: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array over the memory, which must stay. The type is numpy's number of it. None if there is no such memory."""
    return memory().array(address, math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


class _Thread(threading.Thread):
    def __init__(self, body: Any, argument: Any) -> None:
        super().__init__(daemon=True)
        self._body, self._argument = body, argument
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            if self._argument is None:
                self._body()
            else:
                self._body(self._argument)
        except BaseException as error:  # `stop_thread` tells of it
            self.error = error


_threads: dict[int, list[_Thread]] = {}
"""By id, oldest first: the system gives the id of a thread that has ended to the next one."""
_threads_lock = threading.Lock()


@valued(function, anything)
def start_thread(body: Any, argument: Any) -> int:
    """Starts a thread that calls `body(argument)`, or `body()` for None; gives its id."""
    thread = _Thread(body, argument)
    with _threads_lock:
        thread.start()
        assert thread.ident is not None
        _threads.setdefault(thread.ident, []).append(thread)
    return thread.ident


def stop_thread(thread: int, /) -> int:
    """Waits for the end of a thread. RuntimeError if it ended with an exception; 100000 for an unknown id."""
    with _threads_lock:
        items = _threads.get(word(thread))
        if not items:
            return 100000
        item = items.pop(0)
        if not items:
            del _threads[word(thread)]
    item.join()
    if item.error is not None:
        raise RuntimeError(f"acl.util.stop_thread: the thread failed: {item.error!r}") from item.error
    return 0
