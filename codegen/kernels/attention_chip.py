"""Attention on chips: one block of query rows per grid index."""

from __future__ import annotations

from collections.abc import Iterator

from codegen.kernels.attention_base import LOG2_E, LOWEST, AttentionKernel, AttentionTiling, per_row
from codegen.kernels.attention_problem import Problem
from codegen.kernels.operands import block_extent
from codegen.targets.target import Target
from codegen.tile.ir import axis
from tensor_types.dims import Dim, ceildiv, dmin
from tensor_types.dtypes import F32


class ChipKernel(AttentionKernel):
    """One block of query rows per grid index; scores and weights pass between the engines by `MemoryPaths`."""

    @staticmethod
    def tilings(target: Target, p: Problem) -> Iterator[AttentionTiling]:
        """Vector work bounds attention, so that larger blocks gain nothing."""
        for queries, keys in ((64, 64), (64, 32), (32, 32), (16, 32), (16, 16)):
            yield AttentionTiling(queries, keys, queries)

    def emit(self) -> None:
        p, task, paths = self.p, self.task, self.paths
        dtype, d, dv = p.q.value.dtype, p.q.width, p.v.width
        keys = self.tiling.keys
        first = self.rows * paths.grid(ceildiv(self.s, self.rows))
        rows = block_extent(self.rows, 0, self.s) if first == 0 else dmin(self.rows, self.s - first)
        highest, sums, now, factor, part = (paths.tile(F32, (self.rows,)) for _ in range(5))
        held = paths.tile(F32, (self.rows, dv))
        weights = paths.tile(dtype, (self.rows, keys)) if dtype != F32 else None
        size = (rows, dv)
        output = held.window((0, 0), size)
        m, total, new, f, sum_ = (t.window((0,), (rows,)) for t in (highest, sums, now, factor, part))
        task.expands(m, LOWEST)
        task.expands(total, 0.0)
        task.expands(output, 0.0)
        self.declare_step(self.rows, keys)
        queries = p.q.view(self.q, self.batch, self.head, first + axis(0), axis(1), (rows, d))

        def key_block(j: Dim) -> None:
            columns = block_extent(keys, j, self.t)
            shape, bounds = (rows, columns), (self.rows, keys)
            transposed = p.k.view(self.k, self.batch, self.kv_head, keys * j + axis(1), axis(0), (d, columns))
            acc = paths.accumulator(dtype, bounds, shape)
            paths.product(acc, bounds, queries, transposed, dtype)
            scores = paths.to_vector(acc, bounds, F32)
            task.mul(scores, scores, p.scale * (LOG2_E if self.base_2 else 1.0))
            self.capped(scores)
            self.hide_keys(scores, first, keys * j)
            if p.mask is not None:
                # Not a passing tile: that of this shape may hold the scores.
                self.apply_mask(scores, first + axis(0), keys * j + axis(1),
                                lambda: paths.tile(F32, bounds).window((0, 0), shape))  # fmt: skip
            task.rowmax(per_row(now, shape), scores, axes=(1,))
            task.max(new, new, m)
            task.sub(f, m, new)
            self.exponential(f, f)
            task.mov(m, new)
            task.sub(scores, scores, per_row(now, shape))
            self.exponential(scores, scores)
            task.rowsum(per_row(part, shape), scores, axes=(1,))
            task.mul(total, total, f)
            task.add(total, total, sum_)
            shared = paths.private(dtype, bounds, shape)
            if weights is not None:
                narrow = weights.window((0, 0), shape)
                task.cvt(narrow, scores)
                task.store(shared, narrow)
            else:
                task.store(shared, scores)
            values = p.v.view(self.v, self.batch, self.kv_head, keys * j + axis(0), axis(1), (columns, dv))
            result = paths.accumulator(dtype, (self.rows, dv), size)
            paths.product(result, (self.rows, dv), shared, values, dtype)
            task.mul(output, output, per_row(factor, size))
            task.add(output, output, paths.to_vector(result, (self.rows, dv), F32))

        self.loop("j", ceildiv(self.t, keys), key_block)
        self.guard(total)
        task.div(output, output, per_row(sums, size))
        destination = p.out.view(self.out, self.batch, self.head, first + axis(0), axis(1), size)
        if dtype == F32:
            task.store(destination, output)
        else:
            narrow = paths.tile(dtype, (self.rows, dv)).window((0, 0), size)
            task.cvt(narrow, output)
            task.store(destination, narrow)
