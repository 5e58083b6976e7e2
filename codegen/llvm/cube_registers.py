"""The shape of a register tile and how an extent is cut into register tiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from codegen.llvm.text import Function, Value
from codegen.targets.hosts import HostClass

LATENCY_CHAINS = 8
"""Independent accumulators that keep two multiply-add pipes of four cycles latency busy."""
_MAX_ROWS = 12
_EXACT_REMAINDERS = 6
"""Up to this many rows a run-time m has a variant for each remainder; above, one for each power of two."""


def vectors_per_tile(target: HostClass, total: int, rows: int = 0, panel: bool = True) -> int:
    """Vectors of n in one register tile when `total` vectors are to be covered: equal parts, as wide as is useful.

    When a narrower tile holds all `rows` of a short m axis it is preferred, as it reads b once. A single row takes b's
    rows as wide as its accumulators allow, unless b is a `panel`, which lies in the order of narrow tiles.
    """
    widest = 4 if target.registers >= 32 else 2
    if rows == 1 and not panel:
        widest = LATENCY_CHAINS
    fitting = [v for v in range(2, widest + 1) if rows and rows_per_tile(target, v) >= rows]
    parts = -(-total // max(fitting, default=widest))
    return -(-total // parts)


def accumulators(target: HostClass) -> int:
    """Vector registers that may hold accumulators: three quarters of them, half without FMA.

    The rest holds two steps' worth of b, a broadcast, masks and, without FMA, products. LLVM's scheduler loads ahead of
    use and spills accumulators as soon as less is left (7x64 and 14x32 of AVX-512 lose up to half of their rate).
    """
    return target.registers * 3 // 4 if target.engines.fma else target.registers // 2


def rows_per_tile(target: HostClass, vectors: int) -> int:
    """Rows of a tile `vectors` wide."""
    return max(1, min(_MAX_ROWS, accumulators(target) // vectors))


def accumulator_sets(target: HostClass, rows: int, vectors: int, chains: int = LATENCY_CHAINS) -> int:
    """Copies of the accumulators over which k is dealt out, so that few rows do not wait for the latency, which so
    many independent `chains` hide."""
    sets = 1
    while rows * vectors * sets < chains and 2 * sets * rows * vectors <= accumulators(target):
        sets *= 2
    return sets


def balanced_split(extent: int, most: int) -> list[tuple[int, int, int]]:
    """(start, count, size): the extent as few parts of nearly equal size, none above `most`, larger ones first."""
    if extent <= 0:
        return []
    parts = -(-extent // most)
    size, larger = divmod(extent, parts)
    split = [(0, larger, size + 1)] if larger else []
    return [*split, (larger * (size + 1), parts - larger, size)]


def cut(fn: Function, extent: Value, most: int, body: Callable[[Value, int], None]) -> None:
    """Calls `body(start, size)` for a cover of the extent by parts of at most `most`."""
    if isinstance(extent, int):
        for first, count, size in balanced_split(extent, most):
            with fn.loop(first + count * size, size, first) as start:
                body(start, size)
        return
    full = fn.mul(fn.floordiv(extent, most), most)
    with fn.loop(full, most) as start:
        body(start, most)
    rest = fn.sub(extent, full)
    if most <= _EXACT_REMAINDERS:
        for size in range(1, most):
            fn.when(fn.emit(f"icmp eq i64 {rest}, {size}"), partial(body, full, size))
        return
    done = full
    for size in (8, 4, 2, 1):
        if size < most:
            bit = fn.emit(f"and i64 {rest}, {size}")
            fn.when(fn.emit(f"icmp ne i64 {bit}, 0"), partial(body, done, size))
            done = fn.add(done, bit)
