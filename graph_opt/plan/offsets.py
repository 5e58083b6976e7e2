"""Arena offsets: best fit by size over lifetimes in program order.

Sizes may be dim expressions. Groups whose sizes are multiples of one expression are placed together, as integers in
units of it: `768*4*batch*sequence` and `3072*4*batch*sequence` share one block of `batch*sequence` units. A model
without named dims has one block, of unit 1. Where integers of a block are no multiples of 64, the unit is rounded up
so that every offset is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from tensor_types.dims import Dim, Expr, ceildiv

ALIGNMENT = 64


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
        starts = _best_fit([(factors[n], intervals[n].first, intervals[n].last) for n in members])
        for number, start in zip(members, starts, strict=True):
            placed[number] = Placed(block, start, start + factors[number], base + unit * start)
        base = base + unit * max(s + factors[n] for s, n in zip(starts, members, strict=True))
    return [placed[n] for n in range(len(intervals))], base


def _best_fit(wanted: Sequence[tuple[int, int, int]]) -> list[int]:
    """Starts of (size, first, last): the best of several orders of greedy placement."""
    orders = [
        sorted(range(len(wanted)), key=lambda n: (-wanted[n][0], wanted[n][1], n)),
        sorted(range(len(wanted)), key=lambda n: (-wanted[n][0] * (wanted[n][2] - wanted[n][1] + 1), n)),
        sorted(range(len(wanted)), key=lambda n: (wanted[n][1], -wanted[n][0], n)),
    ]
    bound = peak(wanted)
    best: tuple[int, list[int]] | None = None
    for order in orders:
        starts = _greedy(wanted, order)
        total = max((s + w[0] for s, w in zip(starts, wanted, strict=True)), default=0)
        if best is None or total < best[0]:
            best = (total, starts)
        if total == bound:
            break
    return best[1] if best else []


def _greedy(wanted: Sequence[tuple[int, int, int]], order: Sequence[int]) -> list[int]:
    """Each in turn into the smallest gap that fits between those placed before and alive with it."""
    starts = [0] * len(wanted)
    done: list[tuple[int, int, int, int]] = []  # start, end, first, last, sorted by start
    for number in order:
        size, first, last = wanted[number]
        position, best, best_gap = 0, None, None
        for start, end, other_first, other_last in done:
            if other_first > last or other_last < first:
                continue
            gap = start - position
            if gap >= size and (best_gap is None or gap < best_gap):
                best, best_gap = position, gap
            position = max(position, end)
        starts[number] = position if best is None else best
        done.append((starts[number], starts[number] + size, first, last))
        done.sort()
    return starts


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
