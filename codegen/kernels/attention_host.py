"""Attention on hosts: a block of K is packed once into scaled panels of its transpose, then blocks of query rows take
scores, softmax and the product with V. The query heads of a head of K take turns on a block, which stays in L2 so long.

One query, a decoder's step, reads K as it lies, and once: the query heads of a head of K are the rows of one product.
Blocks of keys that no query of a block sees are skipped: those behind it where the attention is causal, those before
its window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from codegen.kernels.attention_base import LOG2_E, LOWEST, AttentionKernel, AttentionTiling, even_blocks, per_row
from codegen.kernels.attention_problem import Problem
from codegen.kernels.operands import NotLowerable, block_extent
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import View, axis
from tensor_types.dims import Dim, ceildiv, dmax, dmin
from tensor_types.dtypes import F32

_ONE_BLOCK = 1024
"""Up to this many keys are one block."""
_FEW_QUERIES = 4
"""Up to this many queries read K as it lies: packing it would cost more than the products."""
_WINDOW_BLOCK = 128
"""Keys of a block where a window leaves out whole blocks."""
_PARALLEL = 8


@dataclass(frozen=True)
class Rows:
    """Queries that take scores together: `count` of one head, or, at one position, that of each head of a group.

    `first` is the first one's number among the queries of the call, `row` the number of a row (of axis 0). `turn` and
    `start` are where the running figures of the first row lie.
    """

    count: Dim
    first: Dim
    head: Dim
    turn: Dim
    start: Dim
    is_group: bool

    @property
    def row(self) -> Dim:
        return self.first if self.is_group else self.first + axis(0)

    def place(self) -> tuple[Dim, Dim]:
        """Of a row's running figures in [heads of a group, chunk]."""
        return (self.turn + axis(0), self.start) if self.is_group else (self.turn, self.start + axis(0))


