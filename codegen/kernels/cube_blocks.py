"""Which blocks of a product suit the cube of a chip: those that keep it busy while operands come out of the shared L2.

A core takes a block at a time. Multiplying it takes rows * columns * k / rate cycles, and in the same time the next
operands are loaded and the last results written; the longest of the three counts. A grid of few blocks leaves cores
idle, and a block that the tensor does not fill costs as much as a full one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import NamedTuple

from codegen.kernels.memory_paths import accumulator_dtype
from codegen.targets.target import Target
from tensor_types.dtypes import DType

_FRACTAL = 16
"""The cube multiplies matrices of a multiple of this many rows, columns and k."""
_MOST = 12
"""Blocks that are worth trying."""


class CubeBlock(NamedTuple):
    """A block of the accumulator: extent by axis of rows, columns; how many there are, and what each loads."""

    rows: tuple[int, ...]
    columns: int
    blocks: int
    loaded: int
    """Elements of both operands."""


def best_blocks(blocks: Iterable[CubeBlock], k: int, dtype: DType, target: Target) -> list[CubeBlock]:
    """The blocks whose sums fit L0C, by rising time of the whole product; of equal ones the larger first."""
    size = accumulator_dtype(dtype).bytes
    room = target.memories["L0C"].bytes
    rate = target.cube.rate(dtype) or 1

    def cycles(block: CubeBlock) -> float:
        rows, columns = (-(-n // _FRACTAL) * _FRACTAL for n in (prod(block.rows), block.columns))
        products = rows * columns * -(-k // _FRACTAL) * _FRACTAL / rate
        loads = block.loaded * dtype.bytes / target.l2_read
        stores = prod(block.rows) * block.columns * dtype.bytes / target.l2_write
        return -(-block.blocks // target.cube_cores) * max(products, loads, stores)

    fitting = {b for b in blocks if prod(b.rows) * b.columns * size <= room}
    order: Callable[[CubeBlock], tuple[object, ...]] = lambda b: (cycles(b), -prod(b.rows) * b.columns, b)  # noqa: E731
    return sorted(fitting, key=order)[:_MOST]


def powers(extent: object, least: int, most: int, step: int = 1) -> list[int]:
    """Powers of two from `least` to `most`, none beyond a static extent, which itself counts, in whole steps."""
    found = [1 << i for i in range(least.bit_length() - 1, most.bit_length())]
    if not isinstance(extent, int):
        return found
    whole = -(-max(extent, 1) // step) * step
    return sorted({min(size, whole) for size in found})
