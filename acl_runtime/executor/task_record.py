"""The task record: the 64-byte row that describes one task to the native executor.

| field            | type | meaning                                                                                  |
|------------------|------|------------------------------------------------------------------------------------------|
| fn               | u64  | address of `i64 fn(ptr args, ptr dims, i64 begin, i64 end, ptr scratch)`; 0 = AI CPU task |
| args             | u64  | address of the array of tensor base pointers that the kernel gets                        |
| dims             | u64  | address of the array of i64 dims that the kernel gets                                    |
| grid             | i64  | number of indices of the flattened parallel grid; <= 0 = the task completes at once      |
| grain            | i64  | grid indices per chunk, >= 1; a task with grid > grain is spread over the workers        |
| n_predecessors   | i32  | number of edges that end here                                                            |
| first_successor  | i32  | position of the first successor in the flat i32 successor array                          |
| n_successors     | i32  | number of successors; each has a higher index than the task                              |
| guard_value      | i32  | value 0..254 that the guard byte must have; otherwise the task is skipped                |
| guard_offset     | i64  | position of the guard byte in the guard array of the run, or -1 for no guard             |

A kernel returns 0, or `code | index << 8` with code 1..255. `args` and `dims` belong to the caller and must outlive the
run.
The guard bytes are set to 255 at the start of each run, so a task whose guard was never written, because its writer
was itself skipped, is skipped too. An AI CPU task runs once whatever its grid, unless the grid is <= 0 or its guard
differs.
"""

from __future__ import annotations

import numpy as np

TASK = np.dtype(
    [
        ("fn", "<u8"),
        ("args", "<u8"),
        ("dims", "<u8"),
        ("grid", "<i8"),
        ("grain", "<i8"),
        ("n_predecessors", "<i4"),
        ("first_successor", "<i4"),
        ("n_successors", "<i4"),
        ("guard_value", "<i4"),
        ("guard_offset", "<i8"),
    ]
)
NO_GUARD = -1
UNWRITTEN_GUARD = 255


def task_records(count: int) -> np.ndarray:
    """`count` records of dtype TASK, each an AI CPU task of one grid index without edges and guard."""
    records = np.zeros(count, TASK)
    records["grid"] = 1
    records["grain"] = 1
    records["guard_offset"] = NO_GUARD
    return records
