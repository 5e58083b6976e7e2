"""The executor itself: LLVM IR text, with struct offsets taken from `native_state`.

Three forms beyond LLVM IR keep the text readable; `_expand` turns each into plain instructions:

    %p = at run.head %run           address of a field
    %v = get i64 run.n_tasks %run   load a field
    put i64 %v run.host_head %run   store a field

Serial execution (`native_serial`) walks the records in index order, without atomics. Parallel execution deals ready
tasks to the workers: `native_queue`, `native_work`, `native_parallel` say how.
"""

from __future__ import annotations

import re

import numpy as np

from acl_runtime.executor.native_parallel import PARALLEL
from acl_runtime.executor.native_queue import READY, SLEEP
from acl_runtime.executor.native_serial import COMMON, SERIAL
from acl_runtime.executor.native_state import (
    GATE_OPEN,
    MAX_THREADS,
    POOL,
    STRUCTS,
    WORKER,
)
from acl_runtime.executor.native_work import WORK
from acl_runtime.executor.parking import platform_text
from acl_runtime.executor.task_record import UNWRITTEN_GUARD

# What the entry points return instead of the index of an AI CPU task.
FINISHED = -1
FAILED = -2

SERIAL_START = "executor_serial_start"  # (run) -> i64
SERIAL_RESUME = "executor_serial_resume"  # (run, task) -> i64
PARALLEL_START = "executor_parallel_start"  # (run, pool) -> i64
PARALLEL_RESUME = "executor_parallel_resume"  # (run, pool, task) -> i64
PARALLEL_ABANDON = "executor_parallel_abandon"  # (run, pool): stop the run whose AI CPU task failed
STOP = "executor_stop"  # (run, pool or null): from any thread, while the run executes
POOL_INIT = "executor_pool_init"  # (pool)
POOL_STOP = "executor_pool_stop"  # (pool): workers return as soon as they are idle
WORKER_LOOP = "executor_worker"  # (pool, worker): returns after POOL_STOP
SYMBOLS = [
    SERIAL_START,
    SERIAL_RESUME,
    PARALLEL_START,
    PARALLEL_RESUME,
    PARALLEL_ABANDON,
    STOP,
    POOL_INIT,
    POOL_STOP,
    WORKER_LOOP,
]

_CONSTANTS = {
    "FINISHED": FINISHED,
    "FAILED": FAILED,
    "PARKED": -3,  # of a worker alone: no work came within spin_ns
    "SHARED": 1 << 30,
    "TASK_MASK": (1 << 30) - 1,
    "GATE_OPEN": GATE_OPEN,
    "MAX_THREADS": MAX_THREADS,
    "UNWRITTEN_GUARD": UNWRITTEN_GUARD,
    "POOL_SIZE": POOL.itemsize,
    "WORKER_SIZE": WORKER.itemsize,
    "TASK_SIZE": STRUCTS["task"].itemsize,
    "CHUNKS_SIZE": STRUCTS["chunks"].itemsize,
    "EVENT_SIZE": STRUCTS["event"].itemsize,
}
MAX_TASKS = _CONSTANTS["TASK_MASK"]

_TYPES = {"ptr": "u8", "i64": "i8", "i32": "i4"}
_AT = re.compile(r"(%[\w.]+) = at (\w+)\.(\w+) (%[\w.]+)")
_GET = re.compile(r"(%[\w.]+) = get (\w+) (\w+)\.(\w+) (%[\w.]+)")
_PUT = re.compile(r"put (\w+) (\S+) (\w+)\.(\w+) (%[\w.]+)")


def _offset(struct: str, field: str, kind: str | None = None) -> int:
    dtype, offset = STRUCTS[struct].fields[field][:2]  # type: ignore[index]
    if kind is not None and dtype != np.dtype("<" + _TYPES[kind]):
        raise TypeError(f"{struct}.{field} is {dtype}, not {kind}")
    return offset


def _expand(line: str, number: int) -> str:
    """One line in plain LLVM IR; `number` makes the names of temporaries unique."""
    text = line.strip()
    if match := _AT.fullmatch(text):
        name, struct, field, base = match.groups()
        return f"  {name} = getelementptr inbounds i8, ptr {base}, i64 {_offset(struct, field)}"
    if match := _GET.fullmatch(text):
        name, kind, struct, field, base = match.groups()
        return (
            f"  {name}.field = getelementptr inbounds i8, ptr {base}, i64 {_offset(struct, field, kind)}\n"
            f"  {name} = load {kind}, ptr {name}.field"
        )
    if match := _PUT.fullmatch(text):
        kind, value, struct, field, base = match.groups()
        return (
            f"  %put.{number} = getelementptr inbounds i8, ptr {base}, i64 {_offset(struct, field, kind)}\n"
            f"  store {kind} {value}, ptr %put.{number}"
        )
    return line


def native_text(triple: str, *, futex: bool | None = None) -> str:
    """The executor's module for `triple` (x86-64 or aarch64) as LLVM IR; `futex` as in `platform_text`."""
    text = COMMON + SERIAL + SLEEP + READY + WORK + PARALLEL
    words = "|".join(_CONSTANTS)
    text = re.sub(rf"(?<![%@\w])(?:{words})\b", lambda match: str(_CONSTANTS[match.group()]), text)
    body = "\n".join(_expand(line, number) for number, line in enumerate(text.splitlines()))
    return f'target triple = "{triple}"\n{platform_text(triple, futex=futex)}\n{body}\n'
