"""Worker threads of the process: one pool per number of threads, made on first use and ended before the interpreter."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque

from acl_runtime.executor.native import native
from acl_runtime.executor.native_state import (
    MAX_THREADS,
    POOL,
    WORKER,
    address,
    aligned_zeros,
)

# A sleeping thread needs about this long to start, so a shorter spin would lose and a longer one could not win much.
SPIN_NS = 30_000
# With more threads than cores a spinning thread takes the core from one that works.
SPIN_NS_OVERSUBSCRIBED = 2_000
_EXIT_WAIT_S = 1.0


class _Turns:
    """A lock that goes to who has waited longest: a busy thread cannot keep it from the others."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._is_held = False

    def acquire(self) -> None:
        with self._mutex:
            if not self._is_held:
                self._is_held = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            turn.acquire()
        except BaseException:  # an interrupt: whoever comes next must not wait for this thread
            with self._mutex:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                    raise
            self.release()
            raise

    def release(self) -> None:
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_held = False


class WorkerPool:
    """`threads - 1` Python threads that wait in native code; the thread that executes a run is the remaining worker.

    One run at a time uses the pool: `with pool:` makes others wait and sees to it that the threads exist.
    `owner` is the identity of the thread that holds it.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._memory = aligned_zeros(POOL.itemsize + threads * WORKER.itemsize)
        self.address = address(self._memory)
        self.reset()

    def reset(self) -> None:
        """Forget the threads, which no longer exist; the next run starts new ones."""
        self._memory[:] = 0
        state = self._memory[: POOL.itemsize].view(POOL)
        state["threads"] = self.threads
        state["spin_ns"] = SPIN_NS if self.threads <= _usable_cores() else SPIN_NS_OVERSUBSCRIBED
        self._workers: list[threading.Thread] = []
        self._started = False
        self._lock = _Turns()
        self.owner: int | None = None

    def __enter__(self) -> None:
        self._lock.acquire()
        if not self._started:
            self._start()
        self.owner = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self.owner = None
        self._lock.release()

    def _start(self) -> None:
        self._started = True
        executor = native()
        executor.pool_init(self.address)
        for index in range(1, self.threads):
            worker = threading.Thread(
                target=executor.worker_loop, args=(self.address, index), name=f"executor-{index}", daemon=True
            )
            try:
                worker.start()
            except RuntimeError:
                # No more threads to be had: a run waits for no worker that has not come, so fewer will do.
                break
            self._workers.append(worker)

    def stop(self) -> None:
        """Let the workers end. Runs go on to work afterwards, on their calling thread alone."""
        if self._workers:
            native().pool_stop(self.address)
            until = time.monotonic() + _EXIT_WAIT_S
            for worker in self._workers:
                # Not for ever: a daemon thread of the application may still be inside a long kernel.
                worker.join(max(until - time.monotonic(), 0))


_pools: dict[int, WorkerPool] = {}
_pools_lock = threading.Lock()


def worker_pool(threads: int) -> WorkerPool:
    """The pool of this process with `threads` workers, 2..MAX_THREADS, the calling thread included."""
    if not 2 <= threads <= MAX_THREADS:
        raise ValueError(f"{threads} threads; 1 to {MAX_THREADS} are possible")
    with _pools_lock:
        if threads not in _pools:
            _pools[threads] = WorkerPool(threads)
        return _pools[threads]


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _stop_all() -> None:
    for pool in _pools.values():
        pool.stop()


def _after_fork() -> None:
    """A child has none of the threads, and the locks and counters are as some thread left them."""
    global _pools_lock
    _pools_lock = threading.Lock()
    for pool in _pools.values():
        pool.reset()


atexit.register(_stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
