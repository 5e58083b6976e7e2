"""Plans against the independent checker, known answers for small graphs, and faults that the checker has to find."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest

from graph_opt.plan import (
    AicpuRecord,
    AliasRecord,
    KernelRecord,
    Plan,
    PlanInput,
    Scheduled,
    TaskOperand,
    ValueInfo,
    dependencies,
    model_to_json,
    plan,
    plan_model,
)
from graph_opt.plan.bounds import live_bytes
from graph_opt.plan.check_plan import PlanError, check_plan
from graph_opt.plan.dependencies import reduce_transitively
from tensor_types.dims import dim, evaluate
from tensor_types.dtypes import BOOL, F32, I64
from tensor_types.errors import InvalidModel, UnsupportedOperator
from tensor_types.formats import PLAIN, channels_last, panels

sys.path.insert(0, str(Path(__file__).parent))
from random_models import operand, random_model


def f32(name: str, *shape: object, kind: str = "temporary") -> ValueInfo:
    return ValueInfo(name, F32, shape, kind)  # type: ignore[arg-type]


def kernel(node: str, reads: list[str], write: str, program: str = "p", **more: object) -> Scheduled:
    operands = (*(operand(r) for r in reads), operand(write, "out"))
    return Scheduled(KernelRecord(program, operands, (), 1, node, "region", **more))  # type: ignore[arg-type]


def chain(length: int, in_place: bool = False) -> PlanInput:
    """x -> v0 -> v1 -> ... all of 1 KiB."""
    names = ["x", *(f"v{n}" for n in range(length))]
    values = [f32("x", 256, kind="input"), *(f32(n, 256) for n in names[1:])]
    alias = ((1, 0),) if in_place else ()
    records = [kernel(f"n{n}", [names[n]], names[n + 1], may_alias=alias) for n in range(length)]
    return PlanInput(tuple(values), tuple(records), ("x",), (names[-1],))


@pytest.mark.parametrize("seed", range(25))
def test_random_plans_are_sound(seed: int) -> None:
    check_plan(plan(random_model(seed)), {})


@pytest.mark.parametrize("seed", range(12))
def test_random_symbolic_plans_are_sound_for_every_size(seed: int) -> None:
    planned = plan(random_model(seed, symbolic=True))
    for n in (1, 2, 7, 64):
        check_plan(planned, {"n": n})


def test_the_arena_is_close_to_the_bound() -> None:
    ratios = sorted(evaluate((p := plan(random_model(seed))).arena, {}) / live_bytes(p, {}) for seed in range(60))
    assert ratios[0] >= 1
    assert ratios[len(ratios) * 3 // 4] <= 1.05
    assert ratios[-1] < 1.35


def test_a_chain_needs_two_buffers_and_in_place_one() -> None:
    planned = plan(chain(10))
    assert planned.arena == live_bytes(planned, {}) == 2048  # the last value is the output's own buffer
    assert [t.after for t in planned.tasks] == [(), *((n,) for n in range(9))]
    planned = plan(chain(10, in_place=True))
    assert planned.arena == live_bytes(planned, {}) == 1024
    check_plan(planned, {})


def test_in_place_is_refused_while_the_input_is_needed() -> None:
    values = (f32("x", 256, kind="input"), f32("a", 256), f32("b", 256), f32("c", 256), f32("y", 256))
    records = (
        kernel("n0", ["x"], "a"),
        kernel("n1", ["a"], "b", may_alias=((1, 0),)),
        kernel("n2", ["a"], "c", may_alias=((1, 0),)),
        kernel("n3", ["b", "c"], "y"),
    )
    planned = plan(PlanInput(values, records, ("x",), ("y",)))
    offsets = {n: planned.storages[planned.places[n].index].offset for n in "abc"}
    assert offsets["a"] == offsets["c"] != offsets["b"]
    check_plan(planned, {})


def test_symbolic_sizes_of_one_unit_share_bytes() -> None:
    n = dim("n")
    values = (f32("x", n, kind="input"), f32("a", n, 16), f32("b", 16, n), f32("c", n, 16), f32("y", n))
    records = [kernel(f"n{i}", [r], w) for i, (r, w) in enumerate(["xa", "ab", "bc", "cy"])]
    planned = plan(PlanInput(values, tuple(records), ("x",), ("y",), {"n": (1, None)}))
    assert planned.arena == 128 * n
    for size in (1, 3, 100):
        check_plan(planned, {"n": size})


def test_symbolic_sizes_that_are_no_multiples_of_64_are_hardly_padded() -> None:
    n = dim("n")
    values = (f32("x", n, kind="input"), f32("a", n, 3), f32("b", n, 5), f32("y", n))
    records = [kernel(f"n{i}", [r], w) for i, (r, w) in enumerate(["xa", "ab", "by"])]
    planned = plan(PlanInput(values, tuple(records), ("x",), ("y",), {"n": (1, None)}))
    for size in (1, 3, 16, 1000):
        check_plan(planned, {"n": size})
        assert evaluate(planned.arena, {"n": size}) <= (3 + 5) * 4 * (size + 15)


def test_equal_programs_and_constant_forms_are_kept_once() -> None:
    packing = panels(16)
    values = (f32("x", 4, kind="input"), f32("w", 4, 4, kind="constant"), f32("a", 4), f32("b", 4), f32("y", 4))

    def record(node: str, source: str, target: str, form: object) -> Scheduled:
        weight = TaskOperand("w", "in", packing=form)  # type: ignore[arg-type]
        return Scheduled(KernelRecord("p", (operand(source), weight, operand(target, "out")), (), 1, node, "matmul"))

    records = (record("0", "x", "a", packing), record("1", "a", "b", packing), record("2", "b", "y", PLAIN))
    planned = plan(PlanInput(values, records, ("x",), ("y",)))
    assert planned.programs == ("p",)
    assert [str(c.packing) for c in planned.constants] == [str(packing), "plain"]


def test_aliases_share_the_bytes_of_their_base() -> None:
    values = (f32("x", 8, kind="input"), f32("a", 8), f32("b", 2, 4), f32("c", 1, 4), f32("y", 4))
    records = (
        kernel("n0", ["x"], "a"),
        Scheduled(AliasRecord("b", "a", "reshape")),
        Scheduled(AliasRecord("c", "b", "slice", byte_offset=16)),
        kernel("n1", ["c"], "y"),
    )
    planned = plan(PlanInput(values, records, ("x",), ("y",)))
    assert planned.places["a"].index == planned.places["c"].index
    assert planned.places["c"].offset == 16
    assert planned.tasks[1].after == (0,)
    check_plan(planned, {})


def test_an_output_is_written_directly_or_copied() -> None:
    values = (f32("x", 8, kind="input"), f32("a", 8), f32("y", 2, 4), f32("z", 2, 4), f32("same", 4, 2))
    records = (
        kernel("n0", ["x"], "a"),
        Scheduled(AliasRecord("y", "a", "r0")),
        Scheduled(AliasRecord("z", "x", "r1")),
        Scheduled(AliasRecord("same", "a", "r2")),
    )
    planned = plan(PlanInput(values, records, ("x",), ("y", "z", "same")))
    assert planned.places["a"].space == planned.places["y"].space == "output"
    assert planned.places["z"].space == "input"
    assert planned.output_copies == ((1, "z"), (2, "same"))
    assert planned.arena == 0


def test_guards_copy_their_condition_once_and_nest() -> None:
    values = (
        f32("x", 8, kind="input"), ValueInfo("a", BOOL, ()), ValueInfo("b", BOOL, ()),
        f32("t", 8), f32("u", 8), f32("y", 8),
    )  # fmt: skip

    def guarded(record: Scheduled, *guards: tuple[str, int]) -> Scheduled:
        return replace(record, guards=guards)

    records = (
        kernel("ca", ["x"], "a"),
        guarded(kernel("cb", ["x"], "b"), ("a", 1)),
        guarded(kernel("nt", ["x"], "t"), ("a", 1), ("b", 0)),
        guarded(kernel("nu", ["x"], "u"), ("a", 1), ("b", 0)),
        guarded(kernel("merge1", ["t", "u"], "y"), ("a", 1), ("b", 0)),
        guarded(kernel("merge0", ["x"], "y"), ("a", 0)),
    )
    planned = plan(PlanInput(values, records, ("x",), ("y",)))
    check_plan(planned, {})
    copies = [n for n, t in enumerate(planned.tasks) if t.family == "guard"]
    assert len(copies) == planned.n_guards == 2
    inner = planned.tasks[copies[1]]
    assert inner.guard == (0, 1)  # skipped where `a` is 0, so that what hangs on `b` is skipped as well
    by_node = {t.node: t for t in planned.tasks if t.family != "guard"}
    assert by_node["nt"].guard == by_node["nu"].guard == (1, 0)
    assert by_node["merge0"].guard == (0, 0)


def test_one_condition_under_both_sides_of_another_has_a_guard_byte_for_each() -> None:
    values = (
        f32("x", 8, kind="input"), ValueInfo("a", BOOL, ()), ValueInfo("b", BOOL, ()),
        f32("t", 8), f32("u", 8), f32("y", 8),
    )  # fmt: skip

    def guarded(record: Scheduled, *guards: tuple[str, int]) -> Scheduled:
        return replace(record, guards=guards)

    records = (
        kernel("ca", ["x"], "a"),
        kernel("cb", ["x"], "b"),
        guarded(kernel("nt", ["x"], "y"), ("a", 1), ("b", 1)),
        guarded(kernel("nu", ["x"], "y"), ("a", 0), ("b", 1)),
        guarded(kernel("nv", ["x"], "y"), ("b", 0)),
    )
    planned = plan(PlanInput(values, records, ("x",), ("y",)))
    check_plan(planned, {})
    copies = {
        o.place.index: t for t in planned.tasks if t.family == "guard" for o in t.operands if o and o.role == "out"
    }
    assert len(copies) == planned.n_guards == 4
    # A byte is written only where the outer guards hold, so each way to `b` needs its own.
    by_node = {t.node: t for t in planned.tasks if t.family != "guard"}
    outer = {node: copies[by_node[node].guard[0]].guard for node in ("nt", "nu", "nv")}  # type: ignore[index]
    a = next(n for n, t in copies.items() if t.operands[0] and t.operands[0].value == "a")
    assert outer == {"nt": (a, 1), "nu": (a, 0), "nv": None}
    assert [by_node[n].guard[1] for n in ("nt", "nu", "nv")] == [1, 1, 0]  # type: ignore[index]


def test_an_output_that_is_copied_from_the_arena_is_kept_to_the_end() -> None:
    values = (
        f32("x", 8, kind="input"), f32("a", 16), f32("part", 8, kind="output"),
        f32("b", 16), f32("c", 16), f32("y", 16, kind="output"),
    )  # fmt: skip
    records = (
        kernel("na", ["x"], "a"),
        Scheduled(AliasRecord("part", "a", "slice", 32)),
        kernel("nb", ["x"], "b"),
        kernel("nc", ["b"], "c"),
        kernel("ny", ["c"], "y"),
    )
    planned = plan(PlanInput(values, records, ("x",), ("part", "y")))
    check_plan(planned, {})
    assert planned.output_copies == ((0, "part"),)
    kept = planned.storages[planned.places["part"].index]
    assert (kept.first, kept.last) == (0, len(planned.tasks) - 1)
    others = [planned.storages[planned.places[name].index] for name in ("b", "c")]
    assert all(kept.offset + kept.bytes <= s.offset or s.offset + s.bytes <= kept.offset for s in others)


def test_late_tensors_are_objects_that_kernels_may_not_take() -> None:
    values = (f32("x", 8, kind="input"), ValueInfo("i", I64, (1, dim("u0"))), f32("y", dim("u0")))
    host = Scheduled(AicpuRecord("NonZero", ("x",), ("i",), "nz"))
    planned = plan(PlanInput(values, (host, Scheduled(AicpuRecord("Cast", ("i",), ("y",), "c"))), ("x",), ("y",)))
    assert planned.places["i"].space == planned.places["y"].space == "object"
    assert planned.tasks[1].after == (0,)
    assert planned.output_copies == ((0, "y"),)
    with pytest.raises(UnsupportedOperator, match="size only the run decides"):
        plan(PlanInput(values, (host, kernel("k", ["i"], "y")), ("x",), ("y",)))


def test_contradictions_are_refused() -> None:
    nhwc = ValueInfo("x", F32, (1, 2, 3, 4), "input", channels_last(4))
    with pytest.raises(InvalidModel, match="format"):
        plan_model(PlanInput((nhwc,), (), ("x",), ()))
    values = (f32("x", 8, kind="input"), f32("w", 8, kind="constant"), f32("y", 8))
    for record in (kernel("n", ["x"], "x"), kernel("n", ["x"], "w"), kernel("n", ["absent"], "y")):
        with pytest.raises(InvalidModel):
            plan(PlanInput(values, (record,), ("x",), ("y",)))


@pytest.mark.parametrize("seed", range(10))
def test_transitive_reduction_agrees_with_networkx(seed: int) -> None:
    planned = random_model(seed)
    edges = [t.after for t in plan(planned).tasks]
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(edges)))
    graph.add_edges_from((b, n) for n, before in enumerate(edges) for b in before)
    closure = nx.transitive_closure(graph)
    full = [set(closure.predecessors(n)) for n in closure]
    reduced = nx.transitive_reduction(graph)
    assert reduce_transitively(full) == [tuple(sorted(reduced.predecessors(n))) for n in range(len(edges))]


# Faults


def _mutants(planned: Plan) -> list[Plan]:
    """The plan with one edge less, one storage moved onto another, or one task made to run earlier."""
    found = []
    for number, task in enumerate(planned.tasks):
        for before in task.after:
            changed = replace(task, after=tuple(a for a in task.after if a != before))
            found.append(replace(planned, tasks=(*planned.tasks[:number], changed, *planned.tasks[number + 1 :])))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_the_checker_misses_no_edge_that_is_left_out(seed: int) -> None:
    planned = plan(random_model(seed))
    mutants = _mutants(planned)
    assert len(mutants) > 20
    for mutant in mutants:  # edges are transitively reduced, so each is needed
        with pytest.raises(PlanError):
            check_plan(mutant, {})


def test_the_checker_finds_overlaps_and_bad_places() -> None:
    values = (f32("x", 256, kind="input"), f32("a", 256), f32("b", 256), f32("y", 256))
    records = (kernel("n0", ["x"], "a"), kernel("n1", ["a"], "b"), kernel("n2", ["a", "b"], "y"))
    planned = plan(PlanInput(values, records, ("x",), ("y",)))
    check_plan(planned, {})
    a, b = planned.storages[0], planned.storages[1]
    for storages, text in [
        ((a, replace(b, offset=a.offset)), "two of its operands|overwritten"),
        ((a, replace(b, offset=a.offset + 512)), "two of its operands|overwritten"),  # type: ignore[operator]
        ((a, replace(b, offset=2048)), "leaves the arena"),
        ((replace(a, bytes=512), b), "leaves the storage"),
        ((a, replace(b, offset=1024 - 32)), "aligned|two of its operands"),
    ]:
        with pytest.raises(PlanError, match=text):
            check_plan(replace(planned, storages=storages), {})


def test_json_is_plain_and_stable() -> None:
    model = random_model(3, symbolic=True)
    text = json.dumps(model_to_json(plan_model(model)))
    assert text == json.dumps(model_to_json(plan_model(model)))


def test_edges_are_reduced_as_far_as_the_search_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    for searched in (4096, 4096, 0):
        monkeypatch.setattr(dependencies, "_SEARCHED", searched)
        for _ in range(60):
            count = rng.randint(1, 40)
            before = [set(rng.sample(range(n), min(n, rng.choice((0, 1, 1, 2, 3, 8))))) for n in range(count)]
            whole = nx.DiGraph()
            whole.add_nodes_from(range(count))
            whole.add_edges_from((a, b) for b, row in enumerate(before) for a in row)
            least = nx.transitive_reduction(whole)
            found = [(a, b) for b, row in enumerate(reduce_transitively(before)) for a in row]
            assert set(least.edges) <= set(found) <= set(whole.edges)
            assert searched == 0 or set(least.edges) == set(found)
