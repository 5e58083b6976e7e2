"""Ends a command that is asked to end while a kernel runs: Python looks at signals between its own steps only, and one
launch may be hours of work.

    end_promptly({signal.SIGINT: 130, signal.SIGTERM: 143}, say)    # once, on the main thread of a command

Each signal is handled as before wherever Python code runs. A thread of its own looks on: if a kernel is under way
for a second after a signal, it runs what is registered for the end of the process (folders for a while go with it), and
ends it with that signal's code. Programs that use the runtime decide for themselves; nothing of this is theirs.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping

_SECONDS = 1.0
"""What Python code has to end a command by itself."""
_LAUNCHES = tuple(os.path.join("acl_runtime", "executor", name) for name in ("run.py", "interruptible.py"))
"""Their functions are the only ones that call kernels."""


def end_promptly(codes: Mapping[int, int], say: Callable[[], object] = lambda: None) -> None:
    """Ends this process with `codes[signal]` about a second after such a signal, if a kernel keeps it that long; `say`
    tells the user. Nothing where signals are not to be had: off the main thread."""
    with contextlib.suppress(ValueError, OSError):
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        threading.Thread(target=_watch, args=(reader, dict(codes), say), name="interrupts", daemon=True).start()


_MARK = "raised_by_a_signal_handler"


def note_handler(error: BaseException) -> None:
    """A signal handler of the program raised it while the main thread waited for a run."""
    with contextlib.suppress(AttributeError):  # an exception may have slots alone
        setattr(error, _MARK, True)


def is_of_a_handler(error: BaseException) -> bool:
    """Whether `note_handler` was told so: then it is no fault of the product."""
    return hasattr(error, _MARK)


def _watch(reader: int, codes: Mapping[int, int], say: Callable[[], object]) -> None:
    while numbers := os.read(reader, 64):
        asked = [n for n in numbers if n in codes]
        if asked and _kernel_keeps_running():
            with contextlib.suppress(Exception):
                say()
                sys.stdout.flush()
            with contextlib.suppress(Exception):
                atexit._run_exitfuncs()
            os._exit(codes[asked[0]])


def _kernel_keeps_running() -> bool:
    """True if for a while every look finds a thread inside a launch; the process may end meanwhile."""
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        if not any(f.f_code.co_filename.endswith(_LAUNCHES) for f in sys._current_frames().values()):
            return False
        time.sleep(0.05)
    return True
