"""Handles: numbers that stand for objects of the runtime."""

from __future__ import annotations

import threading
from typing import TypeVar

from acl_runtime.device import Code, DeviceError

_T = TypeVar("_T")
_FIRST = 1 << 16
_STEP = 64


class Handles:
    """Numbers never come back, so that one of an object that is gone is known as such."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[int, object] = {}
        self._numbers: dict[int, int] = {}
        self._next = _FIRST

    def of(self, item: object) -> int:
        """The handle of an object; it gets one at the first call."""
        with self._lock:
            number = self._numbers.get(id(item))
            if number is None:
                number = self._next
                self._next += _STEP
                self._objects[number] = item
                self._numbers[id(item)] = number
            return number

    def get(self, handle: int, kind: type[_T]) -> _T:
        """INVALID_PARAM if the handle stands for nothing, or for something of another kind."""
        item = self._objects.get(handle)
        if not isinstance(item, kind):
            state = "is null" if not handle else "is of another kind" if item else "does not exist, or no longer"
            raise DeviceError(Code.INVALID_PARAM, f"the {kind.__name__} handle {handle:#x} {state}")
        return item

    def remove(self, handle: int, kind: type[_T]) -> _T:
        """Like `get`, and the handle stands for nothing afterwards."""
        with self._lock:
            item = self.get(handle, kind)
            del self._objects[handle], self._numbers[id(item)]
            return item
