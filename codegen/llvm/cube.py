"""The host micro-kernel generator behind TMATMUL: dst[m.., n] (+)= sum over k.. of a[m.., k..] * b[k.., n].

One generator serves GEMM, GEMV, convolution through image-to-column views, attention products and grouped matmul: they
differ only in strides. A site is one block of m by one panel of n; the emitter cuts it into register tiles, runs the k
loops with all accumulators in registers and hands each finished tile to `MatmulSite.finish`. Where the host class has
tile registers and the operands suit them, `cube_amx` does the same on those.

- n is cut into runs of vectors; the last vector of a static n is masked, a dynamic n gets a masked variant of its tail.
  Where the host class computes vectors of half the width in half the time, a last vector that is half empty is one.
- The innermost m axis is cut into rows of a register tile; when it is static and small, a tile spans several steps of
  the axis outside it. Static extents are split evenly, dynamic ones have variants for remainders.
- Static strides become displacements. Rows of a tile at a run-time distance keep one base pointer each.
- b's rows are read in whole vectors when their static stride is the padded width of n (a packed panel); otherwise lanes
  outside n are never read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from codegen.llvm.cube_amx import TileEmitter
from codegen.llvm.cube_amx_plan import tile_product
from codegen.llvm.cube_bf16 import bf16_elements
from codegen.llvm.cube_bytes import ByteQuads, byte_elements
from codegen.llvm.cube_codes import code_elements
from codegen.llvm.cube_dot import DotColumns, DotReduction, is_dot, lane_mask, rows_together
from codegen.llvm.cube_elements import Elements
from codegen.llvm.cube_reduction import Reduction, ReductionAxis, RegisterColumns, RegisterRow, Schedule, merge_axes
from codegen.llvm.cube_registers import accumulator_sets, balanced_split, cut, rows_per_tile, vectors_per_tile
from codegen.llvm.cube_site import MatmulSite, RegisterTile, load_rows, split_offset
from codegen.llvm.text import Function, Value
from codegen.targets.hosts import HostClass, host_class
from tensor_types.dtypes import F32

_UNROLL = 4
_SMALL_TILE = 8
"""With this few accumulators a step of k is short and is unrolled twice as often."""
_PREFETCH_BYTES = 8192
"""How far ahead b is fetched: worth 5 to 25 % where weights come from L3 or memory, free where they come from L2."""
_RESIDENT_BYTES = 32 * 1024
"""A panel of b this small stays in L1 between register tiles; fetching ahead would run past it."""
_FEW_ROWS = 4
"""Up to this many rows take less time than memory does to deliver b."""
_MAX_ROWS_AT_DYNAMIC_STRIDE = 6
"""Each such row holds a general register for its base pointer."""


def emit_matmul(fn: Function, site: MatmulSite) -> None:
    """Emits the matmul into `fn`. Raises ValueError if strides and extents do not belong together."""
    vectors = _Emitter(fn, site)
    product = tile_product(site)
    if product is None:
        vectors.emit()
        return
    tiles = TileEmitter(fn, site, product)
    if product.least_rows == 1:
        tiles.emit()
        return
    rows = reduce(fn.mul, site.m)
    if isinstance(rows, int):
        (tiles if rows >= product.least_rows else vectors).emit()
    else:
        fn.when(fn.emit(f"icmp sge i64 {rows}, {product.least_rows}"), tiles.emit, vectors.emit)


@dataclass(frozen=True)
class _Columns:
    """A run of vectors of n: where it starts, and a mask operand or None for each vector."""

    start: Value
    masks: tuple[str | None, ...]
    whole: bool
    """Rows of b may be read in whole vectors although lanes are masked."""
    valid: Value
    """How many columns there are."""


class _Emitter:
    def __init__(self, fn: Function, site: MatmulSite, target: HostClass | None = None) -> None:
        """`target` is that of the site unless narrower vectors are to be used."""
        b_strides = (*site.b.strides[:-1], 0) if site.bits else site.b.strides[:-1]
        if len(site.a.strides) != len(site.m) + len(site.k) or len(b_strides) != len(site.k):
            raise ValueError("a needs a stride for each m and k axis, b one for each k axis and n")
        self.fn, self.site = fn, site
        self.target = host_class(target or site.target)
        self.elements = Elements(self.target, site.acc_dtype)
        self.lanes = self.elements.lanes
        a_strides = site.a.strides[len(site.m) :]
        axes = [ReductionAxis(*t) for t in zip(site.k, a_strides, b_strides, strict=True)]
        self.axes = merge_axes(axes)
        self.products = self.elements
        """Loads and multiplies the factors; `elements` serves values of the accumulator's dtype."""
        operands = (self.target, site.a.dtype, site.b.dtype, site.acc_dtype, self.axes, site.b.strides[-1])
        if site.bits:
            grouped = code_elements(self.target, site.a.dtype, site.acc_dtype, site.bits, axes)
            grouped = grouped[0], merge_axes(grouped[1])
        else:
            grouped = byte_elements(*operands) or bf16_elements(*operands)
        if grouped:
            self.products, self.axes = grouped
        self.dot = not grouped and is_dot(self.axes, site.b.strides[-1])
        self.contiguous = site.b.strides[-1] == 1 or self.products.packed
        self.m_strides = site.a.strides[: len(site.m)]

    # Columns
    def emit(self) -> None:
        fn, site, lanes = self.fn, self.site, self.lanes
        if 0 in site.m or site.n == 0 or site.n_max == 0:
            return
        if self._ends_narrow():
            assert isinstance(site.n, int)
            whole_n = site.n // lanes * lanes
            if whole_n:
                _Emitter(fn, replace(site, n=whole_n, n_max=whole_n)).emit()
            half = _Emitter(fn, site, replace(self.target, vector_bytes=self.target.vector_bytes // 2))
            half._tail(whole_n, site.n - whole_n)
            return
        total = -(-(site.n if isinstance(site.n, int) else site.n_max) // lanes)
        row_step = self.axes[-1].b if self.axes else 0
        whole = self.contiguous and row_step == total * lanes * self.products.group
        widest = 1 if self.dot else vectors_per_tile(self.target, total, self._short_rows(), whole)
        if isinstance(site.n, int):
            for first, count, size in balanced_split(total, widest):
                last = site.n % lanes and first + count * size == total
                plain = count - 1 if last else count
                if plain:
                    with fn.loop((first + plain * size) * lanes, size * lanes, first * lanes) as start:
                        self._rows(_Columns(start, (None,) * size, True, size * lanes))
                if last:
                    mask = lane_mask(fn, lanes, site.n % lanes)
                    start = (first + plain * size) * lanes
                    valid = (size - 1) * lanes + site.n % lanes
                    self._rows(_Columns(start, (*(None,) * (size - 1), mask), whole, valid))
            return
        width = widest * lanes
        full = fn.mul(fn.floordiv(site.n, width), width)
        if site.n_max >= width:
            with fn.loop(full, width) as start:
                self._rows(_Columns(start, (None,) * widest, True, width))
        rest = fn.sub(site.n, full)

        def tail() -> None:
            masks = tuple(lane_mask(fn, lanes, fn.sub(rest, v * lanes)) for v in range(widest))
            # Where vectors do not divide the panel, those of the tail reach past it.
            self._rows(_Columns(full, masks, whole and total % widest == 0, rest))

        fn.when(fn.emit(f"icmp sgt i64 {rest}, 0"), tail)

    def _ends_narrow(self) -> bool:
        """True if the last columns are one vector of half the width, which takes half the time."""
        site = self.site
        if not isinstance(site.n, int) or not 0 < site.n % self.lanes <= self.lanes // 2:
            return False
        floats = site.acc_dtype == F32 and site.b.dtype.is_float
        return self.target.engines.half_vectors and floats and self.contiguous and not self.dot

    def _tail(self, start: int, count: int) -> None:
        """The last columns, one vector of them."""
        mask = lane_mask(self.fn, self.lanes, count) if count < self.lanes else None
        self._rows(_Columns(start, (mask,), mask is None, count))

    def _short_rows(self) -> int:
        """Rows that one register tile should hold so that b is read once (per step of an outer axis), or 0."""
        inner = self.site.m[-1] if self.site.m else 1
        if not isinstance(inner, int) or isinstance(self.m_strides[-1] if self.m_strides else 0, str):
            return 0
        return inner

    # Rows
    def _rows(self, columns: _Columns) -> None:
        self.excess = self._excess(columns)
        if self.dot:
            most = rows_together(self.target, self.axes, self.lanes)
        else:
            most = rows_per_tile(self.target, len(columns.masks))
        most = min(most, self.products.most_rows or most)
        inner, outer = self.site.m[-1:], self.site.m[:-1]
        x = inner[0] if inner else 1
        if not isinstance(self.m_strides[-1] if inner else 0, int):
            most = min(most, _MAX_ROWS_AT_DYNAMIC_STRIDE)
        if outer and isinstance(x, int) and 2 * x <= most:
            # Short inner axis: a tile spans `group` steps of the axis outside it.
            spanned = outer[-1]
            self._outer(outer[:-1], (), lambda at: cut(
                self.fn, spanned, most // x,
                lambda y, size: self._tile(columns, (*at, y, 0), [(*[0] * len(at), dy, dx) for dy in range(size)
                                                                 for dx in range(x)]),
            ))  # fmt: skip
            return
        self._outer(outer, (), lambda at: cut(
            self.fn, x, most,
            lambda i, size: self._tile(columns, (*at, i) if inner else (),
                                       [(*[0] * len(at), dx) if inner else () for dx in range(size)]),
        ))  # fmt: skip

    def _excess(self, columns: _Columns) -> list[str]:
        """What the products exceed the real sums by, a vector for each of the columns'; the same in every row."""
        edges = self.products.edges() if isinstance(self.products, ByteQuads) else None
        vectors = len(columns.masks)
        if edges is None or 0 in self.site.k:
            return []
        axes = [replace(axis, a=0) for axis in self.axes]
        row = RegisterRow(self.site.a.pointer, 0)
        return self._reduction([row], columns, edges, axes).run(["zeroinitializer"] * vectors)

    def _outer(
        self, extents: Sequence[Value], at: tuple[Value, ...], body: Callable[[tuple[Value, ...]], None]
    ) -> None:
        if not extents:
            body(at)
            return
        with self.fn.loop(extents[0]) as index:
            self._outer(extents[1:], (*at, index), body)

    # One register tile
    def _tile(self, columns: _Columns, origin: tuple[Value, ...], offsets: list[tuple[int, ...]]) -> None:
        fn, site, elements = self.fn, self.site, self.elements
        vectors = len(columns.masks)
        indices = [tuple(fn.add(o, d) for o, d in zip(origin, offset, strict=True)) for offset in offsets]
        tile = RegisterTile(indices, columns.start, self.lanes, [], list(columns.masks), origin, offsets)
        initial = ["zeroinitializer"] * (len(offsets) * vectors)
        if site.initial:
            initial = load_rows(fn, elements, site.initial, tile)
        base = site.a.pointer
        for index, stride in zip(origin, self.m_strides, strict=True):
            base = fn.offset(base, fn.mul(index, stride), elements.storage(site.a.dtype))
        rows = []
        moved: dict[tuple[tuple[int, Value], ...], str] = {(): base}
        for offset in offsets:
            static, moving = split_offset(offset, self.m_strides)
            if moving not in moved:
                at: Value = 0
                for step, stride in moving:
                    at = fn.add(at, fn.mul(step, stride))
                moved[moving] = fn.offset(base, at, elements.storage(site.a.dtype))
            rows.append(RegisterRow(moved[moving], static))
        if self.dot:
            products = [] if 0 in site.k else self._dot(rows, columns)
            sums = [elements.add(fn, start, product) for start, product in zip(initial, products, strict=False)]
            tile.vectors = [[row] for row in sums or initial]
            site.finish(fn, tile)
            return
        if self.excess:
            initial = [
                fn.emit(f"sub {elements.vector} {value}, {self.excess[i % vectors]}") for i, value in enumerate(initial)
            ]
        sums = initial if 0 in site.k else self._reduction(rows, columns, self.products, self.axes).run(initial)
        tile.vectors = [sums[i : i + vectors] for i in range(0, len(sums), vectors)]
        site.finish(fn, tile)

    def _reduction(
        self, rows: Sequence[RegisterRow], columns: _Columns, products: Elements, axes: Sequence[ReductionAxis]
    ) -> Reduction:
        fn, site, vectors = self.fn, self.site, len(columns.masks)
        n_step = site.b.strides[-1]
        start = fn.offset(site.b.pointer, fn.mul(columns.start, n_step), self.elements.storage(site.b.dtype))
        read = RegisterColumns(start, n_step, (None,) * vectors if columns.whole else columns.masks)
        schedule = self._schedule(len(rows), vectors)
        products = products.for_rows(len(rows), vectors)
        return Reduction(fn, products, site.a.dtype, site.b.dtype, rows, read, axes, schedule)

    def _dot(self, rows: Sequence[RegisterRow], columns: _Columns) -> list[str]:
        """The dot products of rows of a with the columns of a transposed b."""
        fn, site = self.fn, self.site
        step, storage = site.b.strides[-1], self.elements.storage(site.b.dtype)
        base = fn.offset(site.b.pointer, fn.mul(columns.start, step), storage)
        found = []
        for j in range(columns.valid if isinstance(columns.valid, int) else self.lanes):
            # A column past the end reads the last one again; its lane is masked.
            index: Value = j if isinstance(columns.valid, int) else fn.minimum(j, fn.sub(columns.valid, 1))
            at = fn.mul(index, step)
            found.append(RegisterRow(base, at) if isinstance(at, int) else RegisterRow(fn.offset(base, at, storage), 0))
        last = isinstance(site.n, int) and site.n <= self.lanes  # no tile comes behind
        ahead = isinstance(step, int) and not last and not self.target.engines.own_prefetch
        dots = DotColumns(found, step * self.lanes * site.b.dtype.bytes if ahead else 0)
        return DotReduction(fn, self.elements, site.a.dtype, site.b.dtype, rows, dots, self.axes).run()

    def _schedule(self, rows: int, vectors: int) -> Schedule:
        if not self.contiguous:
            return Schedule(1, 1)  # gathers take long anyway
        sets = accumulator_sets(self.target, rows, vectors, self.products.chains)
        unroll = _UNROLL if rows * vectors > _SMALL_TILE else 2 * _UNROLL
        # One row of unconverted elements is a plain stream, which the core runs ahead of by itself (with prefetches it
        # loses 6 to 18 %); more rows or a conversion fill its window before it sees far enough, those of a core with
        # prefetchers of its own later than those of others.
        few = rows <= _FEW_ROWS and self.target.engines.own_prefetch
        plain_stream = few or (rows == 1 and self.site.b.dtype == self.site.acc_dtype)
        unroll = -(-unroll // self.products.parts)
        return Schedule(max(unroll, sets), sets, 0 if plain_stream else self._prefetch_steps(vectors))

    def _prefetch_steps(self, vectors: int) -> int:
        """How many steps of k ahead b is prefetched: none for panels that stay in L1."""
        site = self.site
        row = vectors * self.lanes * self.products.group * site.b.dtype.bytes
        extents = [extent for extent in site.k if isinstance(extent, int)]
        resident = len(extents) == len(site.k) and row * math.prod(extents) // self.products.group <= _RESIDENT_BYTES
        return 0 if resident else max(1, _PREFETCH_BYTES // row)
