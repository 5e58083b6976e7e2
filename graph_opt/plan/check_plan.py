"""An independent check of a plan: is every tensor that a task reads still the one that was written?

Shares no code with the planner: it takes the finished plan with dims as numbers and reasons over bytes and paths.

1. Storages lie in the arena, operands in their storage; edges lead to later tasks.
2. Two tasks that touch a common byte, one of them writing, are joined by a path.
3. Run in order, every byte that a task reads was last written for that tensor (or one that it is a view of). In a
   state that is its version: an update finds the version before its own, every other task its own, and all versions
   are made one after another.
4. One task does not write a byte that it reads or writes through another operand, unless the kernel allows it.
"""

from __future__ import annotations

from collections.abc import Mapping

import networkx as nx
import numpy as np

from graph_opt.plan.task_graph import Operand, Plan, Task
from tensor_types.dims import evaluate
from tensor_types.errors import OpenAtcError


class PlanError(OpenAtcError):
    """The plan breaks a rule; `where` names the node and the tensor."""

    default_code = "E17002"


Span = tuple[str, int, int]
"""A space ('arena', 'output 0', 'guard 3', ...) and the bytes start .. end in it."""


def check_plan(plan: Plan, dims: Mapping[str, int]) -> None:
    """PlanError at the first broken rule for these dims."""
    spans = [[None if o is None else _span(plan, t, o, dims) for o in t.operands] for t in plan.tasks]
    order = nx.DiGraph()
    order.add_nodes_from(range(len(plan.tasks)))
    for number, task in enumerate(plan.tasks):
        for before in task.after:
            if not 0 <= before < number:
                raise PlanError("an edge leads backwards", where={"node": task.node})
            order.add_edge(before, number)
    after: dict[int, set[int]] = {n: nx.descendants(order, n) for n in order}
    touches: dict[str, list[tuple[int, int, int, bool]]] = {}
    for number, task in enumerate(plan.tasks):
        for operand, span in zip(task.operands, spans[number], strict=True):
            if operand is not None and span is not None and span[1] < span[2]:
                touches.setdefault(span[0], []).append((number, span[1], span[2], operand.role != "in"))
        if task.guard is not None:
            touches.setdefault(f"guard {task.guard[0]}", []).append((number, 0, 1, False))
        _check_task(task, spans[number])
    for space, rows in touches.items():
        for i, (task_a, start_a, end_a, write_a) in enumerate(rows):
            for task_b, start_b, end_b, write_b in rows[i + 1 :]:
                meet = start_a < end_b and start_b < end_a and (write_a or write_b) and task_a != task_b
                if meet and task_b not in after[task_a] and task_a not in after[task_b]:
                    raise PlanError(
                        f"nothing orders it after {plan.tasks[task_a].node}, which touches the same bytes of {space}",
                        where={"node": plan.tasks[task_b].node},
                    )
    _check_contents(plan, spans)


def _span(plan: Plan, task: Task, operand: Operand, dims: Mapping[str, int]) -> Span | None:
    """The bytes that an operand stands for; None where nothing can be overwritten."""
    place = operand.place
    offset, size = evaluate(place.offset, dims), evaluate(operand.bytes, dims)
    where = {"node": task.node, "tensor": operand.value or "workspace"}
    if place.space in ("input", "constant"):
        if operand.role != "in":
            raise PlanError(f"it writes its {place.space}", where=where)
        return None
    if place.space == "object":
        return f"object {place.index}", 0, 1
    if place.space == "guard":
        return f"guard {place.index}", 0, 1
    if place.space == "state":
        return f"state {place.index}", offset, offset + size
    if place.space == "output":
        return f"output {place.index}", offset, offset + size
    storage = plan.storages[place.index]
    start, length, arena = (evaluate(d, dims) for d in (storage.offset, storage.bytes, plan.arena))
    if start < 0 or start + length > arena:
        raise PlanError("its storage leaves the arena", where=where)
    if offset < 0 or offset + size > length:
        raise PlanError("its operand leaves the storage", where=where)
    if start % 64:
        raise PlanError("its storage is not 64-byte aligned", where=where)
    return "arena", start + offset, start + offset + size


def _check_task(task: Task, spans: list[Span | None]) -> None:
    for i, (a, span_a) in enumerate(zip(task.operands, spans, strict=True)):
        for j, (b, span_b) in enumerate(zip(task.operands, spans, strict=True)):
            if a is None or b is None or span_a is None or span_b is None or i == j or a.role == "in":
                continue
            if span_a[0] == span_b[0] and span_a[1] < span_b[2] and span_b[1] < span_a[2]:
                if (i, j) in task.may_alias and span_a == span_b:
                    continue
                raise PlanError("two of its operands share bytes", where={"node": task.node})


def _check_contents(plan: Plan, spans: list[list[Span | None]]) -> None:
    """Runs the tasks in order over an image of memory that holds, for each byte, the tensor it was written for."""
    families = {name: n for n, name in enumerate(plan.places)}
    for name, place in plan.places.items():  # views of one storage are one tensor
        first = next(n for n, p in plan.places.items() if (p.space, p.index) == (place.space, place.index))
        families[name] = families[first]
    version_of = {version: len(families) + n for n, (version, _) in enumerate(plan.versions.values())}
    families.update((name, version_of[version]) for name, (version, _) in plan.versions.items())
    overwrites = {name: version_of[before] for name, (_, before) in plan.versions.items() if before is not None}
    sizes: dict[str, int] = {}
    for span in (s for row in spans for s in row if s is not None):
        sizes[span[0]] = max(sizes.get(span[0], 0), span[2])
    memory = {space: np.full(size, -1, np.int64) for space, size in sizes.items()}
    for number, name in enumerate(plan.states):
        memory.setdefault(f"state {number}", np.empty(0, np.int64))[:] = version_of[name]
    for task, row in zip(plan.tasks, spans, strict=True):
        pairs = [(o, s) for o, s in zip(task.operands, row, strict=True) if o is not None and s is not None]
        for operand, (space, start, end) in pairs:
            if operand.role in ("in", "inout") and operand.value is not None:
                held = memory[space][start:end]
                is_update = operand.role == "inout" and operand.value in overwrites
                if (held != (overwrites if is_update else families)[operand.value]).any():
                    raise PlanError(
                        "what it reads was overwritten or never written",
                        where={"node": task.node, "tensor": operand.value},
                    )
        for operand, (space, start, end) in pairs:
            if operand.role != "in":
                memory[space][start:end] = -2 if operand.value is None else families[operand.value]
    for name, before in overwrites.items():
        held = memory[f"state {plan.places[name].index}"]
        if plan.values[name].bytes != 0 and (not held.size or (held == before).any()):
            raise PlanError("an update of a state is not made", where={"tensor": name})
    for _, name in plan.output_copies:
        place = plan.places[name]
        if place.space == "arena":
            last = [s for t, r in zip(plan.tasks, spans, strict=True) for o, s in zip(t.operands, r, strict=True)
                    if o is not None and s is not None and o.place == place]  # fmt: skip
            if any((memory[space][start:end] != families[name]).any() for space, start, end in last[-1:]):
                raise PlanError("an output was overwritten before the end", where={"tensor": name})
