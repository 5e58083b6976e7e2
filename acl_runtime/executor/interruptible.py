"""A native call of the main thread that lets Python's signal handlers run meanwhile.

Python runs handlers on its main thread, between its own steps only. So the call is made by a thread for this once, and
the main thread waits in a way that signals end. Nothing of the program's handlers is changed.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Sequence

from tensor_types.interrupts import note_handler


class Interruptible:
    """One call of `function`, which must not raise, on another thread."""

    def __init__(self, function: Callable[..., int], arguments: Sequence[int]) -> None:
        self._function = function
        self._arguments = arguments
        self._result = 0
        self._claim = threading.Lock()
        """Taken by the thread that calls, or by an interrupt that came before it: then nobody calls."""
        self._done = threading.Lock()
        self._is_over = False

    def call(self, stop: Callable[[], object]) -> int:
        """The function's result. What a signal handler raises is raised as soon as the call is over, which `stop` is to
        bring about; `stop` may be called at any time after the call began."""
        self._done.acquire()
        try:
            _thread.start_new_thread(self._work, ())
            while not self._done.acquire(timeout=0.2):  # not every system lets a signal end a wait without a limit
                pass
        except _thread.error:  # no thread to be had
            self._work()
            self._wait(stop)
        except BaseException as error:
            note_handler(error)
            if not self._claim.acquire(blocking=False):
                self._wait(stop)
            raise
        return self._result

    def _work(self) -> None:
        if self._claim.acquire(blocking=False):
            self._result = self._function(*self._arguments)
            self._is_over = True
            self._done.release()

    def _wait(self, stop: Callable[[], object]) -> None:
        """Until the call is over, whatever else handlers raise: its memory is in use."""
        while not self._is_over:
            try:
                stop()
                self._done.acquire(timeout=1)
            except BaseException:  # noqa: S112 (the first one is raised)
                continue
