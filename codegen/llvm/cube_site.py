"""What a matmul of a tile program is to the micro-kernel generators: operands, extents, and the finished tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from codegen.llvm.cube_elements import Elements
from codegen.llvm.text import Function, Value
from codegen.targets.hosts import HostClass
from tensor_types.dtypes import DType


@dataclass
class Operand:
    """A view in memory: the address of its origin and the strides of its axes in elements."""

    pointer: str
    strides: tuple[Value, ...]
    dtype: DType


@dataclass
class RegisterTile:
    """Accumulators of one finished register tile.

    Row r has the index `rows[r]`, one value per m axis, equal to `origin` plus the static `offsets[r]`; vector v of it
    holds the elements n_start + v*lanes ... of axis n. Lanes outside `masks[v]` are undefined.
    """

    rows: list[tuple[Value, ...]]
    n_start: Value
    lanes: int
    vectors: list[list[str]]
    masks: list[str | None]
    origin: tuple[Value, ...] = ()
    offsets: list[tuple[int, ...]] = field(default_factory=list)


@dataclass
class MatmulSite:
    """One matmul of a tile program.

    a has axes m.. then k.., b axes k.. then n, `initial` (accumulate into) axes m.. then n. Extents are static ints or
    i64 values; `n_max` bounds n. Sources are widened to `acc_dtype` (f32 for f32, f16 and bf16, f64 for f64, i32 for
    8-bit integers). `finish` is called once for each register tile emitted and stores it.
    """

    target: HostClass
    a: Operand
    b: Operand
    m: tuple[Value, ...]
    k: tuple[Value, ...]
    n: Value
    n_max: int
    acc_dtype: DType
    initial: Operand | None
    finish: Callable[[Function, RegisterTile], None]
    workspace: Callable[[int], str]
    """The address of so many bytes of scratch, aligned to 64, that nothing else uses during the matmul."""
    bits: int = 0
    """Where not 0: b holds words of codes of so many bits, the innermost k; b has no stride for that axis."""


def row_pointers(fn: Function, operand: Operand, tile: RegisterTile) -> list[str]:
    """The address of (rows[r], n_start) in an operand with axes m.. then n, for each row of the tile.

    Rows at static distances are displacements of one pointer.
    """
    element = f"i{8 * operand.dtype.bytes}"
    bases: dict[tuple[tuple[int, Value], ...], str] = {}
    pointers = []
    for offset in tile.offsets:
        static, moving = split_offset(offset, operand.strides)
        if moving not in bases:
            at = fn.mul(tile.n_start, operand.strides[-1])
            for index, stride in zip(tile.origin, operand.strides, strict=False):
                at = fn.add(at, fn.mul(index, stride))
            for step, stride in moving:
                at = fn.add(at, fn.mul(step, stride))
            bases[moving] = fn.offset(operand.pointer, at, element)
        pointers.append(fn.offset(bases[moving], static, element))
    return pointers


def split_offset(offset: Sequence[int], strides: Sequence[Value]) -> tuple[int, tuple[tuple[int, Value], ...]]:
    """sum(offset * stride) as a static part and the terms with run-time strides."""
    static = 0
    moving = []
    for step, stride in zip(offset, strides, strict=False):
        if isinstance(stride, int):
            static += step * stride
        elif step:
            moving.append((step, stride))
    return static, tuple(moving)


def load_rows(fn: Function, elements: Elements, operand: Operand, tile: RegisterTile) -> list[str]:
    """The vectors of an operand with axes m.. then n that belong to the tile, row by row."""
    step = operand.strides[-1]
    loaded = []
    for pointer in row_pointers(fn, operand, tile):
        for v, mask in enumerate(tile.masks):
            at = fn.offset(pointer, fn.mul(step, v * tile.lanes), elements.storage(operand.dtype))
            loaded.append(elements.load(fn, at, operand.dtype, step, mask))
    return loaded
