"""Attention on hosts: a block of K is packed once into scaled panels of its transpose, then blocks of query rows take
scores, softmax and the product with V. The query heads of a head of K take turns on a block, which stays in L2 so long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
_PARALLEL = 8


class HostKernel(AttentionKernel):
    """Chunks of queries against panels of K; with one block of keys a plain softmax."""

    shares_keys = True

    @staticmethod
    def tilings(target: Target, p: Problem) -> Iterator[AttentionTiling]:
        """Few keys are one block; few heads take fewer queries a chunk, so that the cores find work."""
        s, t, panel = p.q.length, p.k.length, _panel(target)
        keys = -(-t // panel) * panel if isinstance(t, int) and t <= _ONE_BLOCK else 512
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
        p, task, paths = self.p, self.task, self.paths
        self.panel, self.keys, chunk = _panel(self.target), self.tiling.keys, self.tiling.chunk
        if self.keys % self.panel:
            raise NotLowerable(f"keys={self.keys} is no multiple of {self.panel}, a panel of {self.target.name}")
        one = isinstance(self.t, int) and self.t <= self.keys
        self.group, self.chunk, kv_head = p.q.heads // p.k.heads, chunk, self.head
        d, dv = p.q.width, p.v.width
        c = paths.grid(ceildiv(self.s, chunk))
        self.first = chunk * c
        total = block_extent(chunk, c, self.s)
        self.kt = paths.tile(F32, (self.keys // self.panel, d, self.panel), "L1")
        self.scores = paths.tile(F32, (self.rows, self.keys), "L0C")
        self.products = paths.tile(F32, (self.rows, dv), "L0C")
        if not one:
            self.highest, self.sums = (paths.tile(F32, (self.group, chunk)) for _ in range(2))
            self.held = paths.tile(F32, (self.group, chunk, dv))
        self.now, self.factor, self.part = (paths.tile(F32, (self.rows,)) for _ in range(3))
        self.wide_q = paths.tile(F32, (self.rows, d), "L1") if p.q.value.dtype != F32 else None
        self.wide_v = paths.tile(F32, (self.keys, dv), "L1") if p.v.value.dtype != F32 else None
        if p.causal:
            self.declare_step(self.keys)
        if not one:
            task.expands(self.highest.window((0, 0), (self.group, total)), LOWEST)
            task.expands(self.sums.window((0, 0), (self.group, total)), 0.0)
            task.expands(self.held.window((0, 0, 0), (self.group, total, dv)), 0.0)

        def heads(body: Callable[[], None]) -> None:
            def head(g: Dim) -> None:
                self.turn, self.head = g, kv_head + g
                body()

            self.loop("g", self.group, head)

        def key_block(j: Dim, packed: bool, total: Dim) -> None:
            if packed:
                self._pack(j)
            elif self.wide_v is not None:
                self._widen_values(j)

            def query_block(i: Dim) -> None:
                if p.causal and j != 0:
                    with task.when(self.keys * j, "<", self.past + self.first + self.rows * (i + 1)):
                        self._query_block(i, j, total, one, packed)
                else:
                    self._query_block(i, j, total, one, packed)

            heads(lambda: self.loop("i", ceildiv(total, self.rows), query_block))

        def all_keys(packed: bool, total: Dim = total) -> None:
            self.loop("j", ceildiv(self.t, self.keys), lambda j: key_block(j, packed, total))

        if p.k.value.dtype != F32 or isinstance(self.s, int):
            all_keys(p.k.value.dtype != F32 or not isinstance(self.s, int) or self.s > _FEW_QUERIES)
        else:
            # One query, of a decoder's step, has a code of its own: its products are as wide as a row of V.
            with task.when(self.s, "==", 1):
                all_keys(packed=False, total=1)
            with task.otherwise(), task.when(self.s, "<=", _FEW_QUERIES):
                all_keys(packed=False)
            with task.when(_FEW_QUERIES, "<", self.s):
                all_keys(packed=True)
        if not one:
            heads(lambda: self.loop("f", ceildiv(total, self.rows), lambda i: self._divide(i, total)))

    def wide_mask(self, columns: int) -> Buffer:
        """A tile for a block of the mask in f32."""
        return self.paths.passing(F32, (self.rows, columns), "UB")

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
            columns = block_extent(self.panel, n, keys)
            source = p.k.view(self.k, self.batch, self.kv_head, self.keys * j + self.panel * n + axis(1), axis(0),
                              (d, columns))  # fmt: skip
            copy = self.kt.view(n, axis(0), axis(1), shape=(d, columns))
            if p.k.value.dtype == F32:
                task.mul(copy, source, factor)
            else:
                task.cvt(copy, source)
                task.mul(copy, copy, factor)

        self.loop("n", ceildiv(keys, self.panel), panel)
        if self.wide_v is not None:
            self._widen_values(j)

    def _widen_values(self, j: Dim) -> None:
        assert self.wide_v is not None
        keys = self._count(j)
        self.task.cvt(self.wide_v.window((0, 0), (keys, self.p.v.width)), self._values(j, keys))

    def _values(self, j: Dim, keys: Dim) -> View:
        p = self.p
        return p.v.view(self.v, self.batch, self.kv_head, self.keys * j + axis(0), axis(1), (keys, p.v.width))

    def _query_block(self, i: Dim, j: Dim, total: Dim, one: bool, packed: bool) -> None:
        p, task = self.p, self.task
        keys, rows = self._count(j), block_extent(self.rows, i, total)
        first = self.first + self.rows * i
        count, blocks = keys, ceildiv(keys, self.panel)
        if p.causal:
            # Whole panels up to the last query's own key.
            reach = dmax(0, self.past + first + self.rows - self.keys * j)
            blocks = ceildiv(dmin(keys, reach), self.panel)
            keys = dmin(keys, ceildiv(reach, self.panel) * self.panel)
        queries = p.q.view(self.q, self.batch, self.head, first + axis(0), axis(1), (rows, p.q.width))
        if self.wide_q is not None:
            wide = self.wide_q.window((0, 0), (rows, p.q.width))
            task.cvt(wide, queries)
            queries = wide

        # K as it lies has no panels: few rows are worth no loop around their products.
        width = self.panel if packed else self.keys

        def panel(n: Dim) -> None:
            columns = block_extent(width, n, count if packed else keys)
            shape = (rows, columns)
            scores = self.scores.window((0, width * n), shape)
            if packed:
                task.matmul(scores, queries, self.kt.view(n, axis(0), axis(1), shape=(p.q.width, columns)), nm=1, nk=1)
            else:
                key = self.keys * j + width * n + axis(1)
                rows_of_k = p.k.view(self.k, self.batch, self.kv_head, key, axis(0), (p.q.width, columns))
                task.matmul(scores, queries, rows_of_k, nm=1, nk=1)
                task.mul(scores, scores, self.factor_of_scores)
            self.capped(scores)
            if p.causal:
                self.hide_later_keys(scores, first, self.keys * j + width * n)
            if p.mask is not None:
                self.apply_mask(scores, first + axis(0), self.keys * j + width * n + axis(1),
                                lambda: self.wide_mask(width).window((0, 0), shape))  # fmt: skip

        self.loop("n", blocks if packed else 1, panel)
        shape = (rows, keys)
        scores = self.scores.window((0, 0), shape)
        now, part = (t.window((0,), (rows,)) for t in (self.now, self.part))
        task.rowmax(per_row(self.now, shape), scores, axes=(1,))
        if one:
            task.max(now, now, LOWEST)
        else:
            held, sums = (t.view(self.turn, self.rows * i + axis(0), shape=(rows,)) for t in (self.highest, self.sums))
            factor = self.factor.window((0,), (rows,))
            task.max(now, now, held)
            task.sub(factor, held, now)
            self.exponential(factor, factor)
            task.mov(held, now)
        task.sub(scores, scores, per_row(self.now, shape))
        self.exponential(scores, scores)
        task.rowsum(per_row(self.part, shape), scores, axes=(1,))
        values = self._values(j, keys) if self.wide_v is None else self.wide_v.window((0, 0), (keys, p.v.width))
        size = (rows, p.v.width)
        products = self.products.window((0, 0), size)
        if one:
            self.guard(part)
            task.recip(part, part)
        else:
            task.mul(sums, sums, factor)
            task.add(sums, sums, part)
        task.matmul(products, scores, values, nm=1, nk=1)
        if one:
            task.mul(products, products, per_row(self.part, size))
            task.store(self._result(first, size), products)
        else:
            kept = self.held.view(self.turn, self.rows * i + axis(0), axis(1), shape=size)
            task.fma(kept, kept, per_row(self.factor, size), products)

    def _divide(self, i: Dim, total: Dim) -> None:
        """Ends a run over several key blocks: output / sum."""
        task = self.task
        rows = block_extent(self.rows, i, total)
        size = (rows, self.p.v.width)
        kept = self.held.view(self.turn, self.rows * i + axis(0), axis(1), shape=size)
        self.guard(self.sums.view(self.turn, self.rows * i + axis(0), shape=(rows,)))
        task.div(kept, kept, self.sums.view(self.turn, self.rows * i + axis(0), shape=size))
        task.store(self._result(self.first + self.rows * i, size), kept)

    def _result(self, first: Dim, size: tuple[Dim, ...]) -> View:
        return self.p.out.view(self.out, self.batch, self.head, first + axis(0), axis(1), size)


def _panel(target: Target) -> int:
    """Keys side by side in a panel of the transpose of K."""
    return target.vector_bytes // 4 * (4 if target.registers >= 32 else 2)
