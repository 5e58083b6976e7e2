"""A task graph in the form that the native executor reads."""

from __future__ import annotations

import numpy as np

from acl_runtime.executor.native_text import MAX_TASKS
from acl_runtime.executor.task_record import TASK, UNWRITTEN_GUARD


class Graph:
    """Tasks and edges, checked and copied in once; immutable, so any number of runs may share it.

    records: array of dtype TASK. Index order must be a topological order: every edge leads to a higher index.
    successors: i32 array; task t is followed by successors[first_successor : first_successor + n_successors].
    guards_nbytes: size of the guard byte array of a run. scratch_bytes: scratch memory that each worker gets.
    Raises ValueError when the arrays contradict each other.
    """

    def __init__(
        self, records: np.ndarray, successors: np.ndarray, guards_nbytes: int = 0, scratch_bytes: int = 0
    ) -> None:
        self.records = np.array(records, TASK, ndmin=1)
        self.successors = np.array(successors, np.int32, ndmin=1)
        self.guards_nbytes = guards_nbytes
        self.scratch_bytes = scratch_bytes
        self._check()
        self.predecessors = np.ascontiguousarray(self.records["n_predecessors"])
        self.roots = np.flatnonzero(self.predecessors == 0).astype(np.int32)
        for array in (self.records, self.successors, self.predecessors, self.roots):
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.records)

    def _check(self) -> None:
        records, successors = self.records, self.successors
        count = len(records)
        if records.ndim != 1 or successors.ndim != 1:
            raise ValueError("records and successors are one-dimensional")
        if count > MAX_TASKS:
            raise ValueError(f"{count} tasks; at most {MAX_TASKS} are possible")
        if self.guards_nbytes < 0 or self.scratch_bytes < 0:
            raise ValueError("sizes are not negative")
        if (records["grain"] < 1).any():
            raise ValueError("the grain of a task is at least 1")
        first = records["first_successor"].astype(np.int64)
        degree = records["n_successors"].astype(np.int64)
        if (degree < 0).any() or ((degree > 0) & ((first < 0) | (first + degree > len(successors)))).any():
            raise ValueError("a task names successors outside the successor array")
        sources = np.repeat(np.arange(count), degree)
        starts = np.repeat(np.cumsum(degree) - degree, degree)
        targets = successors[np.repeat(first, degree) + np.arange(len(sources)) - starts]
        if ((targets <= sources) | (targets >= count)).any():
            raise ValueError("an edge does not lead to a later task")
        if (np.bincount(targets, minlength=count) != records["n_predecessors"]).any():
            raise ValueError("n_predecessors differs from the number of edges into a task")
        guarded = records["guard_offset"] >= 0
        if (records["guard_offset"][guarded] >= self.guards_nbytes).any():
            raise ValueError("a guard lies outside the guard array")
        values = records["guard_value"][guarded]
        if ((values < 0) | (values >= UNWRITTEN_GUARD)).any():
            raise ValueError(f"a guard value lies in 0..{UNWRITTEN_GUARD - 1}")
