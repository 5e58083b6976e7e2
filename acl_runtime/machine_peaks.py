"""What this machine can do, measured: f32 operations and loaded bytes a second, with one thread or several."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from acl_runtime.executor import Executor, Graph, load_object, task_records
from codegen.llvm.compile import compile_text
from codegen.llvm.detect import detect_host_class
from codegen.llvm.peak import peak_text
from codegen.targets.hosts import host_class

_TRIES = 9
_FLOP_ROUNDS, _CACHE_REPEATS = 1 << 19, 1 << 10
"""So that a measurement takes some 5 ms: long for the clock, short enough to fit between interruptions."""
_CACHE_BYTES, _MEMORY_BYTES = 128 << 10, 64 << 20
"""Buffers of a thread: one that stays in the second-level cache, one that no cache holds."""


@dataclass(frozen=True)
class Peaks:
    """threads: threads that worked. flops: f32 operations a second, a multiply-add counts as two. cache_bytes and
    memory_bytes: loaded bytes a second from buffers of 128 KiB and 64 MiB a thread."""

    threads: int
    flops: float
    cache_bytes: float
    memory_bytes: float


@lru_cache(maxsize=8)
def measure_peaks(threads: int = 1) -> Peaks:
    """The best of several short loops, about a second in all. Measured once in a process."""
    host = host_class(detect_host_class())
    text, operations, loaded = peak_text(host)
    code = load_object(compile_text(text, host), ["peak_flops", "peak_bytes"])
    executor = Executor(threads)

    def rate(symbol: str, per_round: int, rounds: int, rows: int, repeats: int) -> float:
        """Operations or bytes a second of `repeats` grid indices for each of the rows."""
        out = np.zeros((repeats * rows, host.vector_bytes // 4), np.float32)
        buffer = np.ones(rows * rounds * loaded if symbol == "peak_bytes" else 1, np.uint8)
        dims = np.array([rounds, rows], np.int64)
        args = np.array([out.ctypes.data, buffer.ctypes.data], np.uint64)
        records = task_records(1)
        records["fn"], records["grid"] = code[symbol], len(out)
        records["args"], records["dims"] = args.ctypes.data, dims.ctypes.data
        run = executor.prepare(Graph(records, np.empty(0, np.int32)))
        best = np.inf
        for _ in range(_TRIES):
            started = time.perf_counter()
            run.execute()
            best = min(best, time.perf_counter() - started)
        return per_round * rounds * len(out) / best

    flops = rate("peak_flops", operations, _FLOP_ROUNDS, threads, 1)
    cached = rate("peak_bytes", loaded, _CACHE_BYTES // loaded, threads, _CACHE_REPEATS)
    memory = rate("peak_bytes", loaded, _MEMORY_BYTES // loaded, threads, 1)
    return Peaks(threads, flops, cached, memory)
