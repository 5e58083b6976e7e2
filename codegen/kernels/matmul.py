"""Matrix products with what follows them: constant weights in packed panels, dynamic or batched right operands.

The grid runs over batch, panels of n and blocks of m, so that contiguous grid indices share one panel in L2. The
element-wise epilogue runs on the accumulators. MatMul may carry the attributes `transA` and `transB` (0 or 1: the last
two axes of that operand are exchanged) and `alpha`, a factor of the product.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from codegen.kernels.attached import Attached, store_results
from codegen.kernels.block_emitter import Operand
from codegen.kernels.conv_core import panel_width
from codegen.kernels.cube_blocks import CubeBlock, best_blocks, powers
from codegen.kernels.elementwise import ElementwiseEmitter
from codegen.kernels.matmul_problem import check_broadcast, leading_axes, problem_of
from codegen.kernels.memory_paths import MemoryPaths, Part, accumulator_dtype
from codegen.kernels.operands import NotLowerable, block_extent, body_of, outer_outputs, outer_values, shape_of
from codegen.kernels.region_space import Space
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling, first_fit, halvings
from codegen.targets.matmul_tiling import recommend_tiling
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import View, axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, ceildiv, product
from tensor_types.dtypes import BF16, F16, F32, I32
from tensor_types.formats import panels

_USUAL_ROWS = 256
"""Rows that a run-time m is blocked for."""
_RUN_TIME_BLOCK = 96
_PARALLEL = 8
"""Grid indices that are wanted at least, so that a few cores share the work evenly."""
_ROW_STEP = 12
_PACK_ROWS = 32
"""From this many rows on, copying a panel of a dynamic right operand costs less than reading it scattered."""
_PACK_BYTES = 1 << 20
_WIDEN_ROWS = 12
"""From this many rows on, halves are converted to f32 once per block, not in each step of the product."""
_WIDE_BYTES = 1 << 19
_QUAD = 4
"""Bytes of consecutive k that a host multiplies in one lane."""
_LONG = 64
"""From this k on, filling it up to whole quads costs less than single products."""
_GROUP_ROWS, _TILE_ROWS = 5, 32
"""Rows from which a host's matrix unit is used, with b packed in groups of k or in plain rows; the latter fill it."""


@dataclass(frozen=True)
class MatmulTiling(Tiling, kind="matmul", place="host"):
    """Blocks of `rows` by `columns` on a host; the loop over columns encloses that over rows with `panels_outside`.

    `pack` copies a panel of a dynamic right operand, `widen` converts the halves of a block to f32 first.
    """

    rows: int
    columns: int
    panels_outside: bool = True
    pack: bool = False
    widen: bool = False


@dataclass(frozen=True)
class CubeMatmulTiling(Tiling, kind="matmul_cube", place="chip"):
    """Blocks of `rows` by `columns` on the cube of a chip; `vector` elements pass the vector engine at a time."""

    rows: int
    columns: int
    vector: int


