"""States from graph text to runs: written in place, kept from run to run, ordered within a run, checked by the plan."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from packages import VIEWER

from acl_runtime import InferSession
from acl_runtime.om import PackageError
from acl_runtime.package_layout import ClassPart, plan_texts, write_model
from acl_runtime.plan_format import PlanValue, read_plan
from acl_runtime.state import State
from acl_runtime.stored_constants import lay_out
from atc.pipeline import passes
from atc.plan_input import plan_input
from codegen.kernels import kernels
from codegen.llvm.detect import detect_host_class
from codegen.lowering import lower_graph
from codegen.targets import target
from graph_opt.ir.passes import run_passes
from graph_opt.ir.text import parse, to_text
from graph_opt.ir.verifier import InvalidGraph, verify
from graph_opt.plan import ModelPlan, model_to_json, plan_model
from graph_opt.plan.check_plan import PlanError, check_plan
from tensor_types.dtypes import F16, F32
from tensor_types.errors import InvalidModel
from tensor_types.formats import PLAIN

CAPACITY = 50
TEXT = f"""
graph cached(%cache: f32[1, 2, {CAPACITY}, 8], %rows: f32[1, 2, n, 8], %length: i64[1]) -> (%cache_out, %y) {{
  dim n in [1, {CAPACITY}]
  %scaled: f32[1, 2, n, 8] = Relu(%rows)
  %cache_out: f32[1, 2, {CAPACITY}, 8] = TensorScatter(%cache, %scaled, %length) @append
  const %axes: i64[1] = dense [2]
  %y: f32[1, 2, 8] = ReduceSum(%cache_out, %axes) {{keepdims=0}} @total
  state %cache -> %cache_out
}}
"""
TWO_READS = f"""
graph ordered(%cache: f32[1, {CAPACITY}, 8], %rows: f32[1, 3, 8], %length: i64[1]) -> (%before, %after, %cache_out) {{
  %before: f32[1, {CAPACITY}, 8] = Neg(%cache) @first
  %cache_1: f32[1, {CAPACITY}, 8] = TensorScatter(%cache, %rows, %length) @one
  %middle: f32[1, {CAPACITY}, 8] = Neg(%cache_1) @second
  const %from: i64[1] = dense [0]
  const %to: i64[1] = dense [3]
  const %axis: i64[1] = dense [1]
  %part: f32[1, 3, 8] = Slice(%middle, %from, %to, %axis) @part
  %cache_out: f32[1, {CAPACITY}, 8] = TensorScatter(%cache_1, %part) @two
  %after: f32[1, {CAPACITY}, 8] = Neg(%cache_out) @third
  state %cache -> %cache_out
}}
"""


def decoder(capacity: int) -> str:
    """Attention of one new token over caches of keys and values that it is appended to first."""
    cache, row = f"f32[1, 2, {capacity}, 16]", "f32[1, 2, 1, 16]"
    return f"""
