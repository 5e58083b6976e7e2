"""The executor against what a graph means: order, guards, AI CPU tasks, errors, times, concurrency and exit."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acl_runtime.executor import Executor, Graph, Run, TaskFailed, task_records

sys.path.insert(0, str(Path(__file__).parent))
from executor_kernels import GraphBuilder

THREADS = [1, 2, 4]
each_thread_count = pytest.mark.parametrize("threads", THREADS)


class OrderedGraph:
    """A random DAG whose tasks fail unless all their predecessors ran before them in the same execution."""

    def __init__(self, rng: np.random.Generator, count: int, *, host: float = 0.0) -> None:
        self.builder = GraphBuilder()
        self.done = np.zeros(count, np.int64)
        self.dims: list[np.ndarray] = []
        self.host_tasks: list[int] = []
        span = int(rng.integers(1, 40))
        for index in range(count):
            low = max(0, index - span)
            before = sorted(set(rng.integers(low, index, int(rng.integers(0, 5))).tolist())) if index else []
            is_host = rng.random() < host
            self.builder.task(
                None if is_host else "check_order", [self.done], [index, 0, len(before), *before], after=before
            )
            self.dims.append(self.builder.arrays[-1])
            if is_host:
                self.host_tasks.append(index)
        self.graph = self.builder.build()

    def begin(self, execution: int) -> None:
        for dims in self.dims:
            dims[1] = execution

    def host_task(self, task: int) -> None:
        execution, count = self.dims[task][1:3]
        assert (self.done[self.dims[task][3 : 3 + count]] == execution).all()
        self.done[task] = execution


@each_thread_count
@pytest.mark.parametrize("seed", range(6))
def test_tasks_follow_their_predecessors(threads: int, seed: int) -> None:
    ordered = OrderedGraph(np.random.default_rng(seed), 300)
    run = Executor(threads).prepare(ordered.graph)
    for execution in range(1, 30):
        ordered.begin(execution)
        run.execute()
        assert (ordered.done == execution).all()
    assert run.native_calls == 29  # one call each, there being no AI CPU task


@each_thread_count
@pytest.mark.parametrize("seed", range(4))
def test_host_tasks_take_part_in_the_order(threads: int, seed: int) -> None:
    ordered = OrderedGraph(np.random.default_rng(seed), 200, host=0.1)
    assert ordered.host_tasks
    run = Executor(threads).prepare(ordered.graph)
    for execution in range(1, 10):
        ordered.begin(execution)
        executed: list[int] = []

        def host_task(task: int, executed: list[int] = executed) -> None:
            executed.append(task)
            ordered.host_task(task)

        run.execute(host_task)
        assert (ordered.done == execution).all()
        assert sorted(executed) == ordered.host_tasks
    assert run.native_calls == 9 * (1 + len(ordered.host_tasks))


def test_check_order_fails_when_the_order_is_broken() -> None:
    """The order tests rest on this kernel, so it has to notice a missing edge."""
    builder = GraphBuilder()
    done = np.zeros(2, np.int64)
    builder.task("check_order", [done], [0, 1, 1, 1])  # wants task 1 before task 0
    builder.task("check_order", [done], [1, 1, 0])
    with pytest.raises(TaskFailed) as failure:
        Executor(1).prepare(builder.build()).execute()
    assert (failure.value.task, failure.value.code, failure.value.index) == (0, 7, 1)


@each_thread_count
@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.tuples(st.integers(0, 70), st.integers(1, 80)), min_size=1, max_size=12), data=st.data())
def test_each_grid_index_runs_once(threads: int, sizes: list[tuple[int, int]], data: st.DataObject) -> None:
    builder = GraphBuilder()
    arrays = [np.zeros(max(grid, 1), np.int64) for grid, _ in sizes]
    for index, ((grid, grain), array) in enumerate(zip(sizes, arrays, strict=True)):
        after = data.draw(st.lists(st.integers(0, index - 1), max_size=3)) if index else []
        builder.task("increment", [array], after=after, grid=grid, grain=grain)
    run = Executor(threads).prepare(builder.build())
    for execution in range(1, 4):
        run.execute()
        for (grid, _), array in zip(sizes, arrays, strict=True):
            assert (array[:grid] == execution).all()
            assert grid or not array.any()


@pytest.mark.parametrize("grain", [1, 3])
def test_chunks_of_one_task_run_on_several_threads(grain: int) -> None:
    """Four chunks that wait for each other; status 3 if they do not run at the same time."""
    builder = GraphBuilder()
    met = np.zeros(1, np.int64)
    builder.task("meet", [met], [4], grid=3 * grain + 1, grain=grain)
    run = Executor(4).prepare(builder.build())
    for _ in range(50):
        met[0] = 0
        run.execute()


@pytest.mark.parametrize("behind", [False, True])
def test_independent_tasks_run_on_several_threads(behind: bool) -> None:
    builder = GraphBuilder()
    met = np.zeros(1, np.int64)
    root = [builder.task("nothing")] if behind else []
    for _ in range(4):
        builder.task("meet", [met], [4], after=root)
    run = Executor(4).prepare(builder.build())
    for _ in range(50):
        met[0] = 0
        run.execute()


@each_thread_count
def test_results_do_not_depend_on_the_threads(threads: int) -> None:
    x = np.linspace(-5, 5, 10_000, dtype=np.float32)
    results = []
    for count in (1, threads):
        y = np.zeros_like(x)
        builder = GraphBuilder()
        builder.task("exp_by_scratch", [x, y], grid=len(x), grain=37)
        Executor(count).prepare(builder.build(scratch_bytes=4)).execute()
        results.append(y)
    assert results[0].tobytes() == results[1].tobytes()
    np.testing.assert_allclose(results[1], np.exp(x.astype(np.float64)), rtol=1e-6)


@each_thread_count
def test_denormals_survive_whatever_the_callers_float_mode(threads: int) -> None:
    """A caller in flush-to-zero mode, as some libraries leave it, must not change results."""
    if platform.machine() != "x86_64":
        pytest.skip("the mode is set here by the C library of x86-64")
    libc, environment = ctypes.CDLL(None), (ctypes.c_uint32 * 8)()
    libc.fegetenv(environment)
    original = environment[7]
    x = np.full(64, np.finfo(np.float32).tiny, np.float32)
    builder = GraphBuilder()
    builder.task("halve", [x], grid=64, grain=4)
    run = Executor(threads).prepare(builder.build())
    environment[7] = original | 0x8040  # MXCSR: flush to zero, denormals are zero
    libc.fesetenv(environment)
    try:
        run.execute()
        libc.fegetenv(environment)
        assert environment[7] & 0x8040 == 0x8040  # the caller gets its own mode back
    finally:
        environment[7] = original
        libc.fesetenv(environment)
    assert (x.view(np.uint32) == 1 << 22).all()


@each_thread_count
def test_guards_choose_a_branch(threads: int) -> None:
    builder = GraphBuilder()
    executor = Executor(threads)
    taken = np.zeros(4, np.int64)
    condition = builder.task("write_byte", [taken], [1])
    then = builder.task("increment", [taken[0:1]], after=[condition], guard_offset=3, guard_value=1)
    other = builder.task("increment", [taken[1:2]], after=[condition], guard_offset=3, guard_value=0)
    # A wide task of the branch not taken, and one without guard after both.
    wide = builder.task("increment", [taken], after=[other], guard_offset=3, guard_value=0, grid=4, grain=1)
    host = builder.task(None, after=[condition], guard_offset=3, guard_value=0)
    builder.task("increment", [taken[2:3]], after=[then, wide, host])
    run = executor.prepare(builder.build(guards_nbytes=8))
    pointers, value = builder.arrays[1], builder.arrays[2]
    pointers[0] = run.guards.ctypes.data + 3

    run.execute(timed=True)
    assert taken.tolist() == [1, 0, 1, 0]
    assert run.guards.tolist() == [255, 255, 255, 1, 255, 255, 255, 255]
    assert run.times[[other, wide, host]].tolist() == [[0, 0]] * 3
    assert run.times[[condition, then]].all()

    value[0] = 0
    hosted: list[int] = []
    run.execute(hosted.append)
    assert taken.tolist() == [2, 2, 3, 1]
    assert hosted == [host]


@each_thread_count
def test_a_guard_without_writer_skips(threads: int) -> None:
    """The inner condition of a branch not taken is never computed; its old value must not count."""
    builder = GraphBuilder()
    count = np.zeros(1, np.int64)
    outer = builder.task("write_byte", [count], [1])
    inner = builder.task("write_byte", [count], [1], after=[outer], guard_offset=0, guard_value=1)
    builder.task("increment", [count], after=[inner], guard_offset=1, guard_value=1)
    run = Executor(threads).prepare(builder.build(guards_nbytes=2))
    builder.arrays[1][0] = run.guards.ctypes.data
    builder.arrays[4][0] = run.guards.ctypes.data + 1
    run.execute()
    assert count[0] == 1
    builder.arrays[2][0] = 0
    run.execute()
    assert count[0] == 1


@each_thread_count
def test_a_failure_stops_the_run(threads: int) -> None:
    builder = GraphBuilder()
    counts = np.zeros(2, np.int64)
    first = builder.task("increment", [counts[0:1]])
    bad = builder.task("fail_from", [], [700], after=[first], grid=1000, grain=10)
    builder.task("increment", [counts[1:2]], after=[bad])
    run = Executor(threads).prepare(builder.build())
    for execution in range(1, 50):
        with pytest.raises(TaskFailed) as failure:
            run.execute()
        assert (failure.value.task, failure.value.code) == (bad, 9)
        assert failure.value.index == 700  # several chunks may fail; the first is reported
        assert counts.tolist() == [execution, 0]
    builder.arrays[4][0] = 1000
    run.execute()
    assert counts.tolist() == [50, 1]


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("tasks", [1, 2])
def test_the_lowest_of_two_failures_is_reported(threads: int, tasks: int) -> None:
    """Two tasks, or two chunks of a task, that fail once both have begun, so that either may be the first to fail."""
    builder = GraphBuilder()
    met = np.zeros(1, np.int64)
    for _ in range(tasks):
        builder.task("fail_together", [met], [2], grid=2 // tasks)
    run = Executor(threads).prepare(builder.build())
    for _ in range(100):
        met[0] = 0
        with pytest.raises(TaskFailed) as failure:
            run.execute()
        assert (failure.value.task, failure.value.code, failure.value.index) == (0, 11, 0)


def test_scratch_is_private() -> None:
    builder = GraphBuilder()
    met = np.zeros(1, np.int64)
    builder.task("keep_in_scratch", [met], [4], grid=4)
    run = Executor(4).prepare(builder.build(scratch_bytes=8))
    for _ in range(50):
        met[0] = 0
        run.execute()


@each_thread_count
@pytest.mark.parametrize("others", [0, 40])
def test_an_exception_of_a_host_task_passes(threads: int, others: int) -> None:
    builder = GraphBuilder()
    counts = np.zeros(1, np.int64)
    for _ in range(others):
        builder.task("doze", dims=[100])
    host = builder.task(None)
    builder.task("increment", [counts], after=[host])
    run = Executor(threads).prepare(builder.build())

    def bad(task: int) -> None:
        raise KeyError(task)

    for _ in range(5):
        with pytest.raises(KeyError):
            run.execute(bad)
        with pytest.raises(ValueError, match="AI CPU task"):
            run.execute()
    assert counts[0] == 0
    run.execute(lambda task: None)
    assert counts[0] == 1


def test_native_tasks_go_on_during_a_host_task() -> None:
    builder = GraphBuilder()
    counts = np.zeros(50, np.int64)
    builder.task(None)
    last = -1
    for index in range(50):
        last = builder.task("increment", [counts[index:]], after=[last] if last >= 0 else [])
    run = Executor(2).prepare(builder.build())

    def host_task(task: int) -> None:
        deadline = time.monotonic() + 10
        while not counts.all():
            assert time.monotonic() < deadline, "the worker does not work"
            time.sleep(0.001)

    run.execute(host_task)


@each_thread_count
def test_a_host_task_may_execute_another_run(threads: int) -> None:
    inner_builder, outer_builder = GraphBuilder(), GraphBuilder()
    counts = np.zeros(64, np.int64)
    inner_builder.task("increment", [counts], grid=64, grain=4)
    executor = Executor(threads)
    inner = executor.prepare(inner_builder.build())
    first = outer_builder.task("increment", [counts], grid=64, grain=4)
    outer_builder.task(None, after=[first])
    outer = executor.prepare(outer_builder.build())
    outer.execute(lambda task: inner.execute())
    assert (counts == 2).all()


@each_thread_count
def test_empty_graphs_and_empty_grids(threads: int) -> None:
    executor = Executor(threads)
    executor.prepare(Graph(task_records(0), np.zeros(0, np.int32))).execute()
    builder = GraphBuilder()
    counts = np.zeros(1, np.int64)
    empty = builder.task("increment", [counts], grid=0)
    host = builder.task(None, after=[empty], grid=0)
    negative = builder.task("increment", [counts], after=[host], grid=-3)
    builder.task("nothing", after=[negative])
    executor.prepare(builder.build()).execute()
    assert counts[0] == 0


@each_thread_count
def test_times_lie_in_the_order_of_the_edges(threads: int) -> None:
    builder = GraphBuilder()
    x = np.zeros(64, np.int64)
    for index in range(20):
        after = [index - 1] if index else []
        builder.task(None if index == 10 else "increment", [x], after=after, grid=64, grain=8)
    run = Executor(threads).prepare(builder.build())
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    run.execute(lambda task: None, timed=True)
    after_ = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    flat = run.times.reshape(-1)
    assert before <= flat[0] and flat[-1] <= after_
    assert (np.diff(flat) >= 0).all()
    kept = run.times.copy()
    run.execute(lambda task: None)
    assert (run.times == kept).all()


@each_thread_count
def test_every_call_of_a_kernel_is_noted(threads: int) -> None:
    """Calls of a task cover its grid once, lie between its begin and end, and do not overlap on a worker."""
    builder = GraphBuilder()
    x = np.zeros(64, np.int64)
    for index in range(20):
        builder.task(None if index == 10 else "increment", [x], after=[index - 1] if index else [], grid=64, grain=8)
    run = Executor(threads).prepare(builder.build())
    for _ in range(2):
        run.execute(lambda task: None, timed=True)
        events = run.events
        assert set(events["task"]) == set(range(20)) - {10}
        assert ((0 <= events["worker"]) & (events["worker"] < threads)).all()
        assert (run.times[events["task"], 0] <= events["begin"]).all() or threads > 1
        assert (events["end"] <= run.times[events["task"], 1]).all()
        for worker in range(threads):
            own = np.sort(events[events["worker"] == worker], order="begin")
            assert (own["begin"] <= own["end"]).all() and (own["end"][:-1] <= own["begin"][1:]).all()
        assert len(events) == 19 if threads == 1 else 19 <= len(events) <= 19 * 8
    kept = len(run.events)
    run.execute(lambda task: None)
    assert len(run.events) == kept
    assert (x == 19 * 3).all()


@each_thread_count
def test_records_of_a_run_can_be_rebound(threads: int) -> None:
    builder = GraphBuilder()
    a, b = np.zeros(8, np.int64), np.zeros(8, np.int64)
    builder.task("increment", [a], grid=8)
    graph = builder.build()
    executor = Executor(threads)
    first, second = executor.prepare(graph), executor.prepare(graph)
    pointers = np.array([b.ctypes.data], np.uint64)
    second.records["args"] = pointers.ctypes.data
    second.records["grid"] = 4
    first.execute()
    second.execute()
    assert a.tolist() == [1] * 8 and b.tolist() == [1] * 4 + [0] * 4


@each_thread_count
def test_python_threads_execute_at_the_same_time(threads: int) -> None:
    executor = Executor(threads)
    failures: list[BaseException] = []

    def body(seed: int) -> None:
        try:
            ordered = OrderedGraph(np.random.default_rng(seed), 80, host=0.03)
            run = executor.prepare(ordered.graph)
            for execution in range(1, 60):
                ordered.begin(execution)
                run.execute(ordered.host_task)
                assert (ordered.done == execution).all()
        except BaseException as failure:
            failures.append(failure)

    workers = [threading.Thread(target=body, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def test_one_run_does_not_execute_twice_at_once() -> None:
    builder = GraphBuilder()
    builder.task(None)
    run: Run = Executor(1).prepare(builder.build())
    with pytest.raises(RuntimeError, match="executing"):
        run.execute(lambda task: run.execute())
    run.execute(lambda task: None)


def test_workers_that_sleep_are_woken() -> None:
    """Pauses longer than the spin put all workers to sleep before and during each execution."""
    builder = GraphBuilder()
    x = np.zeros(64, np.int64)
    last: list[int] = []
    for _ in range(3):
        spread = builder.task("increment", [x], after=last, grid=64, grain=4)
        pause = builder.task("doze", dims=[500], after=[spread])
        last = [spread, pause]
    run = Executor(3).prepare(builder.build())
    for execution in range(1, 40):
        time.sleep(0.001)
        run.execute()
        assert (x == 3 * execution).all()


@pytest.mark.parametrize("threads", [0, -1, 65])
def test_thread_counts_out_of_range(threads: int) -> None:
    with pytest.raises(ValueError, match="threads"):
        Executor(threads)


def _two(**second: int) -> np.ndarray:
    records = task_records(2)
    records[0]["n_successors"] = 1
    records[1]["n_predecessors"] = 1
    for field, value in second.items():
        records[1][field] = value
    return records


@pytest.mark.parametrize(
    ("records", "successors", "message"),
    [
        (_two(), [0], "later"),
        (_two(), [2], "later"),
        (_two(), [], "outside the successor"),
        (_two(n_predecessors=2), [1], "n_predecessors"),
        (_two(grain=0), [1], "grain"),
        (_two(guard_offset=4), [1], "guard array"),
        (_two(guard_offset=0, guard_value=255), [1], "guard value"),
        (_two(n_successors=-1), [1], "outside the successor"),
    ],
)
def test_graphs_that_contradict_themselves(records: np.ndarray, successors: list[int], message: str) -> None:
    Graph(_two(), np.array([1], np.int32), guards_nbytes=4)
    with pytest.raises(ValueError, match=message):
        Graph(records, np.array(successors, np.int32), guards_nbytes=4)


EXIT_PROGRAM = """
import sys, threading, numpy as np
sys.path.insert(0, sys.argv[1])
from executor_kernels import GraphBuilder
from acl_runtime.executor import Executor, TaskFailed
builder = GraphBuilder()
x = np.zeros(64, np.int64)
builder.task("increment", [x], grid=64, grain=1)
builder.task("fail_from", dims=[0])
run = Executor(4).prepare(builder.build())
try:
    run.execute()
