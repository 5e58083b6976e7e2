"""Which matmuls AMX tiles compute, and how k is cut into steps."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from codegen.llvm.cube_reduction import ReductionAxis, merge_axes
from codegen.llvm.cube_site import MatmulSite
from codegen.llvm.text import Value
from codegen.targets.hosts import host_class

_INSTRUCTIONS = {
    ("bf16", "bf16"): "tdpbf16ps",
    ("i8", "i8"): "tdpbssd",
    ("i8", "u8"): "tdpbsud",
    ("u8", "i8"): "tdpbusd",
    ("u8", "u8"): "tdpbuud",
}
TILE_ROWS = 16
"""Most rows of a tile; also the most words of a row."""
_COPIED_BYTES = 1 << 20
"""Most bytes of b that are brought into groups: they should stay in L2."""
_LEAST_ROWS, _LEAST_ROWS_TO_COPY = 5, 32
"""Rows from which tiles beat vectors: with fewer, reading b decides, which vectors do as fast; bringing b into groups
costs about as much as multiplying it by 32 rows."""
_LEAST_WORDS = 8
"""Words of k in a step from which tiles beat vectors."""


@dataclass(frozen=True)
class TileProduct:
    """How tiles compute a site. Extents and strides count elements; a word of 32 bits is a `group` of them.

    `outer` are the axes of k around the innermost one, which has `extent` and unit stride in a. In b its words
    (`grouped`) or its single rows lie `step` apart; `packed` says that each row of words has whole tiles. With fewer
    than `least_rows` rows of m vectors do better.
    """

    instruction: str
    group: int
    outer: tuple[ReductionAxis, ...]
    extent: int
    step: Value
    grouped: bool
    packed: bool
    least_rows: int

    @property
    def words(self) -> int:
        """Words of k in a full step: as few steps as possible, of equal size."""
        words = -(-self.extent // self.group)
        return -(-words // -(-words // TILE_ROWS))

    @property
    def size(self) -> int:
        """Elements of k in a full step."""
        return self.words * self.group

    @property
    def full(self) -> int:
        """Full steps."""
        return self.extent // self.size

    @property
    def rest(self) -> int:
        """Elements of k in a last partial step."""
        return self.extent % self.size

    @property
    def first(self) -> int:
        """The first word of b that is copied."""
        return self.full * self.words if self.packed else 0

    @property
    def copied(self) -> int:
        """Words of b that are copied, filled up to whole steps."""
        return -(-self.extent // self.size) * self.words - self.first


def tile_product(site: MatmulSite) -> TileProduct | None:
    """The way to compute the site on tiles; None if its host class has none or its operands do not suit them."""
    target, a, b = host_class(site.target), site.a, site.b
    instruction = _INSTRUCTIONS.get((a.dtype.name, b.dtype.name))
    if not target.engines.tile_registers or instruction is None or 0 in (*site.m, *site.k, site.n, site.n_max):
        return None
    strides = zip(site.k, a.strides[len(site.m) :], b.strides[:-1], strict=True)
    axes = merge_axes([ReductionAxis(*t) for t in strides])
    group, n_step = 4 // a.dtype.bytes, b.strides[-1]
    if not axes or not site.m:
        return None
    if axes[-1] == ReductionAxis(group, 1, 1) and n_step == group:
        words = axes[-2] if len(axes) > 1 else ReductionAxis(1, group, 0)
        if words.a != group or not isinstance(words.extent, int):
            return None
        packed = words.b == -(-site.n_max // TILE_ROWS) * TILE_ROWS * group
        # Vectors have no code of their own for pairs of bf16 numbers.
        least = 1 if group == 2 else _LEAST_ROWS
        extent = words.extent * group
        product = TileProduct(instruction, group, tuple(axes[:-2]), extent, words.b, True, packed, least)
    elif group == 2 and axes[-1].a == 1 and n_step == 1 and isinstance(axes[-1].extent, int):
        run = axes[-1]
        assert isinstance(run.extent, int)
        outer = tuple(axes[:-1])
        product = TileProduct(instruction, group, outer, run.extent, run.b, False, False, _LEAST_ROWS_TO_COPY)
    else:
        return None
    if product.least_rows > 1 and product.words < _LEAST_WORDS:
        return None
    if not product.copied:
        return product
    extents = [axis.extent for axis in product.outer if isinstance(axis.extent, int)]
    fits = len(extents) == len(product.outer) and prod(extents) * product.copied * 2 * 64 <= _COPIED_BYTES
    return product if fits else None
