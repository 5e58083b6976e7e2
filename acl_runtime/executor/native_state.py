"""Layout of the memory that Python and the native executor share, one numpy dtype per struct.

The IR text takes every offset and size from these dtypes, so the two sides cannot disagree.
What several threads write lies on lines of its own; 128 bytes because adjacent lines are fetched in pairs.
"""

from __future__ import annotations

import numpy as np

from acl_runtime.executor.guarded_memory import guarded_zeros
from acl_runtime.executor.task_record import TASK
from codegen.llvm.bounds_checks import sanitised

LINE = 128
MAX_THREADS = 64  # one bit each in `sleeping`


def _struct(*lines: list[tuple[str, str]]) -> np.dtype[np.void]:
    """A dtype whose fields lie in order, each list starting on a new line."""
    names, formats, offsets = [], [], []
    offset = 0
    for fields in lines:
        offset = -(-offset // LINE) * LINE
        for name, kind in fields:
            dtype = np.dtype(kind)
            names.append(name)
            formats.append(dtype)
            offsets.append(offset)
            offset += dtype.itemsize
    size = -(-offset // LINE) * LINE
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


# One execution of a graph. Pointers first; `failed_*` is the answer of a failed run.
RUN = _struct(
    [
        ("records", "<u8"),  # TASK[n_tasks]
        ("successors", "<u8"),  # i32
        ("n_tasks", "<i8"),
        ("guards", "<u8"),  # u8[guards_nbytes]
        ("guards_nbytes", "<i8"),
        ("times", "<u8"),  # i64[n_tasks][2] begin and end in ns, or null
        ("trace", "<u8"),  # TRACE, or null
        ("scratch", "<u8"),  # one block per worker
        ("scratch_stride", "<i8"),
        ("failed_task", "<i8"),
        ("failed_status", "<i8"),
        ("predecessors", "<u8"),  # i32[n_tasks], what `pending` starts from
        ("pending", "<u8"),  # i32[n_tasks], predecessors that have not completed
        ("roots", "<u8"),  # i32[n_roots], tasks without predecessors
        ("n_roots", "<i8"),
        ("queue", "<u8"),  # i32[n_tasks + 1], entries or -1; never wraps, since a task is queued once per run
        ("host_queue", "<u8"),  # i32[n_tasks + 1]
        ("stop", "<i8"),  # nonzero: somebody wants the execution to end; only Python sets it back
        ("in_chunks", "<i8"),  # nonzero: serial execution calls kernels by their grain too, so that it can stop
    ],
    [
        ("chunks", "<u8"),  # CHUNKS[n_tasks], valid once the task is ready and shared
        ("host_head", "<i8"),  # used by the calling thread alone
    ],
    [("head", "<i8")],
    [("tail", "<i8")],
    [("left", "<i8")],  # tasks that have not completed, as far as the workers have reported
    [("host_tail", "<i8")],
    [("failed", "<i8")],  # nonzero: start nothing more
)

# Progress of a task that several workers share, in grid indices.
CHUNKS = np.dtype({"names": ["next", "remaining"], "formats": ["<i8", "<i8"], "offsets": [0, 64], "itemsize": LINE})

# What a run notes of every call of a kernel, EVENT[capacity]; `count` goes on where there is no room.
TRACE = _struct([("count", "<i8")], [("capacity", "<i8"), ("events", "<u8")])
EVENT = np.dtype([("task", "<i8"), ("worker", "<i8"), ("begin", "<i8"), ("end", "<i8")])

# A pool of workers; the thread that starts a run is worker 0 of it.
POOL = _struct(
    [("run", "<u8"), ("threads", "<i8"), ("spin_ns", "<i8")],
    [("epoch", "<i8"), ("stop", "<i8")],  # epoch counts runs
    [("gate", "<i8")],  # GATE_OPEN + number of workers inside the run
    [("sleeping", "<i8")],  # bit per worker that sleeps or is about to
    [("parking", "(256,)u1")],  # what the parking primitive of the platform needs
)
GATE_OPEN = 1 << 32

# One per worker, after the POOL struct.
WORKER = _struct([("posted", "<i4"), ("error_task", "<i8"), ("error_begin", "<i8"), ("error_status", "<i8")])

STRUCTS = {"task": TASK, "run": RUN, "chunks": CHUNKS, "trace": TRACE, "event": EVENT, "pool": POOL, "worker": WORKER}


def address(array: np.ndarray) -> int:
    """Address of the first byte of an array."""
    return int(array.__array_interface__["data"][0])


def aligned_zeros(nbytes: int) -> np.ndarray:
    """Zeroed bytes that start on a line, untouched before use; with OPENATC_SANITISE between guard pages."""
    if sanitised():
        return guarded_zeros(nbytes, LINE)
    block = np.zeros(nbytes + LINE, np.uint8)
    start = -address(block) % LINE
    return block[start : start + nbytes]
