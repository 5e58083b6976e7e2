"""What the attention kernels of hosts and chips share: operands, the grid over batch and heads, the masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from codegen.kernels.attention_problem import Problem
from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.operands import NotLowerable, shape_of
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import View, axis
from tensor_types.dims import Dim, dmax, dmin
from tensor_types.dtypes import BOOL, F32

_TINY = 1e-30
"""Below any sum of a row that sees something."""
LOWEST = -3.4028234663852886e38
"""Maxima start here, not at -inf: exp(-inf - maximum) is then 0 and never NaN."""
LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class AttentionTiling(Tiling, kind="attention"):
    """Blocks of `queries` and `keys`; a grid index has `chunk` queries, for which a host packs a block of keys once."""

    queries: int
    keys: int
    chunk: int


def even_blocks(extent: Dim, most: int, step: int = 1) -> int:
    """The size of equal blocks of at most `most`; run-time extents get blocks of `most`."""
    if not isinstance(extent, int):
        return most
    parts = -(-extent // most)
    size = -(-extent // parts)
    return -(-size // step) * step


def per_row(tile: Buffer, shape: tuple[Dim, ...]) -> View:
    """A value per row, repeated along the columns."""
    return tile.view(axis(0), shape=shape)


class AttentionKernel:
    """What both kernels share: operands, the grid over batch and heads, and the mask."""

    shares_keys = False
    """A grid index takes all query heads of a head of K; the kernel sets `head` as it goes through them."""

    def __init__(self, task: KernelTask, target: Target, p: Problem, tiling: AttentionTiling) -> None:
        self.task, self.target, self.p, self.tiling = task, target, p, tiling
        self.paths = MemoryPaths(task, target, products=2)
        self.q, self.k, self.v = (h.buffer(task) for h in (p.q, p.k, p.v))
        self.mask = None if p.mask is None else task.operand(p.mask)
        self.out = p.out.buffer(task, "out")
        self.s, self.t = task.extent(p.q.length), task.extent(p.k.length)
        self.past = task.extent(p.past)
        self.rows = tiling.queries
        """Query rows of a block."""
        self.batch = self.paths.grid(task.extent(p.q.batch))
        group = p.q.heads // p.k.heads
        self.kv_head = self.paths.grid(p.k.heads)
        self.head: Dim = self.kv_head * group + (0 if self.shares_keys else self.paths.grid(group))
        if p.lengths is not None:
            # Keys behind the length are not read: the time does not depend on how many there could be.
            ends = task.operand(p.lengths, shape=(task.extent(p.q.batch),))
            self.t = task.read("length", ends.view(self.batch, shape=()), 0, self.t)
            self.past = self.t - self.s

    def loop(self, name: str, extent: Dim, body: Callable[[Dim], None]) -> None:
        """A sequential loop, left out when it runs once."""
        if extent == 1:
            body(0)
            return
        with self.task.loop(name, extent) as i:
            body(i)

    def apply_mask(self, scores: View, row: Dim, column: Dim, scratch: Callable[[], View]) -> None:
        """Adds or selects by the mask. An extent that equals the scores' only at run time gets two variants."""
        p, task = self.p, self.task
        assert p.mask is not None and self.mask is not None
        result = (p.q.batch, p.q.heads, p.q.length, p.k.length)
        index = (self.batch, self.head, row, column)
        shape = shape_of(p.mask)
        lead = 4 - len(shape)
        if lead < 0 or not p.mask.format.is_plain:
            raise NotLowerable("a mask of more than four axes")
        mine: list[Dim] = [0 if size == 1 else index[lead + k] for k, size in enumerate(shape)]
        unsure = [k for k, size in enumerate(shape) if size != 1 and size != result[lead + k]]
        if not unsure:
            self.masked(scores, self._mask_block(mine, scores), scratch)
            return
        if len(unsure) > 1:
            raise NotLowerable(f"the mask's extents {shape} may or may not be those of the scores")
        k = unsure[0]
        size = task.extent(shape[k])
        with task.when(size, "==", task.extent(result[lead + k])):
            self.masked(scores, self._mask_block(mine, scores), scratch)
        mine[k] = 0
        with task.otherwise(), task.when(size, "==", 1):
            self.masked(scores, self._mask_block(mine, scores), scratch)

    def _mask_block(self, index: list[Dim], scores: View) -> View:
        assert self.p.mask is not None and self.mask is not None
        view = self.mask.view(*index, shape=scores.shape)
        return self.paths.vector_input(view, (self.tiling.queries, self.tiling.keys), self.p.mask.dtype)

    def guard(self, sums: View) -> None:
        """A row that sees no key gives 0: its sum of exponentials is 0, any other's is at least 1."""
        if self.may_see_nothing and not self.p.nan_for_nothing:
            self.task.max(sums, sums, _TINY)

    @property
    def may_see_nothing(self) -> bool:
        """A row may see no key at all."""
        return self.p.mask is not None or self.p.lengths is not None or self.p.window is not None

    def masked(self, scores: View, view: View, scratch: Callable[[], View]) -> None:
        """Applies the mask, additive or bool, in place."""
        assert self.p.mask is not None
        dtype = self.p.mask.dtype
        if dtype == BOOL:
            self.task.sel(scores, view, scores, float("-inf"))
            return
        if dtype != F32:
            wide = scratch()
            self.task.cvt(wide, view)
            view = wide
        self.task.add(scores, scores, view)

    def declare_step(self, rows: int, columns: int) -> None:
        """A tile of zeros, then -inf: read at a distance it hides keys behind a query's own, or before its window."""
        if not self.p.causal and self.p.window is None:
            return
        self.step_rows, self.step_columns, self.origin = rows, columns, rows + columns
        self.step = self.paths.tile(F32, (2 * self.origin,))
        self.task.expands(self.step.window((0,), (self.origin + 1,)), 0.0)
        self.task.expands(self.step.window((self.origin + 1,), (self.origin - 1,)), float("-inf"))

    def hide_keys(self, scores: View, first_row: Dim, first_key: Dim, one_position: bool = False) -> None:
        """Hides keys that are not seen from a row's position, which is one further with each row. Rows that share
        `one_position` are those of the only query."""
        p, task = self.p, self.task
        turn = 0 if one_position else axis(0)
        position = self.past + first_row
        ends = one_position and self.past + self.s - self.t == 0
        if p.causal and not ends:  # nothing stands behind the last key
            behind = dmax(-self.step_columns, dmin(self.step_rows, first_key - position))
            task.add(scores, scores, self.step.view(self.origin + behind + axis(1) - turn, shape=scores.shape))
        if p.window is not None:
            before = dmax(-self.step_rows, dmin(self.step_columns, position - p.window - first_key))
            task.add(scores, scores, self.step.view(self.origin + before + turn - axis(1), shape=scores.shape))

    @property
    def base_2(self) -> bool:
        """Exponentials to base 2, the factor folded into the scale; not with masks, whose values may be huge."""
        return self.p.mask is None and not self.p.softcap

    def exponential(self, dst: View, src: View) -> None:
        (self.task.exp2 if self.base_2 else self.task.exp)(dst, src)

    def capped(self, scores: View) -> None:
        if self.p.softcap:
            self.task.mul(scores, scores, 1.0 / self.p.softcap)
            self.task.tanh(scores, scores)
            self.task.mul(scores, scores, self.p.softcap)
