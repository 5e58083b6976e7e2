"""Compiles many programs at once: llvmlite holds a global lock, so the workers are processes of our own module."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from codegen.llvm.compile import compile_program
from codegen.llvm.host_class import host_class
from codegen.llvm.worker import read_frame, write_frame
from tensor_types.errors import OpenAtcError

_FEW = 4
"""Starting workers pays off from about this many programs on."""


class CompileError(OpenAtcError):
    """A tile program could not be compiled, or its worker died."""

    default_code = "E13003"


def _name(program: bytes) -> str:
    return program.split(b"{", 1)[0].decode("utf-8", "replace").strip()[:80]


def compile_many(programs: Sequence[bytes], target: object, workers: int | None = None) -> list[bytes]:
    """Objects of serialised programs, in order; the bytes do not depend on `workers` (None: one per core).

    CompileError names the first program, in order, that failed.
    """
    count = min(workers or os.cpu_count() or 1, len(programs))
    if count <= 1 or (workers is None and len(programs) < _FEW):
        return [_compile_here(p, target) for p in programs]
    results: list[bytes | CompileError | None] = [None] * len(programs)
    queue = iter(range(len(programs)))
    lock = threading.Lock()
    threads = [
        threading.Thread(target=_feed, args=(host_class(target).name, programs, results, queue, lock))
        for _ in range(count)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)  # not every system lets a signal end a wait without a limit
    except BaseException:  # an interrupt: the threads end after the program that they are at
        with lock:
            deque(queue, maxlen=0)
        raise
    objects = []
    for number, result in enumerate(results):
        if not isinstance(result, bytes):
            raise result or CompileError("no worker compiled it", where={"op": _name(programs[number])})
        objects.append(result)
    return objects


def _compile_here(program: bytes, target: object) -> bytes:
    try:
        return compile_program(program, target)
    except Exception as error:
        raise CompileError(f"{type(error).__name__}: {error}", where={"op": _name(program)}) from error


def _feed(target: str, programs: Sequence[bytes], results: list[bytes | CompileError | None], queue: object,
          lock: threading.Lock) -> None:  # fmt: skip
    """Drives one worker process; starts another if it dies."""
    process: subprocess.Popen[bytes] | None = None
    try:
        while True:
            with lock:
                number = next(queue, None)  # type: ignore[call-overload]
            if number is None:
                return
            process = process or _start(target)
            results[number] = _ask(process, programs[number])
            if process.poll() is not None:
                process = None
    finally:
        if process is not None:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.close()
            process.wait()
            process.stdout.close()


def _start(target: str) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
    return subprocess.Popen(
        [sys.executable, "-m", "codegen.llvm.worker", target],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path},
        process_group=0,  # an interrupt from the terminal is for the parent, which ends its workers
    )  # fmt: skip


def _ask(process: subprocess.Popen[bytes], program: bytes) -> bytes | CompileError:
    assert process.stdin is not None and process.stdout is not None
    place = {"op": _name(program)}
    try:
        write_frame(process.stdin, program)
        status = process.stdout.read(1)
        answer = read_frame(process.stdout) if status else None
    except OSError:
        answer = None
    if answer is None:
        process.wait()
        return CompileError(f"the compile worker died (exit status {process.returncode})", where=place)
    return answer if status == b"\0" else CompileError(answer.decode("utf-8", "replace"), where=place)
