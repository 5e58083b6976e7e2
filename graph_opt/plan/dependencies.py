"""Edges between tasks from the bytes that they touch: read after write, write after read, write after write."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

_SEARCHED = 4096
"""Tasks that are looked at, at most, to leave out the edges of one."""
_SEEN = 64
"""Tasks that are looked at where there is nothing to leave out."""


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
    readers: list[int]

    def part(self, start: int, end: int) -> _Segment:
        """Some of its units as a segment of their own."""
        return _Segment(start, end, self.writer, list(self.readers))


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
                if not access.write and segment.readers[-1:] != [task]:
                    segment.readers.append(task)
        for access in touched:
            for segment in _cut(spaces[access.space], access.start, access.end):
                if access.write:
                    segment.writer, segment.readers = task, []
        before -= {task, -1}
        result.append(before)
    return result


def _cut(segments: list[_Segment], start: int, end: int) -> list[_Segment]:
    """The segments that make up start .. end exactly; splits those that reach over and fills gaps with new ones.

    `segments` are sorted and apart, so only those that meet the span are looked at.
    """
    if start >= end:
        return []
    first = bisect_right(segments, start, key=lambda s: s.end)
    last = bisect_left(segments, end, key=lambda s: s.start)
    met = segments[first:last]
    if len(met) == 1 and (met[0].start, met[0].end) == (start, end):
        return met
    before = [s.part(s.start, start) for s in met[:1] if s.start < start]
    behind = [s.part(end, s.end) for s in met[-1:] if s.end > end]
    inside: list[_Segment] = []
    position = start
    for segment in met:
        low, high = max(segment.start, start), min(segment.end, end)
        if low > position:
            inside.append(_Segment(position, low, -1, []))
        inside.append(segment.part(low, high))
        position = high
    if position < end:
        inside.append(_Segment(position, end, -1, []))
    segments[first:last] = [*before, *inside, *behind]
    return inside


def reduce_transitively(before: Sequence[set[int]]) -> list[tuple[int, ...]]:
    """The same order with the edges that others imply left out. Predecessors have lower numbers.

    An edge that a search of `_SEARCHED` tasks does not show to be implied stays: it costs a little time, no more.
    """
    ends = set(range(len(before))).difference(*before)
    covered: list[int] = []  # all tasks below this one lead to the task, except those that lead nowhere
    result: list[tuple[int, ...]] = []
    leads: set[int] = set()  # tasks that lead to another one of those so far
    for task, direct in enumerate(before):
        low = max((covered[d] for d in direct), default=0)
        implied, seen = _search(direct, low, result, leads) if len(direct) > 1 else (set(), direct)
        result.append(tuple(sorted(direct - implied)))
        leads.update(result[-1])
        while low < task and (low in seen or low in ends):
            low += 1
        covered.append(low)
    return result


def _search(
    direct: set[int], low: int, edges: Sequence[tuple[int, ...]], leads: set[int]
) -> tuple[set[int], set[int]]:
    """Those of `direct` that others of them lead back to, and the tasks from `low` on that were seen on the way.

    Whatever lies below `low` is reached, and what leads nowhere yet is not. Below what is looked for nothing is found,
    but a few tasks are seen there all the same, which lets `low` rise.
    """
    implied = {d for d in direct if d < low}
    pending = [d for d in direct if d >= low]
    seen = set(pending)
    sought = seen & leads
    lowest = min(sought, default=0)
    while pending and len(seen) < (_SEARCHED if sought else _SEEN):
        for other in edges[pending.pop()]:
            if other in direct:
                implied.add(other)
                sought.discard(other)
            if other >= low and other not in seen and (other >= lowest or len(seen) < _SEEN):
                seen.add(other)
                pending.append(other)
    return implied, seen
