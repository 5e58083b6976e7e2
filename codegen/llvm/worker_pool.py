"""The compile workers of this process: started when first needed, kept warm, ended with it.

A worker belongs to one host class. It is taken from the pool for a while and given back; one that dies, answers
nonsense or takes too long is ended, and the next one that is asked for is new. A worker that nobody asks ends after a
while, so that a process that serves models does not carry compilers along.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from codegen.llvm.worker import IDLE_SECONDS, IMAGE, LARGEST_FRAME, ProtocolError, receive_frame, send_frame
from tensor_types.errors import EnvironmentProblem

TIMEOUT_VARIABLE = "OPENATC_COMPILE_TIMEOUT"
_DEFAULT_SECONDS = 300.0
_LIBRARIES = ("llvmlite", "numpy", "ml_dtypes")
_ROOT = Path(__file__).resolve().parents[2]
_REPORTED = 2000
"""Most characters of a dead worker's last words."""


class WorkerFailed(Exception):
    """A worker could not be asked, and why; the program may be at fault or the machine."""


class WorkerEnded(WorkerFailed):
    """A worker that had been idle had ended by itself when it was asked: its parent had been held up in between."""


def compile_seconds() -> float:
    """How long one program may take: OPENATC_COMPILE_TIMEOUT, else five minutes. EnvironmentProblem for no number."""
    text = os.environ.get(TIMEOUT_VARIABLE, "")
    try:
        seconds = float(text) if text else _DEFAULT_SECONDS
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 1e6:
        raise EnvironmentProblem(
            f"{TIMEOUT_VARIABLE} is {text!r}, which is no number of seconds", remedy="set it to 300, or unset it"
        )
    return seconds


def worker_command(descriptor: int, target: str) -> list[str]:
    """How a worker is started: isolated, with the folders that its imports need and no others."""
    folders = dict.fromkeys([str(_ROOT), *map(_folder_of, _LIBRARIES)])
    script = str(Path(__file__).with_name("worker.py"))
    return [sys.executable, "-I", "-S", script, str(descriptor), target, *folders]


def _folder_of(library: str) -> str:
    """Where this process finds a library."""
    spec = importlib.util.find_spec(library)
    if spec is None or spec.origin is None:
        raise EnvironmentProblem(f"the library {library} is missing", remedy="install openatc again")
    return str(Path(spec.origin).resolve().parents[1])


class Worker:
    """One process and the socket to it."""

    def __init__(self, target: str) -> None:
        ours, theirs = socket.socketpair()
        self.stream = ours
        self.idle_since = time.monotonic()
        # Its last words, for the message if it dies. The file has no name, so nothing can be left behind.
        self.words = tempfile.TemporaryFile()  # noqa: SIM115
        with theirs:
            self.process = subprocess.Popen(
                worker_command(theirs.fileno(), target),
                stdin=subprocess.DEVNULL, stdout=self.words, stderr=self.words, pass_fds=[theirs.fileno()],
                process_group=0,  # an interrupt from the terminal is for the parent, which ends its workers
            )  # fmt: skip

    def ask(self, program: bytes, seconds: float) -> bytes:
        """The answer to a program: its status and the rest. WorkerFailed; then the worker is of no more use."""
        if len(program) > LARGEST_FRAME:
            raise WorkerFailed("the program is too long")
        deadline = time.monotonic() + seconds
        try:
            self.stream.settimeout(seconds)
            send_frame(self.stream, program)
            answer = receive_frame(self.stream, deadline)
        except TimeoutError:
            raise WorkerFailed(f"it takes longer than {seconds:g} s ({TIMEOUT_VARIABLE})") from None
        except (ProtocolError, OSError) as error:
            why = self._why(error)
            raise (WorkerEnded if self.process.poll() == 0 else WorkerFailed)(why) from None
        if not answer:
            raise WorkerFailed("the compile worker gave an empty answer")
        return answer

    def _why(self, error: Exception) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        status = self.process.poll()
        if status is None:
            return f"the compile worker breaks its protocol: {error}"
        said = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        self.words.seek(0)
        words = self.words.read()[-_REPORTED:].decode("utf-8", "replace").strip()
        return f"the compile worker died ({said})" + (f": {words}" if words else "")

    def end(self) -> None:
        """Ends the process; cheap to repeat."""
        self.stream.close()
        self.process.kill()
        self.process.wait()
        self.words.close()


class WorkerPool:
    """Warm workers by host class."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """No workers, and a lock that nobody holds."""
        self._lock = threading.Lock()
        self._idle: dict[str, list[Worker]] = {}
        self._all: set[Worker] = set()

    def take(self, target: str) -> Worker:
        """An idle worker, or a new one. OSError if the system starts no process."""
        fresh = time.monotonic() - IDLE_SECONDS / 2
        with self._lock:
            ready = self._idle.pop(target, [])
            stale = [w for w in ready if w.idle_since < fresh]
            kept = self._idle[target] = [w for w in ready if w.idle_since >= fresh]
            worker = kept.pop() if kept else None
        for old in stale:
            self.discard(old)
        return worker or self.start(target)

    def warm_up(self, target: str) -> None:
        """Has a worker import what it needs while the caller finds out what it shall compile."""
        with contextlib.suppress(OSError):  # whoever needs it will say so
            self.give_back(target, self.take(target))

    def give_back(self, target: str, worker: Worker) -> None:
        """The worker waits for the next one who takes it."""
        worker.idle_since = time.monotonic()
        with self._lock:
            self._idle.setdefault(target, []).append(worker)

    def discard(self, worker: Worker) -> None:
        """Ends a worker that is of no more use."""
        with self._lock:
            self._all.discard(worker)
        worker.end()

    def end_all(self) -> None:
        """Ends all, busy ones too."""
        with self._lock:
            ending, self._all, self._idle = self._all, set(), {}
        for worker in ending:
            worker.end()

    def forget(self) -> None:
        """In a forked child: the workers are the parent's, which alone may speak with them."""
        for worker in self._all:
            worker.stream.close()
            worker.words.close()
            worker.process.returncode = 0  # no child of this process
        self.reset()

    def start(self, target: str) -> Worker:
        """A new worker. OSError as `take`."""
        worker = Worker(target)
        with self._lock:
            self._all.add(worker)
        return worker


POOL = WorkerPool()
atexit.register(POOL.end_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=POOL.forget)


def answer_of(answer: bytes) -> bytes | dict[str, object]:
    """The image of an answer, or what was raised instead."""
    if answer[:1] == IMAGE:
        return answer[1:]
    report = json.loads(answer[1:])
    assert isinstance(report, dict)
    return report