graph decoder(%k: {cache}, %v: {cache}, %q: f32[1, 4, 1, 16], %key: {row}, %value: {row}, %past: i64[1]) -> (
    %k_out, %v_out, %y) {{
  %k_out: {cache} = TensorScatter(%k, %key, %past) @keys
  %v_out: {cache} = TensorScatter(%v, %value, %past) @values
  const %one: i64[1] = dense [1]
  %length: i64[1] = Add(%past, %one)
  %y: f32[1, 4, 1, 16] = Attention(%q, %k_out, %v_out, _, _, _, %length) {{is_causal=1}} @attention
  state %k -> %k_out
  state %v -> %v_out
}}
"""


def planned(text: str) -> ModelPlan:
    graph = parse(text)
    verify(graph)
    run_passes(graph, passes(kernels([target(detect_host_class())])))
    verify(graph)
    return plan_model(plan_input(graph, lower_graph(graph, target(detect_host_class()))))


def session(text: str, path: Path) -> InferSession:
    graph = parse(text)
    run_passes(graph, passes(kernels([target(detect_host_class())])))
    plan = model_to_json(plan_model(plan_input(graph, lower_graph(graph, target(detect_host_class())))))
    constants = {v.name: v.recipe for v in graph.constants() if v.recipe is not None}
    table = lay_out(constants, plan)
    classes = {detect_host_class(): ClassPart(plan_texts(plan))}
    write_model(path, classes=classes, constants=constants, table=table, viewer=VIEWER)
    return InferSession(0, path)


def rows(seed: int, count: int) -> np.ndarray:
    return np.abs(np.random.default_rng(seed).normal(size=(1, 2, count, 8))).astype(np.float32)


def test_text_form() -> None:
    printed = to_text(parse(TEXT))
    assert "state %cache -> %cache_out" in printed and to_text(parse(printed)) == printed


def test_rows_stay_from_run_to_run(tmp_path: Path) -> None:
    run = session(TEXT, tmp_path / "m.om")
    assert [i.name for i in run.get_inputs()] == ["rows", "length"] and [o.name for o in run.get_outputs()] == ["y"]
    want = np.zeros((1, 2, CAPACITY, 8), np.float32)
    other = run.new_state()
    for start, count in ((0, 5), (5, 1), (6, 1), (7, 20)):
        want[:, :, start : start + count] = rows(start, count)
        (y,) = run.infer([rows(start, count), np.array([start])])
        np.testing.assert_allclose(y, want.sum(2), rtol=1e-5)
        np.testing.assert_array_equal(run.state().get("cache"), want)
    assert not other.get("cache").any()
    (y,) = run.infer([rows(9, 2), np.array([48])], state=other)
    np.testing.assert_allclose(y, rows(9, 2).sum(2), rtol=1e-5)
    np.testing.assert_array_equal(run.state().get("cache"), want)
    run.state().put({"cache": other.get("cache")})
    np.testing.assert_array_equal(run.state().get("cache")[:, :, 48:], rows(9, 2))
    run.state().reset()
    assert not run.state().get("cache").any() and run.state().names == ("cache",)


def test_a_cache_that_is_no_state_is_copied(tmp_path: Path) -> None:
    """The same graph with the cache as an ordinary input and output: native all the same, and the input stays."""
    run = session(TEXT.replace("  state %cache -> %cache_out\n", ""), tmp_path / "m.om")
    cache = np.random.default_rng(1).normal(size=(1, 2, CAPACITY, 8)).astype(np.float32)
    given = cache.copy()
    result, y = run.infer([given, rows(1, 4), np.array([6])])
    want = cache.copy()
    want[:, :, 6:10] = rows(1, 4)
    np.testing.assert_array_equal(given, cache)
    np.testing.assert_array_equal(result, want)
    np.testing.assert_allclose(y, want.sum(2), rtol=1e-5, atol=1e-5)
    assert run.profile([given, rows(1, 4), np.array([6])], 1).ai_cpu_share == 0
    assert run.state().names == ()


GROWN = """
graph grown(%past: f32[1, 2, p, 8], %rows: f32[1, 2, n, 8], %length: i64[1]) -> (%present, %y) {
  dim n in [1, 50]
  dim p in [0, 50]
  const %pads: i64[8] = dense [0, 0, 0, 0, 0, 0, 4, 0]
  %longer: f32[1, 2, p + 4, 8] = Pad(%past, %pads)
  %scaled: f32[1, 2, n, 8] = Relu(%rows)
  %present: f32[1, 2, p + 4, 8] = TensorScatter(%longer, %scaled, %length) @append
  const %axes: i64[1] = dense [2]
  %y: f32[1, 2, 8] = ReduceSum(READ, %axes) {keepdims=0} @total
}
"""


@pytest.mark.parametrize("read", ["%present", "%longer"])
def test_a_cache_that_grows_is_copied_once(read: str, tmp_path: Path) -> None:
    """The new rows are written where the longer cache lies, unless that is read besides; never into the input."""
    run = session(GROWN.replace("READ", read), tmp_path / "m.om")
    for past in (0, 3):
        cache = np.random.default_rng(1).normal(size=(1, 2, past, 8)).astype(np.float32)
        given, longer = cache.copy(), np.concatenate([cache, np.zeros((1, 2, 4, 8), np.float32)], 2)
        present, y = run.infer([given, rows(1, 4), np.array([past])])
        want = np.concatenate([cache, rows(1, 4)], 2)
        np.testing.assert_array_equal(given, cache)
        np.testing.assert_array_equal(present, want)
        np.testing.assert_allclose(y, (want if read == "%present" else longer).sum(2), rtol=1e-5, atol=1e-5)
    assert len(run.plan.segments[0].tasks) == (4 if read == "%present" else 5)


def test_rows_beyond_the_capacity_change_nothing(tmp_path: Path) -> None:
    run = session(TEXT, tmp_path / "m.om")
    run.infer([rows(0, 3), np.array([0])])
    held = run.state().get("cache")
    for start in (CAPACITY - 1, -1):
        with pytest.raises(InvalidModel, match="out of range"):
            run.infer([rows(1, 2), np.array([start])])
        np.testing.assert_array_equal(run.state().get("cache"), held)


def test_each_version_is_read_before_the_next_overwrites_it(tmp_path: Path) -> None:
    for _, plan in ((s, s.plan) for s in planned(TWO_READS).segments):
        check_plan(plan, {})
    run = session(TWO_READS, tmp_path / "m.om")
    cache = np.random.default_rng(4).normal(size=(1, CAPACITY, 8)).astype(np.float32)
    new = np.random.default_rng(5).normal(size=(1, 3, 8)).astype(np.float32)
    run.state().put({"cache": cache})
    before, after = run.infer([new, np.array([2])])
    want = cache.copy()
    want[:, 2:5] = new
    want[:, :3] = -want[:, :3]
    np.testing.assert_array_equal(before, -cache)
    np.testing.assert_array_equal(after, -want)
    np.testing.assert_array_equal(run.state().get("cache"), want)


def test_a_decoder_reads_as_many_rows_as_it_has_written(tmp_path: Path) -> None:
    run = session(decoder(300), tmp_path / "m.om")
    rng = np.random.default_rng(8)
    # Nothing behind the length is ever read.
    run.state().put({name: np.full((1, 2, 300, 16), np.nan, np.float32) for name in ("k", "v")})
    keys, values = np.zeros((2, 0, 16)), np.zeros((2, 0, 16))
    for past in range(40):
        q, k, v = (rng.normal(size=(1, n, 1, 16)).astype(np.float32) for n in (4, 2, 2))
        keys, values = np.concatenate([keys, k[0]], 1), np.concatenate([values, v[0]], 1)
        (y,) = run.infer([q, k, v, np.array([past])])
        for head in range(4):
            weights = np.exp(keys[head // 2] @ q[0, head, 0].astype(np.float64) / 4)
            want = weights @ values[head // 2] / weights.sum()
            np.testing.assert_allclose(y[0, head, 0], want, rtol=1e-4, atol=1e-5)


def test_nothing_of_a_plan_grows_with_the_capacity() -> None:
    """No copy of a cache: same tasks, same arena, and the caches in no storage."""
    small, large = (planned(decoder(n)).segments[0].plan for n in (64, 1 << 16))
    assert small.arena == large.arena and small.states == large.states == ("k", "v")
    assert [(t.node, t.grid) for t in small.tasks] == [(t.node, t.grid) for t in large.tasks]
    assert all(t.program is not None for t in large.tasks) and not large.output_copies
    check_plan(large, {})


def test_buffers_lie_in_one_block() -> None:
    """So that it is large enough for large pages; each begins on a line."""
    plan = PlanValue("a", F32, (1, 3, 5), PLAIN, None), PlanValue("b", F16, (7,), PLAIN, None)
    for state in (State(plan), State(plan).copy()):
        a, b = state.arrays["a"], state.arrays["b"]
        assert (a.shape, b.shape, a.dtype, b.dtype) == ((1, 3, 5), (7,), np.float32, np.float16)
        assert b.ctypes.data - a.ctypes.data == 128 and a.ctypes.data % 64 == 0


def test_threads_take_turns(tmp_path: Path) -> None:
    """Each run adds a row of its own; none is lost and no run sees half of another's."""
    run = session(TEXT, tmp_path / "m.om")

    def append(first: int) -> None:
        for start in range(first, 40, 4):
            run.infer([rows(start, 1), np.array([start])])

    workers = [threading.Thread(target=append, args=(n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    want = np.concatenate([rows(n, 1) for n in range(40)], 2)
    np.testing.assert_array_equal(run.state().get("cache")[:, :, :40], want)


def test_what_does_not_fit_a_state_is_refused(tmp_path: Path) -> None:
    run, other = session(TEXT, tmp_path / "a.om"), session(TWO_READS, tmp_path / "b.om")
    with pytest.raises(InvalidModel, match="another model"):
        run.infer([rows(0, 1), np.array([0])], state=other.state())
    with pytest.raises(InvalidModel, match="no such state"):
        run.state().get("cash")
    with pytest.raises(InvalidModel, match="expected float32"):
        run.state().put({"cache": np.zeros((1, 2, 3, 8), np.float32)})


WRONG = [
    ("state %rows -> %y", "ends as"),
    ("state %cache -> %y", "ends as"),
    ("state %missing -> %cache_out", "no input"),
    ("state %cache -> %scaled", "no output"),
    ("state %cache -> %cache_out\n  state %rows -> %cache_out", "two states"),
]


@pytest.mark.parametrize(("line", "reason"), WRONG)
def test_unsound_states(line: str, reason: str) -> None:
    with pytest.raises(InvalidGraph, match=reason):
        verify(parse(TEXT.replace("state %cache -> %cache_out", line)))


def test_a_version_is_not_read_behind_its_update() -> None:
    late = TWO_READS.replace("= Neg(%cache_out) @third", "= Neg(%cache_1) @third")
    with pytest.raises(InvalidGraph, match="has overwritten"):
        verify(parse(late))
    branch = TEXT.replace("TensorScatter(%cache, %scaled, %length)", "Add(%cache, %cache)")
    with pytest.raises(InvalidGraph, match="updates alone"):
        verify(parse(branch))


def _swapped(plan: ModelPlan, first: str, second: str) -> tuple:
    """The tasks of a plan with two of them in each other's place, each after the one before it."""
    tasks = list(plan.segments[0].plan.tasks)
    a, b = (next(n for n, t in enumerate(tasks) if t.node == name) for name in (first, second))
    tasks[a], tasks[b] = tasks[b], tasks[a]
    return tuple(replace(t, after=(n - 1,) if n else ()) for n, t in enumerate(tasks))


@pytest.mark.parametrize("pair", [("first", "one"), ("one", "second"), ("two", "third"), ("one", "two")])
def test_the_checker_finds_a_wrong_order(pair: tuple[str, str]) -> None:
    model = planned(TWO_READS)
    plan = model.segments[0].plan
    nodes = {t.node for t in plan.tasks}
    assert {"first", "one", "second", "two", "third"} <= nodes, nodes
    with pytest.raises(PlanError):
        check_plan(replace(plan, tasks=_swapped(model, *pair)), {})


def test_the_checker_finds_a_missing_edge_and_a_missing_update() -> None:
    plan = planned(TWO_READS).segments[0].plan
    number = next(n for n, t in enumerate(plan.tasks) if t.node == "one")
    free = tuple(replace(t, after=()) if n == number else t for n, t in enumerate(plan.tasks))
    with pytest.raises(PlanError, match="nothing orders it"):
        check_plan(replace(plan, tasks=free), {})
    plan = planned(TEXT).segments[0].plan
    number = next(n for n, t in enumerate(plan.tasks) if t.node == "append")
    without = tuple(t for n, t in enumerate(plan.tasks) if n < number)
    with pytest.raises(PlanError, match="is not made"):
        check_plan(replace(plan, tasks=without, output_copies=()), {"n": 1})


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [1, 2, "n", 8]}, {"format": "perm(0,1,3,2)"}, {"place": ["state", 0, 64]}, {"place": None},
        {"place": ["input", 0, 0]}, {"place": ["state", 1, 0]}, {"dtype": "str"},
    ],
)  # fmt: skip
def test_a_hostile_plan_is_refused(change: dict) -> None:
    plan = model_to_json(planned(TEXT))
    programs = plan.pop("programs")
    segment = plan["segments"][0]
    read_plan(plan, programs)
    segment["values"][segment["states"][0]].update(change)
    with pytest.raises(PackageError):
        read_plan(plan, programs)