class HostKernel(AttentionKernel):
    """Chunks of queries against panels of K; with one block of keys a plain softmax."""

    shares_keys = True
    skipped: Dim = 0
    """Rows of the running figures before that of the first query."""

    @staticmethod
    def tilings(target: Target, p: Problem) -> Iterator[AttentionTiling]:
        """Few keys are one block; few heads take fewer queries a chunk, so that the cores find work."""
        s, t, panel = p.q.length, p.k.length, panel_of(target)
        keys = -(-t // panel) * panel if isinstance(t, int) and t <= _ONE_BLOCK else 512
        if p.window is not None:
            keys = min(keys, max(panel, _WINDOW_BLOCK))
        chunk = even_blocks(s, 512)
        chunk = max(min(chunk, 64), chunk // (p.q.heads // p.k.heads))  # results of all heads of a group stay in L2
        heads = p.k.heads * (p.q.batch if isinstance(p.q.batch, int) else 1)
        if heads < _PARALLEL:
            chunk = max(64, min(chunk, even_blocks(s, -(-chunk * heads // _PARALLEL))))
            chunk = min(chunk, s) if isinstance(s, int) else chunk
        queries = min(even_blocks(s, 64), chunk)
        yield AttentionTiling(queries, keys, chunk)
        for parts in (2, 4, 8, 16):
            rows = max(1, queries // parts)
            yield AttentionTiling(rows, max(panel, keys // parts // panel * panel), max(rows, chunk // parts))

    def emit(self) -> None:
        chunk = self.tiling.chunk
        c = self.paths.grid(ceildiv(self.s, chunk))
        self.first: Dim = chunk * c
        self.total = block_extent(chunk, c, self.s)
        self.declare()
        self.attend()

    def declare(self) -> None:
        """The tiles of a chunk of queries and a block of keys."""
        p, paths = self.p, self.paths
        self.panel, self.keys, chunk = panel_of(self.target), self.tiling.keys, self.tiling.chunk
        if self.keys % self.panel:
            raise NotLowerable(f"keys={self.keys} is no multiple of {self.panel}, a panel of {self.target.name}")
        self.one = isinstance(self.t, int) and self.t <= self.keys
        self.group, self.first_head = p.q.heads // p.k.heads, self.head
        d, dv = p.q.width, p.out.width
        self.most = most = max(self.rows, self.group) if self.s == 1 or not isinstance(self.s, int) else self.rows
        self.halves = p.k.value.dtype != F32
        self.packs = not isinstance(self.s, int) or self.s > (1 if self.halves else _FEW_QUERIES)
        self.kt = paths.tile(F32, (self.keys // self.panel, d, self.panel), "L1") if self.packs else None
        self.scores = paths.tile(F32, (most, self.keys), "L0C")
        self.products = paths.tile(F32, (most, dv), "L0C")
        if not self.one:
            self.highest, self.sums = (paths.tile(F32, (self.group, chunk)) for _ in range(2))
            self.held = paths.tile(F32, (self.group, chunk, dv))
        self.now, self.factor, self.part = (paths.tile(F32, (most,)) for _ in range(3))
        self.wide_q = paths.tile(F32, (self.rows, d), "L1") if self.halves else None
        self.wide_v = paths.tile(F32, (self.keys, dv), "L1") if self.halves else None
        self.declare_step(most, self.keys)

    def begin(self) -> None:
        """The running figures of a chunk before its first block of keys."""
        task, start, size = self.task, (0, self.skipped), (self.group, self.total)
        task.expands(self.highest.window(start, size), LOWEST)
        task.expands(self.sums.window(start, size), 0.0)
        task.expands(self.held.window((*start, 0), (*size, self.p.out.width)), 0.0)

    def attend(self) -> None:
        """The results of queries `first` .. `first + total - 1`."""
        task = self.task
        if not self.one:
            self.begin()

        def heads_together(body: Callable[[Rows], None]) -> None:
            body(Rows(self.group, self.first, self.first_head + axis(0), 0, self.skipped, True))

        if isinstance(self.s, int):
            every = heads_together if self.s == 1 else self.heads_in_turn
            self._all_keys(self.packs, every)
        else:
            with task.when(self.s, "==", 1):
                self._all_keys(False, heads_together)
            if self.halves:
                with task.otherwise():
                    self._all_keys(True, self.heads_in_turn)
            else:
                with task.otherwise(), task.when(self.s, "<=", _FEW_QUERIES):
                    self._all_keys(False, self.heads_in_turn)
                with task.when(_FEW_QUERIES, "<", self.s):
                    self._all_keys(True, self.heads_in_turn)
        if not self.one:
            self.end()

    def end(self) -> None:
        """Ends a run over several key blocks."""
        self.heads_in_turn(self._divide)

    def heads_in_turn(self, body: Callable[[Rows], None]) -> None:
        """Blocks of the chunk's queries, head by head."""

        def block(g: Dim, i: Dim) -> None:
            body(Rows(block_extent(self.rows, i, self.total), self.first + self.rows * i, self.first_head + g, g,
                       self.skipped + self.rows * i, False))  # fmt: skip

        self.loop("g", self.group, lambda g: self.loop("i", ceildiv(self.total, self.rows), lambda i: block(g, i)))

    def _all_keys(self, packed: bool, every: Callable[[Callable[[Rows], None]], None]) -> None:
        """Blocks of keys with all rows that see some of one."""

        def key_block(j: Dim) -> None:
            with ExitStack() as within:
                self._sees(within, j, self.first, self.total)
                if packed:
                    self.fetch(j)
                    self._pack(j)
                if self.wide_v is not None:
                    self.widen_values(j)
                every(rows_of_block(j))

        def rows_of_block(j: Dim) -> Callable[[Rows], None]:
            def body(rows: Rows) -> None:
                with ExitStack() as within:
                    if not rows.is_group:
                        self._sees(within, j, rows.first, self.rows)
                    self._block(rows, j, packed)

            return body

        self.loop("j", ceildiv(self.t, self.keys), key_block)

    def _sees(self, within: ExitStack, j: Dim, first: Dim, count: Dim) -> None:
        """Enters conditions under which `count` queries from number `first` on see keys of block j."""
        p, task = self.p, self.task
        if self.one:
            return
        if p.causal and j != 0:
            within.enter_context(task.when(self.keys * j, "<", self.past + first + count))
        if p.window is not None:
            within.enter_context(task.when(self.past + first - p.window, "<", self.keys * (j + 1)))

    def wide_mask(self, columns: int) -> Buffer:
        """A tile for a block of the mask in f32."""
        return self.paths.passing(F32, (self.most, columns), "UB")

    @property
    def factor_of_scores(self) -> float:
        return self.p.scale * (LOG2_E if self.base_2 else 1.0)

    def _count(self, j: Dim) -> Dim:
        return block_extent(self.keys, j, self.t)

    def _pack(self, j: Dim) -> None:
        """Panels of the transpose of a block of K, scaled."""
        p, task, d = self.p, self.task, self.p.q.width
        keys = self._count(j)
        factor = self.factor_of_scores

        def panel(n: Dim) -> None:
            assert self.kt is not None
            columns = block_extent(self.panel, n, keys)
            source = self.key_block(j, self.panel * n + axis(1), axis(0), (d, columns))
            copy = self.kt.view(n, axis(0), axis(1), shape=(d, columns))
            if p.k.value.dtype == F32:
                task.mul(copy, source, factor)
            else:
                task.cvt(copy, source)
                task.mul(copy, copy, factor)

        self.loop("n", ceildiv(keys, self.panel), panel)

    def widen_values(self, j: Dim) -> None:
        """A block of V of 16-bit floats as f32."""
        assert self.wide_v is not None
        keys = self._count(j)
        self.task.cvt(self.wide_v.window((0, 0), (keys, self.p.out.width)), self.value_block(j, keys))

    def fetch(self, j: Dim) -> None:
        """Brings block j, before it is packed, to where `key_block` and `value_block` see it: it lies there."""

    def score_lying(self, scores: View, queries: View, j: Dim) -> None:
        """Scores with the first keys of block j, which are not packed."""
        keys = self.key_block(j, axis(1), axis(0), (self.p.q.width, scores.shape[1]))
        self.task.matmul(scores, queries, keys, nm=1, nk=1)

    def weigh_lying(self, products: View, weights: View, j: Dim) -> None:
        """The sum of the first values of block j by their weights; those of 16-bit floats have been widened."""
        self.task.matmul(products, weights, self.value_block(j, weights.shape[1]), nm=1, nk=1)

    def key_block(self, j: Dim, row: Dim, column: Dim, shape: tuple[Dim, ...]) -> View:
        """Elements of block j of the keys; `row` counts within the block."""
        return self.p.k.view(self.k, self.batch, self.kv_head, self.keys * j + row, column, shape)

    def value_block(self, j: Dim, keys: Dim) -> View:
        """The first `keys` rows of block j of the values."""
        p = self.p
        return p.v.view(self.v, self.batch, self.kv_head, self.keys * j + axis(0), axis(1), (keys, p.out.width))

    def _block(self, rows: Rows, j: Dim, packed: bool) -> None:
        """Scores of these rows with a block of keys, and what follows of the result."""
        p, task, count = self.p, self.task, rows.count
        self.head = rows.head
        queries = p.q.view(self.q, self.batch, rows.head, rows.row, axis(1), (count, p.q.width))
        if self.wide_q is not None and packed:
            wide = self.wide_q.window((0, 0), (count, p.q.width))
            task.cvt(wide, queries)
            queries = wide
        whole = self._count(j)
        keys, panels = self._reach(rows, j) if packed and p.causal else (whole, ceildiv(whole, self.panel))
        # K as it lies has no panels: few rows are worth no loop around their products.
        width = self.panel if packed else self.keys

        def panel(n: Dim) -> None:
            columns = block_extent(width, n, whole if packed else keys)
            shape, key = (count, columns), self.keys * j + width * n
            scores = self.scores.window((0, width * n), shape)
            if packed:
                assert self.kt is not None
                keys_of_panel = self.kt.view(n, axis(0), axis(1), shape=(p.q.width, columns))
                task.matmul(scores, queries, keys_of_panel, nm=1, nk=1)
            else:
                self.score_lying(scores, queries, j)
                task.mul(scores, scores, self.factor_of_scores)
            self.capped(scores)
            self.hide_keys(scores, rows.first, key, rows.is_group)
            if p.mask is not None:
                self.apply_mask(scores, rows.row, key + axis(1), lambda: self.wide_mask(width).window((0, 0), shape))

        self.loop("n", panels if packed else 1, panel)
        shape = (count, keys)
        scores = self.scores.window((0, 0), shape)
        now, part = (t.window((0,), (count,)) for t in (self.now, self.part))
        task.rowmax(per_row(self.now, shape), scores, axes=(1,))
        if self.one:
            task.max(now, now, LOWEST)
        else:
            held, sums = (t.view(*rows.place(), shape=(count,)) for t in (self.highest, self.sums))
            factor = self.factor.window((0,), (count,))
            task.max(now, now, held)
            task.sub(factor, held, now)
            self.exponential(factor, factor)
            task.mov(held, now)
        task.sub(scores, scores, per_row(self.now, shape))
        self.exponential(scores, scores)
        task.rowsum(per_row(self.part, shape), scores, axes=(1,))
        size = (count, p.out.width)
        products = self.products.window((0, 0), size)
        if self.one:
            self.guard(part)
            task.recip(part, part)
        else:
            task.mul(sums, sums, factor)
            task.add(sums, sums, part)
        if self.wide_v is not None:
            task.matmul(products, scores, self.wide_v.window((0, 0), (keys, p.out.width)), nm=1, nk=1)
        elif packed:
            task.matmul(products, scores, self.value_block(j, keys), nm=1, nk=1)
        else:
            self.weigh_lying(products, scores, j)
        if self.one:
            task.mul(products, products, per_row(self.part, size))
            task.store(self._result(rows, size), products)
        else:
            kept = self.held.view(*rows.place(), axis(1), shape=size)
            task.fma(kept, kept, per_row(self.factor, size), products)

    def _reach(self, rows: Rows, j: Dim) -> tuple[Dim, Dim]:
        """How many keys of block j are seen, as whole panels up to the last query's own key, and the panels."""
        keys = self._count(j)
        reach = dmax(0, self.past + rows.first + self.rows - self.keys * j)
        panels = ceildiv(dmin(keys, reach), self.panel)
        return dmin(keys, ceildiv(reach, self.panel) * self.panel), panels

    def _divide(self, rows: Rows) -> None:
        """Ends a run over several key blocks: output / sum."""
        task = self.task
        size = (rows.count, self.p.out.width)
        kept = self.held.view(*rows.place(), axis(1), shape=size)
        self.guard(self.sums.view(*rows.place(), shape=(rows.count,)))
        task.div(kept, kept, self.sums.view(*rows.place(), shape=size))
        task.store(self._result(rows, size), kept)

    def _result(self, rows: Rows, size: tuple[Dim, ...]) -> View:
        return self.p.out.view(self.out, self.batch, rows.head, rows.row, axis(1), size)


def panel_of(target: Target) -> int:
    """Keys side by side in a panel of the transpose of K."""
    return target.vector_bytes // 4 * (4 if target.registers >= 32 else 2)
