"""What a plan needs at least: the most bytes that are alive at one time."""

from __future__ import annotations

from collections.abc import Mapping

from graph_opt.plan.offsets import ALIGNMENT, peak
from graph_opt.plan.task_graph import Plan
from tensor_types.dims import evaluate


def live_bytes(plan: Plan, dims: Mapping[str, int]) -> int:
    """Bytes of all storages alive at the busiest task, run in program order: a lower bound of the arena.

    Storages that may lie on one another's bytes (in place) count once for the task where they meet.
    """
    spans: dict[int, list[int]] = {}
    for number, task in enumerate(plan.tasks):
        for operand in task.operands:
            if operand is not None and operand.place.space == "arena":
                spans.setdefault(operand.place.index, []).append(number)
    shared: dict[int, int] = {}
    for number, task in enumerate(plan.tasks):
        for out, source in task.may_alias:
            a, b = task.operands[out], task.operands[source]
            if a is None or b is None or a.place.space != "arena" or b.place.space != "arena":
                continue
            if spans[b.place.index][-1] == number and spans[a.place.index][0] == number:
                shared.setdefault(a.place.index, number)
    rows = []
    for storage, tasks in spans.items():
        size = -(-evaluate(plan.storages[storage].bytes, dims) // ALIGNMENT) * ALIGNMENT
        first = tasks[0] + (storage in shared)
        if first <= tasks[-1]:
            rows.append((size, first, tasks[-1]))
    return peak(rows)
