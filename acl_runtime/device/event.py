"""Events: marks in streams that others wait for and that carry a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import MappingProxyType

from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.stream import Stream


class _Mark:
    """One record of an event: done when the stream has come to it."""

    def __init__(self, clock: Mapping[int, int]) -> None:
        self.done = threading.Event()
        self.time_ns = 0
        self.clock = clock

    def complete(self) -> None:
        self.time_ns = time.perf_counter_ns()
        self.done.set()

    def wait(self) -> None:
        self.done.wait()


class Event:
    """An event. Recording it again forgets the mark before; who waits for that one goes on waiting for that one.

    `is_extended`: made by `create_event_ex_with_flag`; such an event counts as complete before its first record.
    """

    def __init__(self, is_extended: bool = False) -> None:
        self.is_extended = is_extended
        self._mark: _Mark | None = None

    def record(self, stream: Stream, clock: Mapping[int, int] = MappingProxyType({})) -> None:
        """Marks the end of what is queued. `clock` is what `checks` knows of it."""
        mark = _Mark(clock)
        stream.submit(mark.complete, marker=True)
        self._mark = mark

    @property
    def clock(self) -> Mapping[int, int]:
        """That of the last record."""
        return self._mark.clock if self._mark is not None else {}

    def reset(self) -> None:
        """Forgets the mark. EVENT_NOT_COMPLETE if it is not done."""
        if self._mark is not None and not self._mark.done.is_set():
            raise DeviceError(Code.EVENT_NOT_COMPLETE, "the event is not complete")
        self._mark = None

    def is_complete(self) -> bool:
        mark = self._mark
        return self.is_extended if mark is None else mark.done.is_set()

    def delay(self, stream: Stream) -> None:
        """Makes later tasks of `stream` wait for the mark; an event that was never recorded delays nothing."""
        mark = self._mark
        if mark is not None:
            stream.submit(mark.wait, marker=True)

    def synchronize(self, timeout: float | None = None) -> None:
        """Waits for the mark. EVENT_SYNC_TIMEOUT after `timeout` seconds."""
        mark = self._mark
        if mark is not None and not mark.done.wait(timeout):
            raise DeviceError(Code.EVENT_SYNC_TIMEOUT, f"the event is not complete after {timeout} s")

    @property
    def time_ns(self) -> int:
        """When the stream came to the mark, in ns of a monotonic clock. EVENT_TIMESTAMP_INVALID if it did not yet."""
        mark = self._mark
        if mark is None or not mark.done.is_set():
            raise DeviceError(Code.EVENT_TIMESTAMP_INVALID, "the event is not recorded or not complete")
        return mark.time_ns


def elapsed_ms(start: Event, end: Event) -> float:
    """Milliseconds between two complete events. EVENT_TIMESTAMP_REVERSAL if the end comes first."""
    span = end.time_ns - start.time_ns
    if span < 0:
        raise DeviceError(Code.EVENT_TIMESTAMP_REVERSAL, "the end event was recorded before the start event")
    return span / 1e6
