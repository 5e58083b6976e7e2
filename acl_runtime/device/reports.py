"""Callbacks of streams: launched in a stream, called on the thread that has subscribed to it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.stream import Stream


@dataclass(eq=False)
class _Report:
    callback: Callable[[], None]
    stream: Stream
    done: threading.Event = field(default_factory=threading.Event)
    is_dropped: bool = False


@dataclass(eq=False)
class _Subscription:
    thread: int
    reports: set[_Report] = field(default_factory=set)


class Reports:
    """Which thread serves which streams, and what waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscriptions: dict[Stream, _Subscription] = {}
        self._queues: dict[int, queue.SimpleQueue[_Report]] = {}

    def subscribe(self, thread: int, stream: Stream) -> None:
        """STREAM_SUBSCRIBE if the stream has a subscriber."""
        with self._lock:
            if stream in self._subscriptions:
                raise DeviceError(Code.STREAM_SUBSCRIBE, "a thread has subscribed to the stream already")
            self._subscriptions[stream] = _Subscription(thread)
            self._queues.setdefault(thread, queue.SimpleQueue())

    def unsubscribe(self, thread: int, stream: Stream) -> None:
        """Ends a subscription; callbacks that were not called are dropped, and the stream waits for none of them."""
        with self._lock:
            subscription = self._subscriptions.get(stream)
            if subscription is None or subscription.thread != thread:
                raise DeviceError(Code.THREAD_SUBSCRIBE, "the thread has not subscribed to the stream")
            del self._subscriptions[stream]
            if all(s.thread != thread for s in self._subscriptions.values()):
                del self._queues[thread]
            for report in subscription.reports:
                report.is_dropped = True
                report.done.set()

    def launch(self, callback: Callable[[], None], stream: Stream, is_blocking: bool) -> None:
        """Queues a callback in the stream. STREAM_NO_CB_REG if nobody has subscribed to it."""
        report = _Report(callback, stream)
        with self._lock:
            if stream not in self._subscriptions:
                raise DeviceError(Code.STREAM_NO_CB_REG, "no thread has subscribed to the stream")

        def deliver() -> None:
            with self._lock:
                subscription = self._subscriptions.get(stream)
                if subscription is None:
                    return
                subscription.reports.add(report)
                self._queues[subscription.thread].put(report)
            if is_blocking:
                report.done.wait()

        stream.submit(deliver)

    def process(self, timeout: float | None) -> None:
        """Calls one callback on this thread. THREAD_SUBSCRIBE if it serves no stream, REPORT_TIMEOUT if none came."""
        with self._lock:
            waiting = self._queues.get(threading.get_ident())
        if waiting is None:
            raise DeviceError(Code.THREAD_SUBSCRIBE, "this thread has subscribed to no stream")
        try:
            report = waiting.get(timeout=timeout)
        except queue.Empty:
            raise DeviceError(Code.REPORT_TIMEOUT, f"no callback within {timeout} s") from None
        try:
            if not report.is_dropped:
                report.callback()
        finally:
            report.done.set()
            with self._lock:
                subscription = self._subscriptions.get(report.stream)
                if subscription is not None:
                    subscription.reports.discard(report)
