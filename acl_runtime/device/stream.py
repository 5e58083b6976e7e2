"""Streams: tasks in the order of their submission, on a worker thread of the stream's own."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from acl_runtime.device.codes import Code, DeviceError

_EXIT_WAIT_S = 2.0
_open: weakref.WeakSet[Stream] = weakref.WeakSet()
_numbers = itertools.count(1)
_running = threading.local()


def current_stream() -> int:
    """The number of the stream whose worker calls; 0 on other threads."""
    return getattr(_running, "number", 0)


class _Task(NamedTuple):
    run: Callable[[], None]
    is_marker: bool
    release: Callable[[], None]
    """Called once the stream has passed the task, whether it ran or not."""


class Stream:
    """A queue of tasks. The worker starts with the first one.

    A task that fails makes the stream drop what is queued behind it, until `synchronize` has told of the failure.
    Markers (events and waits for them) run all the same, so that nobody waits for ever.
    """

    def __init__(self, context: object) -> None:
        self.context = context
        self.number = next(_numbers)
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        """The worker waits here for a task, or for the end."""
        self._passed = threading.Condition(self._lock)
        """Whoever synchronises waits here for a count of finished tasks, which stands in `_targets`."""
        self._targets: list[int] = []
        self._tasks: deque[_Task] = deque()
        self._submitted = 0
        self._finished = 0
        self._failure: DeviceError | None = None
        self._worker: threading.Thread | None = None
        self._closed = False
        _open.add(self)

    def submit(
        self, task: Callable[[], None], marker: bool = False, release: Callable[[], None] = lambda: None
    ) -> None:
        """Queues a task. STREAM_CONTEXT if the stream is closed."""
        with self._lock:
            if self._closed:
                raise DeviceError(Code.STREAM_CONTEXT, "the stream is closed: its context was destroyed")
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="acl stream", daemon=True)
                self._worker.start()
            self._tasks.append(_Task(task, marker, release))
            self._submitted += 1
            self._filled.notify()

    def synchronize(self, timeout: float | None = None) -> None:
        """Waits until what is queued now has ended. Raises the first failure since the last call that told of one, or
        STREAM_SYNC_TIMEOUT after `timeout` seconds."""
        with self._lock:
            target = self._submitted
            if self._finished < target:
                self._targets.append(target)
                try:
                    if not self._passed.wait_for(lambda: self._finished >= target, timeout):
                        raise DeviceError(Code.STREAM_SYNC_TIMEOUT, f"the stream is not done after {timeout} s")
                finally:
                    self._targets.remove(target)
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def is_idle(self) -> bool:
        """Whether every task has ended."""
        with self._lock:
            return self._finished == self._submitted

    def close(self) -> None:
        """Lets queued tasks end and stops the worker. May be repeated."""
        with self._lock:
            self._closed = True
            self._filled.notify()
        self.join()

    def drop(self) -> None:
        """Stops the worker after the task that runs; of those behind it only markers are run."""
        with self._lock:
            self._closed = True
            dropped = [t for t in self._tasks if not t.is_marker]
            self._finished += len(dropped)
            self._tasks = deque(t for t in self._tasks if t.is_marker)
            for task in dropped:
                task.release()
            self._filled.notify()
            self._tell()

    def join(self, timeout: float | None = None) -> None:
        """Waits for the end of the worker of a stream that was closed or dropped."""
        worker = self._worker
        if worker is not None and worker is not threading.current_thread():
            worker.join(timeout)

    def _work(self) -> None:
        _running.number = self.number
        while True:
            with self._lock:
                while not self._tasks:
                    if self._closed:
                        return
                    self._filled.wait()
                task = self._tasks.popleft()
                skipped = self._failure is not None and not task.is_marker
            failure = None if skipped else _failure_of(task.run)
            task.release()
            del task  # it holds memory of the caller
            with self._lock:
                self._failure = self._failure or failure
                self._finished += 1
                self._tell()

    def _tell(self) -> None:
        """Wakes those whose tasks have ended."""
        if self._targets and min(self._targets) <= self._finished:
            self._passed.notify_all()


def _failure_of(task: Callable[[], None]) -> DeviceError | None:
    try:
        task()
    except DeviceError as error:
        return error
    except Exception as error:  # the worker must outlive any task
        return DeviceError(Code.RT_INTERNAL_ERROR, f"{type(error).__name__}: {error}")
    return None


def stop_workers() -> None:
    """Ends every worker. For the end of the process: a worker must not be in a kernel while the interpreter goes."""
    streams = list(_open)
    for stream in streams:
        stream.drop()
    for stream in streams:
        stream.join(_EXIT_WAIT_S)
