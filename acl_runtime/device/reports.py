"""Callbacks of streams and of video channels, called on the thread that has subscribed to them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.stream import Stream


@dataclass(eq=False)
class _Report:
    callback: Callable[[], None]
    owner: object
    done: threading.Event = field(default_factory=threading.Event)
    is_dropped: bool = False


@dataclass(eq=False)
class _Subscription:
    thread: int
    reports: set[_Report] = field(default_factory=set)


class Reports:
    """Which thread serves which streams and channels, and what waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscriptions: dict[object, _Subscription] = {}
        self._queues: dict[int, queue.SimpleQueue[_Report]] = {}

    def subscribe(self, thread: int, owner: object) -> None:
        """`owner` is a stream or a channel. STREAM_SUBSCRIBE if it has a subscriber."""
        with self._lock:
            if owner in self._subscriptions:
                raise DeviceError(Code.STREAM_SUBSCRIBE, "a thread has subscribed to it already")
            self._subscriptions[owner] = _Subscription(thread)
            self._queues.setdefault(thread, queue.SimpleQueue())

    def unsubscribe(self, thread: int, owner: object) -> None:
        """Ends a subscription; callbacks that were not called are dropped, and the stream waits for none of them."""
        with self._lock:
            subscription = self._subscriptions.get(owner)
            if subscription is None or subscription.thread != thread:
                raise DeviceError(Code.THREAD_SUBSCRIBE, "the thread has not subscribed to it")
            del self._subscriptions[owner]
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
            if self._put(report) and is_blocking:
                report.done.wait()

        stream.submit(deliver)

    def tell(self, callback: Callable[[], None], owner: object) -> None:
        """Queues a callback for the thread that has subscribed to `owner`, if there is one."""
        self._put(_Report(callback, owner))

    def wait(self, owner: object, timeout: float) -> None:
        """Waits until every callback of `owner` that is queued has been called, at most `timeout` seconds."""
        with self._lock:
            subscription = self._subscriptions.get(owner)
            waiting = list(subscription.reports) if subscription is not None else []
        end = time.monotonic() + timeout
        for report in waiting:
            report.done.wait(max(0.0, end - time.monotonic()))

    def _put(self, report: _Report) -> bool:
        with self._lock:
            subscription = self._subscriptions.get(report.owner)
            if subscription is not None:
                subscription.reports.add(report)
                self._queues[subscription.thread].put(report)
            return subscription is not None

    def process(self, timeout: float | None) -> None:
        """Calls one callback on this thread. THREAD_SUBSCRIBE if it serves no stream, REPORT_TIMEOUT if none came."""
        with self._lock:
            waiting = self._queues.get(threading.get_ident())
        if waiting is None:
            raise DeviceError(Code.THREAD_SUBSCRIBE, "this thread has subscribed to nothing")
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
                subscription = self._subscriptions.get(report.owner)
                if subscription is not None:
                    subscription.reports.discard(report)
