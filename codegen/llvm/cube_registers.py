"""The shape of a register tile and how an extent is cut into register tiles."""

from __future__ import annotations

from codegen.llvm.host_class import HostClass

_LATENCY_CHAINS = 8
"""Independent accumulators that keep two multiply-add pipes of four cycles latency busy."""
_MAX_ROWS = 12


def vectors_per_tile(target: HostClass, total: int, rows: int = 0) -> int:
    """Vectors of n in one register tile when `total` vectors are to be covered: equal parts, as wide as is useful.

    When a narrower tile holds all `rows` of a short m axis it is preferred, as it reads b once.
    """
    widest = 4 if target.registers >= 32 else 2
    fitting = [v for v in range(2, widest + 1) if rows and rows_per_tile(target, v) >= rows]
    parts = -(-total // max(fitting, default=widest))
    return -(-total // parts)


def accumulators(target: HostClass) -> int:
    """Vector registers that may hold accumulators: three quarters of them, half without FMA.

    The rest holds two steps' worth of b, a broadcast, masks and, without FMA, products. LLVM's scheduler loads ahead of
    use and spills accumulators as soon as less is left (7x64 and 14x32 of AVX-512 lose up to half of their rate).
    """
    return target.registers * 3 // 4 if target.has_fma else target.registers // 2


def rows_per_tile(target: HostClass, vectors: int) -> int:
    """Rows of a tile `vectors` wide."""
    return max(1, min(_MAX_ROWS, accumulators(target) // vectors))


def accumulator_sets(target: HostClass, rows: int, vectors: int) -> int:
    """Copies of the accumulators over which k is dealt out, so that few rows do not wait for the latency."""
    sets = 1
    while rows * vectors * sets < _LATENCY_CHAINS and 2 * sets * rows * vectors <= accumulators(target):
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
