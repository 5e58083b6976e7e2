"""Edges between tasks from the bytes that they touch: read after write, write after read, write after write."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Access:
    """Units `start` .. `end` of something (`space`) are read, or written if `write`."""

    space: Hashable
    start: int
    end: int
    write: bool


@dataclass
class _Segment:
    """A run of units with the same history: who wrote it last (-1: nobody), and who has read it since."""

    start: int
    end: int
    writer: int
    readers: tuple[int, ...]


def predecessors(accesses: Sequence[Sequence[Access]]) -> list[set[int]]:
    """For each task, in program order, the tasks that must end before it.

    A task that its guard skips still ends after its predecessors, so the order holds through it.
    """
    spaces: dict[Hashable, list[_Segment]] = {}
    result: list[set[int]] = []
    for task, touched in enumerate(accesses):
        before: set[int] = set()
        for access in touched:
            for segment in _cut(spaces.setdefault(access.space, []), access.start, access.end):
                before.add(segment.writer)
                if access.write:
                    before.update(segment.readers)
        for access in touched:
            for segment in _cut(spaces[access.space], access.start, access.end):
                if not access.write:
                    segment.readers = (*segment.readers, task)
        for access in touched:
            for segment in _cut(spaces[access.space], access.start, access.end):
                if access.write:
                    segment.writer, segment.readers = task, ()
        before -= {task, -1}
        result.append(before)
    return result


def _cut(segments: list[_Segment], start: int, end: int) -> list[_Segment]:
    """The segments that make up start .. end exactly; splits those that reach over and fills gaps with new ones."""
    if start >= end:
        return []
    inside: list[_Segment] = []
    rest: list[_Segment] = []
    position = start
    for segment in segments:
        if segment.end <= start or segment.start >= end:
            rest.append(segment)
            continue
        if segment.start < start:
            rest.append(_Segment(segment.start, start, segment.writer, segment.readers))
        if segment.end > end:
            rest.append(_Segment(end, segment.end, segment.writer, segment.readers))
        low, high = max(segment.start, start), min(segment.end, end)
        if low > position:
            inside.append(_Segment(position, low, -1, ()))
        inside.append(_Segment(low, high, segment.writer, segment.readers))
        position = high
    if position < end:
        inside.append(_Segment(position, end, -1, ()))
    segments[:] = sorted((*rest, *inside), key=lambda s: s.start)
    return inside


def reduce_transitively(before: Sequence[set[int]]) -> list[tuple[int, ...]]:
    """The same order with the edges that others imply left out. Predecessors have lower numbers."""
    reach: list[int] = []
    result: list[tuple[int, ...]] = []
    for task, direct in enumerate(before):
        reached, kept = 0, []
        for other in sorted(direct, reverse=True):
            if not reached >> other & 1:
                kept.append(other)
                reached |= reach[other]
        reach.append(reached | 1 << task)
        result.append(tuple(reversed(kept)))
    return result
