"""Arena offsets: lowest fit over lifetimes in program order, improved until the lower bound is met.

Sizes may be dim expressions. Groups whose sizes are multiples of one expression are placed together, as integers in
units of it: `768*4*batch*sequence` and `3072*4*batch*sequence` share one block of `batch*sequence` units. A model
without named dims has one block, of unit 1. Where integers of a block are no multiples of 64, the unit is rounded up
so that every offset is one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import gcd

from tensor_types.dims import Dim, Expr, ceildiv

ALIGNMENT = 64
_ROUNDS = 64
"""Real networks meet the bound within 20."""
_MOST_PAIRS, _PAIRS_EACH = 1 << 18, 32
"""Pairs of intervals alive together up to which they are placed by size, for all and for each: real networks have some
ten an interval."""
_MOST_STEPS = 1 << 21
"""Pairs that all rounds together look at, about."""


@dataclass(frozen=True)
class Interval:
    """Bytes wanted from task `first` to task `last`, both included."""

    bytes: Dim
    first: int
    last: int


@dataclass(frozen=True)
class Placed:
    """Where an interval lies: `start` .. `end` in units of block `block`, and the same start as bytes of the arena."""

    block: int
    start: int
    end: int
    offset: Dim


def split_unit(size: Dim) -> tuple[int, Dim]:
    """The size as (integer factor, unit): factor * unit == size."""
    if isinstance(size, int):
        return size, 1
    factor = gcd(*(f for _, f in size.terms))
    return factor, Expr(tuple((m, f // factor) for m, f in size.terms))


def assign_offsets(intervals: Sequence[Interval]) -> tuple[list[Placed], Dim]:
    """A place for every interval, those alive at the same time apart, and the bytes of the arena."""
    units: dict[Dim, list[int]] = {}
    factors: list[int] = []
    for number, interval in enumerate(intervals):
        factor, unit = split_unit(interval.bytes)
        factors.append(-(-factor // ALIGNMENT) * ALIGNMENT if unit == 1 else factor)
        units.setdefault(unit, []).append(number)
    placed: dict[int, Placed] = {}
    base: Dim = 0
    for block, unit in enumerate(sorted(units, key=lambda u: (isinstance(u, Expr), str(u)))):
        members = units[unit]
        step = ALIGNMENT // gcd(ALIGNMENT, *(factors[n] for n in members))
        unit = ceildiv(unit, step) * step
        starts = _pack([(factors[n], intervals[n].first, intervals[n].last) for n in members])
        for number, start in zip(members, starts, strict=True):
            placed[number] = Placed(block, start, start + factors[number], base + unit * start)
        base = base + unit * max(s + factors[n] for s, n in zip(starts, members, strict=True))
    return [placed[n] for n in range(len(intervals))], base


def _pack(wanted: Sequence[tuple[int, int, int]]) -> list[int]:
    """Starts of (size, first, last), the largest placed first.

    What ends above the lower bound has come too late: it moves to the front, the latest first, and all are placed
    again, until the bound is met or `_ROUNDS` or `_MOST_STEPS` are over. The best round counts. Where too many are
    alive together for that, they are placed in the order in which they come to life.
    """
    together = _together(wanted)
    if together is None:
        return _place_in_time(wanted)
    bound = peak(wanted)
    order = sorted(range(len(wanted)), key=lambda n: (-wanted[n][0], wanted[n][1], n))
    lowest, best = -1, [0] * len(wanted)
    pairs = sum(map(len, together))
    for _ in range(max(1, min(_ROUNDS, _MOST_STEPS // max(1, pairs)))):
        starts = _place(wanted, order, together)
        ends = [start + size for start, (size, _, _) in zip(starts, wanted, strict=True)]
        if lowest < 0 or max(ends, default=0) < lowest:
            lowest, best = max(ends, default=0), starts
        if lowest <= bound:
            break
        late = [n for n in order if ends[n] > bound]
        order = [*reversed(late), *(n for n in order if ends[n] <= bound)]
    return best


def _together(wanted: Sequence[tuple[int, int, int]]) -> list[list[int]] | None:
    """For each, those that are alive with it at some time; None if these are too many pairs."""
    found: list[list[int]] = [[] for _ in wanted]
    alive: dict[int, None] = {}
    leaving: list[tuple[int, int]] = []
    pairs = 0
    for number in sorted(range(len(wanted)), key=lambda n: wanted[n][1]):
        _, first, last = wanted[number]
        while leaving and leaving[0][0] < first:
            del alive[heappop(leaving)[1]]
        pairs += len(alive)
        if pairs > max(_MOST_PAIRS, _PAIRS_EACH * len(wanted)):
            return None
        for other in alive:
            found[other].append(number)
        found[number].extend(alive)
        alive[number] = None
        heappush(leaving, (last, number))
    return found


def _place(
    wanted: Sequence[tuple[int, int, int]], order: Sequence[int], together: Sequence[Sequence[int]]
) -> list[int]:
    """Each in turn at the lowest start that keeps it apart from those placed before and alive with it."""
    starts = [-1] * len(wanted)
    for number in order:
        size, position = wanted[number][0], 0
        for start, other in sorted((starts[o], o) for o in together[number] if starts[o] >= 0):
            if start - position >= size:
                break
            position = max(position, start + wanted[other][0])
        starts[number] = position
    return starts


def _place_in_time(wanted: Sequence[tuple[int, int, int]]) -> list[int]:
    """Each in the first gap that is long enough when its life begins."""
    starts = [0] * len(wanted)
    gaps: list[tuple[int, int]] = []  # (start, end), sorted and apart
    top = 0
    leaving: list[tuple[int, int]] = []
    for number in sorted(range(len(wanted)), key=lambda n: (wanted[n][1], -wanted[n][0], n)):
        size, first, last = wanted[number]
        while leaving and leaving[0][0] < first:
            gone = heappop(leaving)[1]
            _give_back(gaps, starts[gone], starts[gone] + wanted[gone][0])
        found = next((i for i, (start, end) in enumerate(gaps) if end - start >= size), None)
        if found is not None:
            start, end = gaps[found]
            gaps[found : found + 1] = [(start + size, end)] if end - start > size else []
        else:
            if gaps and gaps[-1][1] == top:
                start = gaps.pop()[0]
            else:
                start = top
            top = start + size
        starts[number] = start
        if size:
            heappush(leaving, (last, number))
    return starts


def _give_back(gaps: list[tuple[int, int]], start: int, end: int) -> None:
    """Adds a gap and joins it to those that it touches."""
    at = bisect_left(gaps, (start, end))
    low, high = at, at
    if at and gaps[at - 1][1] == start:
        low, start = at - 1, gaps[at - 1][0]
    if at < len(gaps) and gaps[at][0] == end:
        high, end = at + 1, gaps[at][1]
    gaps[low:high] = [(start, end)]


def peak(wanted: Sequence[tuple[int, int, int]]) -> int:
    """The most that (size, first, last) intervals need at one time: no arena can be smaller."""
    changes: dict[int, int] = {}
    for size, first, last in wanted:
        changes[first] = changes.get(first, 0) + size
        changes[last + 1] = changes.get(last + 1, 0) - size
    now = highest = 0
    for at in sorted(changes):
        now += changes[at]
        highest = max(highest, now)
    return highest
