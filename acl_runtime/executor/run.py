"""Executes task graphs: the Python face of the native executor."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from acl_runtime.executor.graph import Graph
from acl_runtime.executor.interruptible import Interruptible
from acl_runtime.executor.native import native
from acl_runtime.executor.native_state import CHUNKS, EVENT, LINE, RUN, TRACE, address, aligned_zeros
from acl_runtime.executor.native_text import FINISHED
from acl_runtime.executor.pool import WorkerPool, worker_pool
from acl_runtime.executor.task_record import TASK


class TaskFailed(Exception):
    """The kernel of task `task` returned `code` (1..255) for grid index or element `index`.

    What the numbers mean is known to whoever built the graph. If several tasks failed it is the lowest of them.
    """

    def __init__(self, task: int, code: int, index: int) -> None:
        super().__init__(f"task {task} failed with code {code} at index {index}")
        self.task = task
        self.code = code
        self.index = index


class Executor:
    """Executes graphs on `threads` threads (1..64): the calling thread and the workers of a pool of the process.

    With 1 thread the tasks run in index order. Executors with equal `threads` share a pool, and their runs take turns.
    """

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self._pool: WorkerPool | None = None if threads == 1 else worker_pool(threads)

    def prepare(self, graph: Graph) -> Run:
        """A run of `graph`; make one for each execution that is to go on at the same time."""
        return Run(graph, self.threads, self._pool)


class Run:
    """The state of one execution of a graph; reset natively by each execution, which allocates nothing.

    records: this run's own copy of the task records. Between executions its owner may write `fn`, `args`, `dims`,
        `grid` and `grain` (new tensors, new dims); edges and guards must stay as they are.
    guards: u8 array of guard bytes, set to 255 at the start of an execution; tasks write them through their pointers.
    times: i64 [n_tasks, 2], begin and end of each task in ns of CLOCK_MONOTONIC (begin of the first chunk, end of the
        last); zeros for a task that did not run. Valid after an execution with `timed=True`, as `events` are.
    native_calls: number of calls into native code so far.
    is_long: whether executions may take long: then a signal handler of Python, as that of Ctrl-C, runs at once where
        the main thread executes, and what it raises ends the execution when the chunks under way are done.
    """

    def __init__(self, graph: Graph, threads: int, pool: WorkerPool | None) -> None:
        count = len(graph)
        scratch_stride = -(-graph.scratch_bytes // LINE) * LINE
        sizes = {
            "state": RUN.itemsize,
            "records": count * TASK.itemsize,
            "guards": graph.guards_nbytes,
            "times": count * 16,
            "scratch": threads * scratch_stride,
            "pending": count * 4,
            "queue": (count + 1) * 4,
            "host_queue": (count + 1) * 4,
            "chunks": count * CHUNKS.itemsize,
        }
        padded = {name: -(-size // LINE) * LINE for name, size in sizes.items()}
        memory = aligned_zeros(sum(padded.values()))
        parts, position = {}, 0
        for name, size in sizes.items():
            parts[name] = memory[position : position + size]
            position += padded[name]

        self.graph = graph
        self.native_calls = 0
        self.is_long = False
        self.records: np.ndarray = parts["records"].view(TASK)
        self.records[:] = graph.records
        self.guards = parts["guards"]
        self.times: np.ndarray = parts["times"].view(np.int64).reshape(count, 2)
        self._state = parts["state"].view(RUN)
        for name in ("records", "guards", "scratch", "pending", "queue", "host_queue", "chunks"):
            self._state[name] = address(parts[name])
        for name in ("successors", "predecessors", "roots"):
            self._state[name] = address(getattr(graph, name))
        self._state["n_tasks"] = count
        self._state["n_roots"] = len(graph.roots)
        self._state["guards_nbytes"] = graph.guards_nbytes
        self._state["scratch_stride"] = scratch_stride
        self._chunks_field, self._stop_field = self._state["in_chunks"], self._state["stop"]
        self._times_field, self._trace_field = self._state["times"], self._state["trace"]
        self._trace = np.zeros(0, np.uint8)
        self._events = np.zeros(0, EVENT)
        self._address = address(parts["state"])
        self._pool = pool
        self._native = native()
        self._busy = threading.Lock()

    def execute(self, host_task: Callable[[int], None] | None = None, *, timed: bool = False) -> None:
        """Execute the graph. `host_task(t)` is called on this thread for each AI CPU task t when it is ready.

        Raises TaskFailed when a kernel failed, and whatever `host_task` raises; tasks that had not begun do not run.
        Raises RuntimeError when this run is executing already. Waits while another thread uses the pool; inside a host
        task of this thread, which holds the pool, it executes on this thread alone.
        """
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("the run is executing; prepare one run for each concurrent execution")
        try:
            self._times_field[0] = address(self.times) if timed else 0
            self._trace_field[0] = self._new_trace() if timed else 0
            self._chunks_field[0] = self.is_long
            if self._pool is None or self._pool.owner == threading.get_ident():
                self._execute_serial(host_task)
            else:
                with self._pool:
                    self._execute_parallel(self._pool.address, host_task)
        finally:
            self._busy.release()

    @property
    def events(self) -> np.ndarray:
        """The kernel calls of the last timed execution, dtype EVENT: task, worker, begin and end in ns of
        CLOCK_MONOTONIC. A task that several workers share has several."""
        count = int(self._trace[: TRACE.itemsize].view(TRACE)["count"][0]) if len(self._trace) else 0
        return self._events[:count]

    def _new_trace(self) -> int:
        """The address of an empty trace with room for every chunk of the grids."""
        grids, grains = self.records["grid"], self.records["grain"]
        capacity = int(np.maximum(-(-grids // np.maximum(grains, 1)), 1).sum())
        if len(self._events) < capacity:
            self._trace = aligned_zeros(TRACE.itemsize)
            self._events = np.zeros(capacity, EVENT)
            state = self._trace.view(TRACE)
            state["capacity"], state["events"] = capacity, address(self._events)
        self._trace.view(TRACE)["count"] = 0
        return address(self._trace)

    def _execute_serial(self, host_task: Callable[[int], None] | None) -> None:
        result = self._call(0, self._native.serial_start, self._address)
        while result >= 0:
            _call_host(host_task, result)
            result = self._call(0, self._native.serial_resume, self._address, result)
        self._raise_failure(result)

    def _execute_parallel(self, pool: int, host_task: Callable[[int], None] | None) -> None:
        try:
            result = self._call(pool, self._native.parallel_start, self._address, pool)
            while result >= 0:
                _call_host(host_task, result)
                result = self._call(pool, self._native.parallel_resume, self._address, pool, result)
        except BaseException:
            # Workers may still be inside the run.
            self._native.parallel_abandon(self._address, pool)
            raise
        self._raise_failure(result)

    def _call(self, pool: int, function: Callable[..., int], *arguments: int) -> int:
        """Calls into native code, interruptibly where that may matter."""
        self.native_calls += 1
        if not self.is_long or threading.current_thread() is not threading.main_thread():
            return function(*arguments)
        try:
            return Interruptible(function, arguments).call(lambda: self._native.stop(self._address, pool))
        finally:
            self._stop_field[0] = 0

    def _raise_failure(self, result: int) -> None:
        if result != FINISHED:
            status = int(self._state["failed_status"][0])
            raise TaskFailed(int(self._state["failed_task"][0]), status & 255, status >> 8)


def _call_host(host_task: Callable[[int], None] | None, task: int) -> None:
    if host_task is None:
        raise ValueError(f"task {task} is an AI CPU task, and no function for AI CPU tasks was given")
    host_task(task)