except TaskFailed:
    pass
if sys.argv[2] == "busy":
    again = GraphBuilder()
    again.task("increment", [np.zeros(64, np.int64)], grid=64, grain=1)
    other = Executor(4).prepare(again.build())
    def forever():
        while True:
            other.execute()
    threading.Thread(target=forever, daemon=True).start()
elif sys.argv[2] == "fork":
    import os
    builder = GraphBuilder()
    x = np.zeros(64, np.int64)
    builder.task("increment", [x], grid=64, grain=1)
    run = Executor(4).prepare(builder.build())
    run.execute()
    child = os.fork()
    run.execute()
    assert (x == 2).all()
    if child:
        assert os.waitpid(child, 0)[1] == 0
elif sys.argv[2] == "raise":
    raise SystemExit(3)
print("end")
"""


@pytest.mark.parametrize(("mode", "code"), [("idle", 0), ("busy", 0), ("fork", 0), ("raise", 3)])
def test_the_interpreter_exits(mode: str, code: int) -> None:
    root = Path(__file__).parents[2]
    program = subprocess.run(
        [sys.executable, "-c", EXIT_PROGRAM, str(Path(__file__).parent), mode],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )
    assert program.returncode == code, program.stderr
    assert ("end" in program.stdout) == (mode != "raise")
