"""Kernels of a node on made-up data of the model's sizes, and which of two is faster."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from acl_runtime.kernels import Kernel, ProgramCompilation, load_kernels
from graph_opt.plan.records import KernelRecord
from tensor_types.dims import evaluate

_SHORTEST = 1e-3
"""Seconds of one turn at least; short kernels run several times in it."""
_CALL = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)
_ALIGNMENT = 64


class Runnable:
    """The tasks of a node, ready to run on one thread.

    All sizes are numbers. Memory that a name stands for in several tasks is shared. All data is 0: indices are in
    range, and no number is denormal, which alone would take longer. ValueError if a task ends with a status.
    """

    def __init__(self, records: Sequence[KernelRecord], host: str) -> None:
        kernels, _ = load_kernels([r.program for r in records], host)
        self._kernels = kernels
        self._memory: dict[object, np.ndarray] = {}
        self._calls: list[Callable[[], int]] = []
        self._kept: list[np.ndarray] = []
        for record, kernel in zip(records, kernels, strict=True):
            self._calls.append(self._call(record, kernel))
        if any(call() for call in self._calls):
            raise ValueError("a task does not run on made-up data")
        self.seconds = self._once()

    def _call(self, record: KernelRecord, kernel: Kernel) -> Callable[[], int]:
        facts = kernel.facts
        dims = np.array([evaluate(d, {}) for d in record.dims], np.int64)
        sizes: Mapping[str, int] = {name: int(v) for (name, _, _), v in zip(facts.dims, dims, strict=True)}
        rows = []
        for number, (operand, (_, size)) in enumerate(zip(record.operands, facts.params, strict=True)):
            form = (str(operand.packing), operand.permute, operand.reshape)
            key = (operand.value, form) if operand.value is not None else (record.program, number)
            rows.append(self._bytes(key, evaluate(size, sizes)))
        args = np.array([row.ctypes.data for row in rows], np.uint64)
        scratch = self._bytes("scratch of " + record.program, facts.scratch_bytes)
        self._kept += [args, dims]
        code, grid = _CALL(kernel.address), evaluate(facts.grid, sizes)
        args_at, dims_at, scratch_at = args.ctypes.data, dims.ctypes.data, scratch.ctypes.data
        return lambda: int(code(args_at, dims_at, 0, grid, scratch_at))

    def _bytes(self, key: object, size: int) -> np.ndarray:
        """Aligned memory that belongs to the key."""
        if key not in self._memory or self._memory[key].size < size:
            raw = np.zeros(size + _ALIGNMENT, np.uint8)
            start = -raw.ctypes.data % _ALIGNMENT
            self._memory[key] = raw[start : start + size]
        return self._memory[key]

    def _once(self) -> float:
        started = time.thread_time()
        for call in self._calls:
            call()
        return time.thread_time() - started

    def turn(self) -> float:
        """Seconds of the thread for one run, over a turn of about a millisecond at least."""
        count = max(1, round(_SHORTEST / max(self.seconds, 1e-7)))
        started = time.thread_time()
        for _ in range(count):
            for call in self._calls:
                call()
        return (time.thread_time() - started) / count


def compile_together(programs: Sequence[str], host: str) -> None:
    """Brings the programs' code into the cache, on as many processes as are worth it."""
    ProgramCompilation(programs, host).result()


def ratio(one: Runnable, other: Runnable, pairs: int) -> float:
    """Median of the times of `one` by those of `other`, in turns; who begins alternates."""
    found = []
    for number in range(pairs):
        if number % 2:
            b, a = other.turn(), one.turn()
        else:
            a, b = one.turn(), other.turn()
        found.append(a / max(b, 1e-9))
    return statistics.median(found)
