"""Placement: nothing alive at the same time overlaps, and orders that a single greedy round gets wrong meet the bound."""

from __future__ import annotations

import random

import pytest

from graph_opt.plan import offsets
from graph_opt.plan.offsets import Interval, assign_offsets


def busiest(intervals: list[Interval]) -> int:
    """The bytes alive at the busiest task, by counting every task."""
    tasks = range(max(i.last for i in intervals) + 1)
    return max(sum(i.bytes for i in intervals if i.first <= t <= i.last) for t in tasks)  # type: ignore[misc]


def place(*rows: tuple[int, int, int]) -> tuple[int, int]:
    """(arena, bound) of (units of 64 bytes, first, last), checked for overlaps."""
    intervals = [Interval(64 * size, first, last) for size, first, last in rows]
    placed, arena = assign_offsets(intervals)
    for n, (a, p) in enumerate(zip(intervals, placed, strict=True)):
        assert isinstance(p.offset, int) and isinstance(a.bytes, int) and isinstance(arena, int)
        assert 0 <= p.offset <= arena - a.bytes
        for b, q in zip(intervals[:n], placed[:n], strict=True):
            apart = p.offset + a.bytes <= q.offset or q.offset + b.bytes <= p.offset  # type: ignore[operator]
            assert apart or a.last < b.first or b.last < a.first
    assert isinstance(arena, int)
    return arena, busiest(intervals)


def test_the_largest_first_alone_would_miss_the_bound() -> None:
    arena, bound = place((7, 6, 7), (6, 4, 5), (4, 3, 5), (5, 4, 8))
    assert arena == bound


def test_random_lifetimes_are_apart_and_close_to_the_bound() -> None:
    rng = random.Random(7)
    ratios = []
    for _ in range(200):
        starts = [rng.randrange(30) for _ in range(rng.randint(1, 40))]
        arena, bound = place(*((rng.randint(1, 9), first, first + rng.randrange(6)) for first in starts))
        ratios.append(arena / bound)
    assert min(ratios) >= 1
    assert sum(ratios) / len(ratios) <= 1.02


def test_too_many_to_sort_are_placed_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "_MOST_PAIRS", 0)
    monkeypatch.setattr(offsets, "_PAIRS_EACH", 0)
    rng = random.Random(8)
    ratios = []
    for _ in range(200):
        starts = [rng.randrange(30) for _ in range(rng.randint(1, 40))]
        arena, bound = place(*((rng.randint(1, 9), first, first + rng.randrange(6)) for first in starts))
        ratios.append(arena / bound)
    assert sum(ratios) / len(ratios) <= 1.35
    assert place((2, 0, 1), (1, 0, 3), (2, 2, 3)) == (3 * 64, 3 * 64)  # the gap of the first serves the last
    assert place((1, 0, 1), (1, 0, 1), (1, 0, 9), (2, 2, 3)) == (3 * 64, 3 * 64)  # two gaps side by side are one
