"""Models with late sizes as rows of plans: what runs where, what is passed on, and soundness by the checker."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from graph_opt.plan import (
    AicpuRecord,
    AliasRecord,
    GuardedRequirement,
    KernelRecord,
    ModelPlan,
    PlanInput,
    Scheduled,
    ValueInfo,
    plan_model,
)
from graph_opt.plan.check_plan import check_plan
from tensor_types.dims import Dim, dim
from tensor_types.dtypes import BOOL, F32, I64
from tensor_types.errors import InvalidModel, UnsupportedOperator
from tensor_types.formats import PLAIN, Format, channels_last

sys.path.insert(0, str(Path(__file__).parent))
from random_models import operand

U0, U1 = dim("u0"), dim("u1")
LATE = {"u0": (0, 8), "u1": (0, None)}


def f32(name: str, *shape: Dim, kind: str = "temporary", format: Format = PLAIN) -> ValueInfo:
    return ValueInfo(name, F32, shape, kind, format)


def kernel(node: str, reads: list[str], write: str, guards: tuple[tuple[str, int], ...] = ()) -> Scheduled:
    operands = (*(operand(r) for r in reads), operand(write, "out"))
    return Scheduled(KernelRecord(f"program {node}", operands, (), 1, node, "region"), guards)


def host(op: str, reads: list[str], write: str, guards: tuple[tuple[str, int], ...] = ()) -> Scheduled:
    return Scheduled(AicpuRecord(op, tuple(reads), (write,), f"host_{write}"), guards)


def nodes(model: ModelPlan) -> list[list[str]]:
    """Nodes of the tasks of each segment, those that copy guards left out."""
    return [[t.node for t in s.plan.tasks if t.family != "guard"] for s in model.segments]


def assert_sound(model: ModelPlan) -> None:
    """Each plan holds for several sizes, and takes what the segments before it give."""
    for number, segment in enumerate(model.segments):
        for size in (0, 1, 7):
            check_plan(segment.plan, dict.fromkeys(segment.plan.dims, size))
        assert len(segment.sources) == len(segment.plan.inputs)
        for name, (row, index) in zip(segment.plan.inputs, segment.sources, strict=True):
            assert row <= number
            given = model.segments[row - 1].plan.outputs if row else model.segments[0].plan.inputs
            assert given[index] == name


def test_a_late_size_ends_a_segment() -> None:
    values = (
        f32("x", 8, kind="input"), ValueInfo("i", I64, (1, U0)), f32("a", 8), f32("b", U0), f32("y", U0), f32("z", 8),
    )  # fmt: skip
    records = (
        host("NonZero", ["x"], "i"), kernel("ka", ["x"], "a"), kernel("kb", ["a", "i"], "b"), kernel("ky", ["b"], "y"),
        kernel("kz", ["a"], "z"),
    )  # fmt: skip
    model = plan_model(PlanInput(values, records, ("x",), ("y", "z", "i"), late_dims=LATE))
    assert nodes(model) == [["host_i", "ka", "kz"], ["kb", "ky"]]
    first, second = (s.plan for s in model.segments)
    assert first.outputs == ("z", "i", "a")  # results first, then what is passed on
    assert first.places["i"].space == "object" and first.places["a"].space == "output"
    assert second.inputs == ("i", "a") and model.segments[1].sources == ((1, 1), (1, 2))
    assert second.places["b"].space == "arena" and second.places["y"].space == "output"
    assert model.outputs == ((2, 0), (1, 0), (1, 1))
    assert first.dims == {} and second.dims == {"u0": (0, 8)}
    assert model.programs == ("program ka", "program kz", "program kb", "program ky")
    assert_sound(model)


def test_the_host_waits_for_nothing_and_two_decisions_are_two_segments() -> None:
    values = (
        f32("x", 8, kind="input"), ValueInfo("i", I64, (1, U0)), f32("c", U0), f32("d", U0), ValueInfo("j", I64, (U1,)),
        f32("y", U1, U0),
    )  # fmt: skip
    records = (
        host("NonZero", ["x"], "i"), host("Cast", ["i"], "c"), kernel("kd", ["c"], "d"), host("Unique", ["d"], "j"),
        kernel("ky", ["j"], "y"),
    )  # fmt: skip
    model = plan_model(PlanInput(values, records, ("x",), ("y",), late_dims=LATE))
    assert nodes(model) == [["host_i", "host_c"], ["kd", "host_j"], ["ky"]]
    assert model.segments[1].plan.places["d"].space == "arena"  # an AI CPU task reads it there
    # `y` has a size that no operand of its segment shows: the tensor that tells it comes along.
    assert set(model.segments[2].plan.inputs) == {"i", "j"}
    assert model.segments[2].sources[model.segments[2].plan.inputs.index("i")][0] == 1
    assert_sound(model)


def test_a_size_that_no_host_task_decides_is_refused() -> None:
    values = (f32("x", 8, kind="input"), f32("a", U0), f32("y", U0))
    for record in (kernel("k", ["x"], "y"), Scheduled(AliasRecord("y", "x", "k"))):
        with pytest.raises(UnsupportedOperator, match="u0"):
            plan_model(PlanInput(values, (record,), ("x",), ("y",), late_dims=LATE))


def test_a_size_that_depends_on_a_tensor_written_later_is_refused() -> None:
    values = (f32("x", 8, kind="input"), f32("y", 8), ValueInfo("i", I64, (1, U0)))
    records = (kernel("first", ["x"], "y"), host("NonZero", ["y"], "i"), kernel("second", ["i"], "y"))
    with pytest.raises(InvalidModel, match="before and after"):
        plan_model(PlanInput(values, records, ("x",), ("y",), late_dims=LATE))


def test_what_is_passed_on_keeps_its_format() -> None:
    nhwc = channels_last(4)
    values = (
        f32("x", 1, 3, 4, 4, kind="input"), f32("f", 1, 3, 4, 4, format=nhwc), ValueInfo("i", I64, (1, U0)),
        f32("y", U0, 3, 4, 4),
    )  # fmt: skip
    records = (kernel("kf", ["x"], "f"), host("NonZero", ["x"], "i"), kernel("ky", ["f", "i"], "y"))
    model = plan_model(PlanInput(values, records, ("x",), ("y",), late_dims=LATE))
    first, second = (s.plan for s in model.segments)
    assert first.places["f"].space == "output" and first.values["f"].format == second.values["f"].format == nhwc
    assert first.output_copies == ((first.outputs.index("i"), "i"),)
    assert_sound(model)


def test_writers_of_one_value_stay_together() -> None:
    values = (f32("x", 8, kind="input"), ValueInfo("i", I64, (1, U0)), f32("s", U0), f32("y", 16))
    records = (
        host("NonZero", ["x"], "i"), kernel("left", ["x"], "y"), kernel("ks", ["i"], "s"), kernel("right", ["s"], "y"),
    )  # fmt: skip
    assert nodes(plan_model(PlanInput(values, records, ("x",), ("y",), late_dims=LATE))) == [
        ["host_i"], ["left", "ks", "right"],
    ]  # fmt: skip


def test_a_tensor_without_elements_that_no_record_makes() -> None:
    values = (f32("x", 8, kind="input"), ValueInfo("i", I64, (1, U0)), f32("none", 0, 4), f32("y", U0, 4))
    records = (host("NonZero", ["x"], "i"), kernel("k", ["none", "i"], "y"))
    model = plan_model(PlanInput(values, records, ("x",), ("y",), late_dims=LATE))
    assert model.segments[1].plan.inputs == ("i",)
    assert model.segments[1].plan.places["none"].space == "arena"


def test_the_host_waits_for_the_extents_of_a_tensor_without_elements() -> None:
    values = (
        f32("x", 8, kind="input"), ValueInfo("i", I64, (1, U0)), f32("nothing", 0, U0), f32("y", 0, U0),
    )  # fmt: skip
    model = plan_model(
        PlanInput(values, (host("NonZero", ["x"], "i"), host("CumSum", ["nothing"], "y")), ("x",), ("y",), {}, (), LATE)
    )
    assert nodes(model) == [["host_i"], ["host_y"]]
    assert_sound(model)


def test_conditions_reach_later_segments_and_so_do_requirements() -> None:
    values = (
        f32("x", 8, kind="input"), ValueInfo("flag", BOOL, (), "input"), ValueInfo("c", BOOL, ()),
        ValueInfo("i", I64, (1, U0)), f32("t", U0), f32("y", 8),
    )  # fmt: skip
    on, off = (("c", 1),), (("c", 0),)
    records = (
        kernel("kc", ["flag"], "c"), host("NonZero", ["x"], "i", on), kernel("kt", ["i"], "t", on),
        kernel("merge1", ["t"], "y", on), kernel("merge0", ["x"], "y", off),
    )  # fmt: skip
    requirements = (GuardedRequirement(U0, 5, "equal", "kt", on), GuardedRequirement(U0, 6, "broadcast", "elsewhere"), GuardedRequirement(U0, 7, "broadcast", "kt", (("d", 1),)))
    model = plan_model(PlanInput(values, records, ("x", "flag"), ("y",), {}, requirements, LATE))
    assert nodes(model) == [["kc", "host_i"], ["kt", "merge1", "merge0"]]
    first, second = (s.plan for s in model.segments)
    assert first.requirements == () and "c" in second.inputs
    assert [(d.right, guard) for d, guard in second.requirements] == [(5, (0, 1)), (6, None)]
    by_node = {t.node: t.guard for t in second.tasks if t.family != "guard"}
    assert by_node == {"kt": (0, 1), "merge1": (0, 1), "merge0": (0, 0)}
    assert_sound(model)


def test_models_without_late_sizes_are_one_segment() -> None:
    values = (f32("x", dim("n"), kind="input"), f32("a", dim("n")), f32("y", dim("n")), f32("w", 3, kind="constant"))
    records = (kernel("ka", ["x", "w"], "a"), host("Neg", ["a"], "y"))
    model = plan_model(PlanInput(values, records, ("x",), ("y", "x", "y"), {"n": (1, None)}))
    assert nodes(model) == [["ka", "host_y"]] and model.segments[0].sources == ((0, 0),)
    assert model.segments[0].plan.outputs == ("y", "x", "y") and model.outputs == ((1, 0), (1, 1), (1, 2))
    assert_sound(model)


@pytest.mark.parametrize("seed", range(12))
def test_random_models_with_late_sizes(seed: int) -> None:
    """Every record runs once, after what it reads, in a segment that knows its sizes, and every plan is sound."""
    rng = random.Random(seed)
    sizes: list[Dim] = [64]
    values, records, made = [f32("x", 64, kind="input")], [], {"x": [64]}
    late: dict[str, tuple[int, int | None]] = {}
    for number in range(30):
        reads, name = rng.sample(list(made), min(len(made), rng.choice((1, 2, 3)))), f"v{number}"
        if rng.random() < 0.15:
            late[f"u{len(late)}"] = (0, None)
            sizes.append(dim(f"u{len(late) - 1}"))
            values.append(f32(name, sizes[-1]))
            records.append(host("Unique", reads, name))
        else:
            known = [s for s in sizes if s == 64 or rng.random() < 0.7]
            values.append(f32(name, rng.choice(known) * rng.choice((1, 2, 4))))
            records.append(rng.choice((kernel, host))(f"n{number}", reads, name))
        made[name] = reads
    wanted = tuple(rng.sample([v.name for v in values], 4))
    model = plan_model(PlanInput(tuple(values), tuple(records), ("x",), wanted, late_dims=late))
    assert_sound(model)
    tasks = [t for s in model.segments for t in s.plan.tasks]
    assert len(tasks) == len(records)
    there = {"x"}
    for task in tasks:
        reads = {o.value for o in task.operands if o is not None and o.role == "in"}
        assert reads <= there
        there |= {o.value for o in task.operands if o is not None and o.role == "out"}
        if task.program is not None:
            assert all(o.place.space != "object" for o in task.operands if o is not None)
    results = [model.segments[row - 1].plan.outputs[n] for row, n in model.outputs]
    assert results == list(wanted)
    assert len(model.segments) > 1 or not late
