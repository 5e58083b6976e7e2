"""Compiles many programs at once: llvmlite holds a global lock, so they are compiled in processes (`worker_pool`).

A worker proves each program sound, lowers it once and gives its kernel image; the parent neither parses nor lowers.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from codegen.llvm.worker_pool import POOL, WorkerEnded, WorkerFailed, answer_of, compile_seconds
from codegen.tile.verifier import VerifyError
from tensor_types.errors import InvalidModel, OpenAtcError, ResourceLimit

_BYTES_PER_WORKER = 16 << 10
"""Another worker pays off from about this much text of programs on: it takes a fifth of a second to start, in which one
compiles about as much."""


class CompileError(OpenAtcError):
    """A tile program could not be compiled, or its worker died or took too long."""

    default_code = "E13003"


_RAISED: dict[str, type[OpenAtcError]] = {c.__name__: c for c in (InvalidModel, ResourceLimit)}


def worker_count(programs: Sequence[bytes]) -> int:
    """How many workers compile these programs: at most one a core, and one a program."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, len(programs), -(-sum(map(len, programs)) // _BYTES_PER_WORKER)))


def compile_many(programs: Sequence[bytes], target: str, workers: int | None = None) -> list[bytes]:
    """Kernel images of serialised programs for a host class, in order; the bytes do not depend on `workers` (None: by
    their number and the cores). Raises as `Compilation.result`."""
    return Compilation(programs, target, workers).result()


class Compilation:
    """Programs that are being compiled in the background; `keep` gets each program with its image as soon as it is
    there, on a thread of the compilation."""

    def __init__(
        self, programs: Sequence[bytes], target: str, workers: int | None = None,
        keep: Callable[[bytes, bytes], None] = lambda program, image: None,
    ) -> None:  # fmt: skip
        self.programs, self._keep = programs, keep
        self._target = target
        self._seconds = compile_seconds()
        self._results: list[bytes | OpenAtcError | None] = [None] * len(programs)
        self._queue = iter(range(len(programs)))
        self._lock = threading.Lock()
        count = min(workers or worker_count(programs), len(programs))
        self._threads = [threading.Thread(target=self._feed, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def result(self) -> list[bytes]:
        """The images in the order of the programs, once all are there.

        InvalidModel or VerifyError for a program that is not sound, CompileError for one that could not be compiled:
        the first in order that failed.
        """
        try:
            for thread in self._threads:
                while thread.is_alive():
                    thread.join(0.2)  # not every system lets a signal end a wait without a limit
        except BaseException:
            with self._lock:
                self._queue = iter(())  # an interrupt: no program is begun any more
            raise
        images = []
        for number, result in enumerate(self._results):
            if not isinstance(result, bytes):
                raise result or CompileError("no worker compiled it", where={"op": _name(self.programs[number])})
            images.append(result)
        return images

    def _feed(self) -> None:
        """Asks one worker after the other until no program is left."""
        worker = None
        try:
            while True:
                with self._lock:
                    number = next(self._queue, None)
                if number is None:
                    return
                program = self.programs[number]
                try:
                    worker = worker or POOL.take(self._target)
                    try:
                        said = worker.ask(program, self._seconds)
                    except WorkerEnded:
                        POOL.discard(worker)
                        worker = POOL.start(self._target)
                        said = worker.ask(program, self._seconds)
                    answer = answer_of(said)
                    if isinstance(answer, bytes):
                        self._keep(program, answer)
                    self._results[number] = answer if isinstance(answer, bytes) else _error(answer, program)
                except (WorkerFailed, OSError) as error:
                    reason = f"no compile worker starts: {error}" if isinstance(error, OSError) else str(error)
                    self._results[number] = CompileError(reason, where={"op": _name(program)})
                    if worker is not None:
                        POOL.discard(worker)
                        worker = None
        finally:
            if worker is not None:
                POOL.give_back(self._target, worker)


def _error(report: Mapping[str, Any], program: bytes) -> OpenAtcError:
    """The error that a worker reports, of the kind that it raised."""
    message, where = str(report["message"]), report.get("where") or {"op": _name(program)}
    if report["kind"] == "VerifyError":
        return VerifyError(where["kernel"], report["statement"], message)
    if report["kind"] in _RAISED:
        kind = _RAISED[report["kind"]]
        return kind(message, code=report["code"], where=where, remedy=report["remedy"])
    return CompileError(f"{report['kind']}: {message}", where={"op": _name(program)})


def _name(program: bytes) -> str:
    return program.split(b"{", 1)[0].decode("utf-8", "replace").strip()[:80]