def lower_matmul(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node of family matmul; NotLowerable says why there is none."""
    kernel = _Lowering(node, target)
    if any(d == 0 for d in shape_of(kernel.problem.anchor.output)):
        return []
    if kernel.problem.k == 0:
        raise NotLowerable("it sums over nothing: the result is 0")
    return first_fit(kernel.candidates(), lambda chosen: _Lowering(node, target).emit(chosen), tiling)


def tilings_matmul(node: Node, target: Target) -> list[Iterable[Tiling]]:
    """The tilings of a product by falling preference. NotLowerable as `lower_matmul`."""
    return [_Lowering(node, target).candidates()]


class _Lowering:
    """One product; `candidates` or `emit` is to be called, once."""

    def __init__(self, node: Node, target: Target) -> None:
        self.node, self.target = node, target
        self.body = body_of(node)
        self.values = outer_values(node)
        self.problem = problem_of(node)
        self.attached = Attached(self.body.nodes[1:], self.values, [self.problem.anchor.output.name])
        self.task = KernelTask(node, "matmul", target)
        self.paths = MemoryPaths(self.task, target)

    def _enter(self) -> None:
        """Lays out the index space: groups of axes, and which of them are rows and columns."""
        p = self.problem
        result = shape_of(p.anchor.output)
        self.outputs = outputs = outer_outputs(self.node)
        if any(o.shape != result or not o.format.is_plain for _, o in outputs):
            raise NotLowerable("results differ in shape or format from the product")
        self._check_extras()
        rank = len(result)
        left = Value("", p.a.dtype, (*leading_axes(p.a, rank), result[-2], 1))
        right = Value("", p.b.dtype, (*leading_axes(p.b, rank), 1, result[-1]))
        apart = (rank - 2, rank - 1) if p.trans_a else (rank - 1,)
        seen = [left, right, *self.attached.extras.values(), *(o for _, o in outputs)]
        space = Space(self.task, result, p.a.format, seen, apart)
        self.space = space
        n_group = len(space.groups) - 1
        # Axes that the layout of an operand needs are there even where their extent is 1.
        self.a_groups = self._groups(left, [n_group - 1] if p.trans_a else [])
        self.b_groups = self._groups(right, [n_group])
        self.m_group = n_group - 1 if n_group and n_group - 1 not in self.b_groups else None
        m: Dim = space.graph_extents[self.m_group] if self.m_group is not None else 1
        self.on_tiles = self._suits_tiles(m if isinstance(m, int) else _USUAL_ROWS)
        self.pairs = self.on_tiles or self._suits_pairs()

    def emit(self, tiling: Any) -> list[Record]:
        """The task."""
        self._enter()
        p, space, m_group, n_group = self.problem, self.space, self.m_group, len(self.space.groups) - 1
        self.rows, self.columns = tiling.rows, tiling.columns
        self.panels_outside = self.target.explicit_memory or tiling.panels_outside
        self.pack = not self.target.explicit_memory and tiling.pack
        self.widen = not self.target.explicit_memory and tiling.widen
        self.vector = tiling.vector if self.target.explicit_memory else tiling.rows * tiling.columns
        self._check(tiling)

        index: list[Dim] = [0] * len(space.groups)
        for g in range(len(space.groups)):
            if g not in (m_group, n_group):
                index[g] = self.paths.grid(space.extents[g])
        m = space.extents[m_group] if m_group is not None else 1
        n = space.extents[n_group]
        n_blocks, m_blocks = ceildiv(n, self.columns), ceildiv(m, self.rows)
        if self.panels_outside:
            j = self.paths.grid(n_blocks)
            i = self.paths.grid(m_blocks)
        else:
            i = self.paths.grid(m_blocks)
            j = self.paths.grid(n_blocks)
        rows, columns = block_extent(self.rows, i, m), block_extent(self.columns, j, n)
        if m_group is not None:
            index[m_group] = self.rows * i + axis(0)
        index[n_group] = self.columns * j + axis(1)
        self.block, self.extents = (self.rows, self.columns), (rows, columns)

        a = self._left(self.a_groups, index, rows)
        b = self._right(self.b_groups, index, j, columns)
        corrections = self._zero_points(a, b)
        acc = self.paths.accumulator(p.a.dtype, self.block, self.extents)
        self._product(acc, a, b)
        self._finish(acc, corrections, index)
        work = 2 * product(shape_of(p.anchor.output)) * p.k
        return [self.task.record(work)]

    def _product(self, acc: View, a: View, b: View) -> None:
        """acc = a @ b. Where only the run knows whether there are rows enough to widen a panel for, both ways."""
        paths, dtype, rows = self.paths, self.problem.a.dtype, self.extents[0]

        def plain() -> None:
            paths.product(acc, self.block, a, b, dtype, len(a.shape) - 1)

        def wide() -> None:
            left, right = self._widened(a, self.rows), self._widened(b, self.columns)
            paths.product(acc, self.block, left, right, dtype, len(a.shape) - 1)

        if not self.widen:
            plain()
        elif isinstance(rows, int):
            wide()
        else:
            with self.task.when(rows, "<", _WIDEN_ROWS):
                plain()
            with self.task.otherwise():
                wide()

    def _check_extras(self) -> None:
        """NotLowerable unless it is known how all operands broadcast to the product."""
        p = self.problem
        result = shape_of(p.anchor.output)
        for v in self.attached.extras.values():
            shape = shape_of(v)
            if len(shape) > len(result) or not v.format.is_plain:
                raise NotLowerable("an operand with more axes than the product, or not in plain order")
            check_broadcast(v.name, shape, result[len(result) - len(shape) :])
        for v in (p.a, p.b):
            check_broadcast(v.name, leading_axes(v, len(result)), result[:-2])

    def _groups(self, value: Value, always: Sequence[int]) -> list[int]:
        places = self.space._places(value)
        return [g for g, axes in enumerate(self.space.groups) if axes[0] in places or g in always]

    def candidates(self) -> Iterator[MatmulTiling] | Iterator[CubeMatmulTiling]:
        """Tilings by falling preference."""
        self._enter()
        return self._on_cube() if self.target.explicit_memory else self._on_host()

    def _on_cube(self) -> Iterator[CubeMatmulTiling]:
        p, extents, m_group = self.problem, self.space.graph_extents, self.m_group
        m: Dim = extents[m_group] if m_group is not None else 1
        n, k = extents[-1], p.k if isinstance(p.k, int) else _USUAL_ROWS
        usual_m, usual_n = (d if isinstance(d, int) else _USUAL_ROWS for d in (m, n))
        batch = prod(d for g, d in enumerate(extents[:-1]) if g != m_group and isinstance(d, int))
        # Rows of 8-bit tiles in the epilogue fill whole blocks of 32 B as well.
        blocks = [
            CubeBlock((rows,), columns, batch * -(-usual_m // rows) * -(-usual_n // columns), (rows + columns) * k)
            for rows in powers(m, 16, 512) for columns in powers(n, 32, 512, 32)
        ]  # fmt: skip
        for block in best_blocks(blocks, k, p.a.dtype, self.target):
            for vector in halvings(block.rows[0] * block.columns, 1 << 10):
                yield CubeMatmulTiling(block.rows[0], block.columns, vector)

    def _on_host(self) -> Iterator[MatmulTiling]:
        """As the table in `codegen.targets.matmul_tiling` says; fewer rows where a converted block is large."""
        preferred = self._preferred()
        for rows in halvings(preferred.rows):
            yield replace(preferred, rows=rows)

    def _preferred(self) -> MatmulTiling:
        p, target, m_group, n_group = self.problem, self.target, self.m_group, len(self.space.groups) - 1
        extents = self.space.graph_extents
        m: Dim = extents[m_group] if m_group is not None else 1
        n = extents[n_group]
        usual_m = m if isinstance(m, int) else _USUAL_ROWS
        usual_n = n if isinstance(n, int) else _USUAL_ROWS
        usual_k = p.k if isinstance(p.k, int) else _USUAL_ROWS
        size = accumulator_dtype(p.a.dtype).bytes
        t = recommend_tiling(usual_m, usual_k, usual_n, vector_bytes=target.vector_bytes, registers=target.registers,
                             element_bytes=size)  # fmt: skip
        lanes = max(1, target.vector_bytes // size)
        columns = panel_width(usual_n, t.panel, lanes) if isinstance(n, int) else t.panel
        rows = t.block_rows if isinstance(m, int) else _RUN_TIME_BLOCK
        batch = 1
        for g, extent in enumerate(extents):
            if g not in (m_group, n_group) and isinstance(extent, int):
                batch *= extent
        blocks = batch * -(-usual_n // columns) * -(-usual_m // rows)
        if blocks < _PARALLEL and isinstance(m, int):
            parts = -(-_PARALLEL // max(1, blocks)) * -(-m // rows)
            even = -(-m // parts)
            step, least = (_TILE_ROWS, _TILE_ROWS) if self.on_tiles else (_ROW_STEP, 2 * _ROW_STEP)
            rows = min(rows, max(least, -(-even // step) * step))
        halves = p.a.dtype in (F16, BF16) and not self.pairs
        widen = halves and isinstance(p.k, int) and min(usual_m, rows) >= _WIDEN_ROWS
        if widen:
            rows = min(rows, max(2 * _ROW_STEP, _WIDE_BYTES // (4 * usual_k) // _ROW_STEP * _ROW_STEP))
        few = 8 if p.trans_b else _PACK_ROWS
        # Tiles and pairs read plain rows where they lie.
        scattered = not p.packed and not widen and (p.trans_b or not self.pairs)
        pack = (
            scattered and isinstance(p.k, int) and min(usual_m, rows) >= few
            and p.k * columns * p.b.dtype.bytes <= _PACK_BYTES
        )  # fmt: skip
        return MatmulTiling(rows, columns, t.panels_outside, pack, widen)

    def _check(self, tiling: Any) -> None:
        """NotLowerable if a tiling asks for what this product cannot have."""
        p = self.problem
        if self.widen and (p.a.dtype not in (F16, BF16) or not isinstance(p.k, int)):
            raise NotLowerable("widen=1 takes halves and a static k")
        if self.pack and (p.packed or not isinstance(p.k, int)):
            raise NotLowerable("pack=1 takes a right operand that is no constant, and a static k")

    def _suits_tiles(self, rows: int) -> bool:
        """True if the host has a matrix unit for the operands, bf16 numbers or bytes, and rows enough for it."""
        p = self.problem
        if not self.target.engines.tile_registers or not isinstance(p.k, int) or p.trans_a:
            return False
        if p.packed and p.k * p.b.dtype.bits % 32 == 0 and (p.a.dtype == BF16 or p.b.dtype.bits == 8):
            return rows >= _GROUP_ROWS
        return p.a.dtype == BF16 and rows >= _TILE_ROWS

    def _suits_pairs(self) -> bool:
        """True if the host multiplies bf16 numbers two k at a time, however many rows there are."""
        p = self.problem
        numbers = p.a.dtype == p.b.dtype == BF16 and not p.trans_a
        return self.target.engines.dot_bf16 and numbers and isinstance(p.k, int) and p.k % 2 == 0

    def _widened(self, view: View, block: int) -> View:
        """A block of halves as f32 in L2."""
        bounds = [size if isinstance(size, int) else block for size in view.shape]
        wide = self.paths.tile(F32, bounds, "L1").window((0,) * len(bounds), view.shape)
        self.task.cvt(wide, view)
        return wide

    @property
    def group(self) -> int:
        """How many consecutive k lie together in both operands: four bytes, or two bf16 numbers."""
        p = self.problem
        size = _QUAD if p.b.dtype.bits == 8 else 2 if self.pairs else 1
        copied = self.pack and p.b.dtype.bits == 8 and p.a.dtype.bits == 8
        fits = isinstance(p.k, int) and (p.packed or copied) and (p.k % size == 0 or self._fills_up(p.k, size))
        return size if fits and not p.trans_a and not self.target.explicit_memory else 1

    def _fills_up(self, k: int, size: int) -> bool:
        """True if a k that no groups divide gets zeros behind it: a block of a is copied for them."""
        return size == _QUAD and k >= _LONG and self.problem.packed and self.problem.a.dtype.bits == 8

    def _zero_points(self, a: View, b: View) -> list[View]:
        """What the product of the stored numbers exceeds the product of the real ones by, as views of the block.

        (a - za) @ (b - zb) = a @ b - za * sum over k of b - zb * (sum over k of a - k * za)
        """
        p, task, paths = self.problem, self.task, self.paths
        if p.a_zero is None and p.b_zero is None:
            return []
        if self.target.explicit_memory:
            raise NotLowerable("zero points on a chip")
        if not isinstance(p.k, int):
            raise NotLowerable("zero points with a run-time k")
        za, zb = (None if v is None else self._wide_zero(v) for v in (p.a_zero, p.b_zero))
        found: list[View] = []
        if za is not None:
            sums = self._sums(b, (len(b.shape) - 1,), self.columns, self.extents[1])
            task.mul(sums, sums, View(za.base, (0,), sums.shape))
            found.append(View(sums.base, (axis(1),), self.extents))
        if zb is not None:
            sums = self._sums(a, (0,), self.rows, self.extents[0])
            if za is not None:
                shift = paths.tile(I32, (1,)).window((0,), (1,))
                task.mul(shift, za, p.k)
                task.sub(sums, sums, View(shift.base, (0,), sums.shape))
            task.mul(sums, sums, View(zb.base, (0,), sums.shape))
            found.append(View(sums.base, (axis(0),), self.extents))
        return found

    def _wide_zero(self, value: Value) -> View:
        tile = self.paths.tile(I32, (1,)).window((0,), (1,))
        self.task.cvt(tile, self.task.operand(value, "in", (1,)).window((0,), (1,)))
        return tile

    def _sums(self, view: View, kept: tuple[int], block: int, extent: Dim) -> View:
        """Sums of an 8-bit operand over its k axes."""
        task, paths = self.task, self.paths
        bounds = [block if k in kept else size for k, size in enumerate(view.shape)]
        wide = paths.tile(I32, bounds)  # type: ignore[arg-type]
        whole = wide.window((0,) * len(bounds), view.shape)
        task.cvt(whole, view)
        sums = paths.tile(I32, (block,))
        axes = tuple(k for k in range(len(bounds)) if k not in kept)
        task.rowsum(View(sums.name, (axis(kept[0]),), view.shape), whole, axes=axes)
        return sums.window((0,), (extent,))

    # Operands

    def _left(self, groups: Sequence[int], index: Sequence[Dim], rows: Dim) -> View:
        """a as a view [rows, k]."""
        p, task = self.problem, self.task
        k = task.extent(p.k)
        lead = [self.space.extents[g] for g in groups]
        at = [index[g] for g in groups]
        if p.trans_a:
            buffer = task.operand(p.a, "in", [*lead[:-1], k, lead[-1]])
            return buffer.view(*at[:-1], axis(1), at[-1], shape=(rows, k))
        group = self.group
        if group > 1 and k % group:
            assert isinstance(k, int)
            steps = ceildiv(k, group)
            source = task.operand(p.a, "in", [*lead, k]).view(*at, axis(1), shape=(rows, steps * group))
            tile = self.paths.tile(p.a.dtype, (self.rows, steps * group), "L1")
            task.load(tile.window((0, 0), source.shape), source, pad=0)
            return View(tile.name, (axis(0), group * axis(1) + axis(2)), (rows, steps, group))
        if group > 1:
            buffer = task.operand(p.a, "in", [*lead, k // group, group])
            return buffer.view(*at, axis(1), axis(2), shape=(rows, k // group, group))
        buffer = task.operand(p.a, "in", [*lead, k])
        return buffer.view(*at, axis(1), shape=(rows, k))

    def _right(self, groups: Sequence[int], index: Sequence[Dim], j: Dim, columns: Dim) -> View:
        """b as a view [k, columns], or [k/group, group, columns]."""
        p, task = self.problem, self.task
        at = [index[g] for g in groups if g != groups[-1]] if groups else []
        lead = [self.space.extents[g] for g in groups[:-1]]
        k = task.extent(p.k)
        n = self.space.extents[-1]
        if p.packed and not self.target.explicit_memory:
            buffer = self._packed(lead)
            if (group := self.group) > 1:
                assert isinstance(k, int)
                return buffer.view(*at, j, axis(0), axis(2), axis(1), shape=(ceildiv(k, group), group, columns))
            return buffer.view(*at, j, axis(0), axis(1), shape=(k, columns))
        group = self.group
        at_k, column = (axis(0), axis(1)) if group == 1 else (group * axis(0) + axis(1), axis(2))
        column, shape = self.columns * j + column, (k, columns) if group == 1 else (k // group, group, columns)
        if p.trans_b:
            view = task.operand(p.b, "in", [*lead, n, k]).view(*at, column, at_k, shape=shape)
        else:
            view = task.operand(p.b, "in", [*lead, k, n]).view(*at, at_k, column, shape=shape)
        if not self.pack:
            return view
        assert isinstance(k, int)
        if group == 1:
            copy = self.paths.tile(p.b.dtype, (k, self.columns), "L1").window((0, 0), (k, columns))
        else:
            held = self.paths.tile(p.b.dtype, (k // group, self.columns, group), "L1")
            copy = held.view(axis(0), axis(2), axis(1), shape=shape)
        # A move would be an alias for the host; the panel is wanted as a copy.
        task.mul(copy, view, 1)
        return copy

    def _packed(self, lead: Sequence[Dim]) -> Buffer:
        """The constant b in panels [.., n/NR, k, NR]."""
        p, task = self.problem, self.task
        sb = shape_of(p.b)
        assert isinstance(p.k, int) and isinstance(p.n, int)
        # Batch axes as the grid sees them: those of extent 1 left out, neighbours merged.
        batch = tuple(d for d in lead if isinstance(d, int))
        rank = len(batch) + 2
        permute = (*range(len(sb) - 2), len(sb) - 1, len(sb) - 2) if p.trans_b else None
        reshape = (*batch, p.k, p.n) if len(sb) != rank else None
        shape = [*batch, -(-p.n // self.columns), p.k, self.columns]
        packing = panels(self.columns, rank, self.group)
        if (group := self.group) > 1:
            shape[-2:] = [ceildiv(p.k, group), self.columns, group]
        return task.operand(p.b, "in", shape, packing=packing, permute=permute, reshape=reshape)

    # Epilogue

    def _finish(self, acc: View, corrections: Sequence[View], index: Sequence[Dim]) -> None:
        with self.paths.part(acc, self.block, self.vector) as part:
            self._finish_part(part, corrections, [part.moved(i) for i in index])

    def _finish_part(self, part: Part, corrections: Sequence[View], index: Sequence[Dim]) -> None:
        p, paths, acc = self.problem, self.paths, part.view
        made, acc_dtype = p.anchor.output, accumulator_dtype(p.a.dtype)

        def view(value: Value, role: str = "in") -> View:
            return self.space.view(value, index, acc.shape, role)

        if not self.attached.nodes and p.alpha == 1.0 and not corrections:
            ((_, outer),) = self.outputs
            paths.store_accumulator(view(outer, "out"), acc, part.shape, made.dtype)
            return
        emitter = ElementwiseEmitter(self.task, part.shape, acc.shape)
        result: Operand = paths.to_vector(acc, part.shape, acc_dtype)
        for correction in corrections:
            result = emitter.apply("TSUB", acc_dtype, result, correction)
        if p.alpha != 1.0:
            result = emitter.apply("TMUL", acc_dtype, result, p.alpha)
        if made.dtype != acc_dtype:
            result = emitter.apply("TCVT", made.dtype, result)
        operands = self.attached.emit(emitter, paths, view, {made.name: result}, self.body.outputs)
        store_results(paths, emitter, self.outputs, operands, lambda value: view(value, "out"))


