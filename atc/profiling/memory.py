"""The arena over time: which bytes each storage takes, from the first task that touches it to the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from acl_runtime.plan_format import SegmentPlan
from tensor_types.dims import evaluate, names


@dataclass(frozen=True)
class Block:
    """A storage: bytes at an offset of the arena, alive from task `first` to `last`; `value` is its first tensor."""

    value: str
    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryUse:
    """arena: its bytes; peak: the most that live at a time; live: bytes alive during each task."""

    arena: int
    peak: int
    live: list[int]
    blocks: list[Block]


def model_memory(segments: Sequence[SegmentPlan], dims: Mapping[str, int]) -> MemoryUse:
    """Of segments one after another, which use one arena in turns; tasks count through. Storages whose size only a run
    tells are left out."""
    uses = [memory_use(s, dims) for s in segments]
    blocks, first = [], 0
    for use in uses:
        blocks += [replace(b, first=b.first + first, last=b.last + first) for b in use.blocks]
        first += len(use.live)
    live = [n for use in uses for n in use.live]
    return MemoryUse(max(u.arena for u in uses), max(live, default=0), live, blocks)


def memory_use(plan: SegmentPlan, dims: Mapping[str, int]) -> MemoryUse:
    """Of a segment with these sizes; storages whose size is not known are left out."""
    held: dict[int, str] = {}
    for value in plan.values:
        if value.place is not None and value.place.space == "arena":
            held.setdefault(value.place.index, value.name)
    span: dict[int, tuple[int, int]] = {}
    for number, task in enumerate(plan.tasks):
        places = [*task.operands, *(plan.values[v].place for v in (*task.inputs, *task.outputs) if v is not None)]
        for place in places:
            if place is not None and place.space == "arena":
                first, _ = span.get(place.index, (number, number))
                span[place.index] = (first, number)
    blocks = []
    for index, (size, offset) in enumerate(plan.storages):
        if index in span and names(size) | names(offset) <= dims.keys():
            blocks.append(Block(held.get(index, "scratch"), evaluate(offset, dims), evaluate(size, dims), *span[index]))
    live = [sum(b.bytes for b in blocks if b.first <= t <= b.last) for t in range(len(plan.tasks))]
    arena = evaluate(plan.arena, dims) if names(plan.arena) <= dims.keys() else 0
    return MemoryUse(arena, max(live, default=0), live, blocks)
