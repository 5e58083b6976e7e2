"""TMATMUL on AMX, the matrix unit of x86-64: products of bf16 numbers or of bytes on eight tile registers.

A row of a tile holds 16 words of 32 bits. In a and b a word is a group of consecutive k (two bf16 numbers, four bytes),
in an accumulator it is one element. A step multiplies up to two tiles of rows (tiles 4 and 5, of a) by up to two tiles
of columns (6 and 7, of b) into up to four accumulators (0 to 3, row by row). Finished accumulators go to the workspace,
from which their rows are read as vectors.

- All tiles of a site have one size, which divides m and k evenly where it can. The configuration is loaded at the
  start of the site and released at its end, so it never outlives a task.
- What memory holds as full rows at one distance is loaded from there. Tiles of a that it does not (tails of m and k,
  rows of an image narrower than a tile) are gathered in the workspace; rows past the end hold whatever was there, as
  they reach no row of the result that is read.
- b in groups, packed [k/group][n][group], is loaded from there too. Its last step, if partial, and b in plain rows of
  bf16 numbers are brought into groups in the workspace, once per column block; what k lacks is zero in a and b alike.

Numbers: bf16 denormals count as zero, the even and the odd k of a step are two chains of fused multiply-adds, then
their sum is added to the accumulator; every result that is denormal becomes zero. Bytes are exact modulo 2**32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from codegen.llvm.cube_amx_plan import TILE_ROWS, TileProduct
from codegen.llvm.cube_dot import lane_mask
from codegen.llvm.cube_elements import Elements
from codegen.llvm.cube_reduction import ReductionAxis
from codegen.llvm.cube_registers import balanced_split, cut
from codegen.llvm.cube_site import MatmulSite, RegisterTile, load_rows
from codegen.llvm.text import Function, Value
from codegen.targets.hosts import host_class

_ROW_BYTES = 64
_TILE_BYTES = TILE_ROWS * _ROW_BYTES
_RESULTS, _LEFT, _RIGHT = 0, 4 * _TILE_BYTES, 6 * _TILE_BYTES
"""Places in the workspace: rows of two accumulators side by side, gathered tiles of a, b brought into groups."""
_FINISHED_ROWS = 4
"""Rows handed to `finish` at a time."""


@dataclass(frozen=True)
class _Columns:
    """Up to two tiles of columns: where they start, a mask operand or None for each, the address of their b."""

    start: Value
    masks: tuple[str | None, ...]
    b: str


@dataclass(frozen=True)
class _Rows:
    """One tile of rows of a: the address of the first, its index in m, and how many steps of the stacked axis."""

    pointer: str
    index: tuple[Value, ...]
    steps: Value


class TileEmitter:
    """Emits one site.

    Rows of a tile lie along the innermost m axis; where that one is static and no longer than a tile, a tile holds
    `unit` of its rows for each of up to `height` steps of the axis outside it. Tiles are stacked along axis `stacked`.
    """

    def __init__(self, fn: Function, site: MatmulSite, product: TileProduct) -> None:
        self.fn, self.site, self.product = fn, site, product
        self.elements = Elements(host_class(site.target), site.acc_dtype)
        self.left, self.right = (self.elements.storage(operand.dtype) for operand in (site.a, site.b))
        self.strides = site.a.strides[: len(site.m)]
        inner = site.m[-1]
        self.narrow = len(site.m) > 1 and isinstance(inner, int) and inner <= TILE_ROWS
        self.unit = inner if self.narrow and isinstance(inner, int) else 1
        self.stacked = len(site.m) - (2 if self.narrow else 1)
        most, extent = TILE_ROWS // self.unit, site.m[self.stacked]
        self.height = -(-extent // -(-extent // most)) if isinstance(extent, int) else most
        self.row_stride = self._row_stride()
        outer = [axis.extent for axis in product.outer if isinstance(axis.extent, int)]
        self.right_bytes = prod(outer) * self.product.copied * _ROW_BYTES
        """Of the workspace, for the copied words of one tile of columns."""
        self.workspace = ""

    def _row_stride(self) -> Value | None:
        """The distance of consecutive rows of a full tile, None if it varies."""
        step, inner = self.strides[self.stacked], self.strides[-1]
        if self.unit == 1:
            return step
        even = isinstance(inner, int) and step == self.unit * inner
        return inner if self.height == 1 or even else None

    def emit(self) -> None:
        """The whole site."""
        fn, site = self.fn, self.site
        self.workspace = site.workspace(_RIGHT + 2 * self.right_bytes)
        fn.call("void", "llvm.x86.ldtilecfg", f"ptr {self._configuration()}")
        tiles = -(-site.n_max // TILE_ROWS)
        for first, count, size in balanced_split(tiles, 2):
            width = size * TILE_ROWS
            end = fn.minimum(site.n, first * TILE_ROWS + count * width)
            with fn.loop(end, width, first * TILE_ROWS) as start:
                masks = tuple(self._mask(fn.add(start, j * TILE_ROWS)) for j in range(size))
                b = fn.offset(site.b.pointer, fn.mul(start, site.b.strides[-1]), self.right)
                columns = _Columns(start, masks, b)
                if self.product.copied:
                    self._copy_right(columns)
                self._over_rows(site.m[: self.stacked], (), columns)
        fn.call("void", "llvm.x86.tilerelease")

    def _configuration(self) -> str:
        """The address of the site's tile configuration."""
        rows, words = self.height * self.unit, self.product.words
        shapes = [(rows, _ROW_BYTES)] * 4 + [(rows, 4 * words)] * 2 + [(words, _ROW_BYTES)] * 2
        table = bytearray(64)
        table[0] = 1  # the palette of eight tiles
        for number, (height, width) in enumerate(shapes):
            table[16 + 2 * number] = width
            table[48 + number] = height
        name = f"tiles_{rows}_{words}"
        values = ", ".join(f"i8 {value}" for value in table)
        self.fn.constants[name] = f"@{name} = private unnamed_addr constant [64 x i8] [{values}], align 64"
        return f"@{name}"

    def _mask(self, start: Value) -> str | None:
        """The mask operand of the tile of columns from `start` on."""
        n = self.site.n
        if isinstance(n, int) and (n % TILE_ROWS == 0 or (isinstance(start, int) and n - start >= TILE_ROWS)):
            return None
        return lane_mask(self.fn, TILE_ROWS, self.fn.sub(n, start))

    # b
    def _copy_right(self, columns: _Columns) -> None:
        """Brings the words first.. of b into the workspace, zeros behind the last one of k."""
        fn, k = self.fn, self.product
        whole, odd = divmod(k.extent, k.group)

        def copy(flat: Value, at_a: Value, b: str) -> None:
            for j, mask in enumerate(columns.masks):
                source = fn.offset(b, fn.mul(j * TILE_ROWS, self.site.b.strides[-1]), self.right)
                to = self._copy_of(j, flat, k.first)
                with fn.loop(whole, 1, k.first) as word:
                    row = fn.offset(to, fn.mul(fn.sub(word, k.first), _ROW_BYTES), "i8")
                    fn.store("<16 x i32>", self._word(source, word, mask, self.product.group), row, _ROW_BYTES)
                for word in range(whole, k.first + k.copied):
                    value = self._word(source, word, mask, odd) if odd and word == whole else "zeroinitializer"
                    row = fn.offset(to, (word - k.first) * _ROW_BYTES, "i8")
                    fn.store("<16 x i32>", value, row, _ROW_BYTES)

        self._over_outer(self.product.outer, 0, 0, columns.b, copy)

    def _copy_of(self, column: int, flat: Value, word: Value) -> str:
        """Where the workspace has a word of b, for step `flat` of the outer axes together."""
        row = self.fn.add(self.fn.mul(flat, self.product.copied), self.fn.sub(word, self.product.first))
        at = self.fn.add(_RIGHT + column * self.right_bytes, self.fn.mul(row, _ROW_BYTES))
        return self.fn.offset(self.workspace, at, "i8")

    def _word(self, source: str, word: Value, mask: str | None, count: int) -> str:
        """A row of words of b, of whose k the first `count` exist; lanes outside the mask are not read."""
        fn, step = self.fn, self.product.step
        if self.product.grouped:
            return _load(fn, "i32", fn.offset(source, fn.mul(word, step), self.right), mask)
        rows = []
        for i in range(2):
            pointer = fn.offset(source, fn.mul(fn.add(fn.mul(word, 2), i), step), self.right)
            rows.append(_load(fn, "i16", pointer, mask) if i < count else "zeroinitializer")
        order = ", ".join(f"i32 {lane + row * TILE_ROWS}" for lane in range(TILE_ROWS) for row in range(2))
        pairs = fn.emit(f"shufflevector <16 x i16> {rows[0]}, <16 x i16> {rows[1]}, <32 x i32> <{order}>")
        return fn.emit(f"bitcast <32 x i16> {pairs} to <16 x i32>")

    # a
    def _over_rows(self, extents: Sequence[Value], at: tuple[Value, ...], columns: _Columns) -> None:
        """Loops over the m axes outside the stacked one, then over blocks of two tiles, then what is left."""
        fn, height = self.fn, self.height
        if extents:
            with fn.loop(extents[0]) as index:
                self._over_rows(extents[1:], (*at, index), columns)
            return
        extent = self.site.m[self.stacked]
        pairs = fn.mul(fn.floordiv(extent, 2 * height), 2 * height)
        if pairs != 0:
            with fn.loop(pairs, 2 * height) as start:
                self._block(at, start, (height, height), columns)
        if isinstance(extent, int) and isinstance(pairs, int):
            rest = [min(height, extent - start) for start in range(pairs, extent, height)]
            if rest:
                self._block(at, pairs, rest, columns)
            return
        with fn.loop(extent, height, pairs) as start:
            self._block(at, start, (fn.minimum(height, fn.sub(extent, start)),), columns)

    def _block(self, at: tuple[Value, ...], start: Value, steps: Sequence[Value], columns: _Columns) -> None:
        """One register block, from zeros to finished rows."""
        fn, site = self.fn, self.site
        tiles = []
        for i, count in enumerate(steps):
            index = (*at, fn.add(start, i * self.height))
            pointer = site.a.pointer
            for position, stride in zip(index, self.strides, strict=False):
                pointer = fn.offset(pointer, fn.mul(position, stride), self.left)
            tiles.append(_Rows(pointer, index, count))
        width = len(columns.masks)
        accumulators = [(i, j) for i in range(len(tiles)) for j in range(width)]
        for i, j in accumulators:
            fn.call("void", "llvm.x86.tilezero", f"i8 {2 * i + j}")

        def multiply(flat: Value, at_a: Value, b: str) -> None:
            if self.product.full:
                with fn.loop(self.product.full) as step:
                    self._step(tiles, columns, flat, at_a, b, step, self.product.size)
            if self.product.rest:
                self._step(tiles, columns, flat, at_a, b, self.product.full, self.product.rest)

        self._over_outer(self.product.outer, 0, 0, columns.b, multiply)
        for i, j in accumulators:
            place = fn.offset(self.workspace, _RESULTS + 2 * i * _TILE_BYTES + j * _ROW_BYTES, "i8")
            fn.call("void", "llvm.x86.tilestored64", f"i8 {2 * i + j}", f"ptr {place}", f"i64 {2 * _ROW_BYTES}")
        for i, tile in enumerate(tiles):
            self._finish(i, tile, columns)

    def _over_outer(
        self, axes: Sequence[ReductionAxis], flat: Value, at_a: Value, b: str,
        body: Callable[[Value, Value, str], None],
    ) -> None:  # fmt: skip
        """Loops over the outer axes of k: their number together, the offset in a, the position in b."""
        if not axes:
            body(flat, at_a, b)
            return
        fn, axis = self.fn, axes[0]
        with fn.loop(axis.extent) as index:
            number = fn.add(fn.mul(flat, axis.extent), index) if self.product.copied else 0
            moved = fn.offset(b, fn.mul(index, axis.b), self.right)
            self._over_outer(axes[1:], number, fn.add(at_a, fn.mul(index, axis.a)), moved, body)

    def _step(
        self, tiles: Sequence[_Rows], columns: _Columns, flat: Value, at_a: Value, b: str, step: Value, valid: int
    ) -> None:
        """One step of k, of which `valid` elements exist, into all accumulators."""
        fn = self.fn
        for i, tile in enumerate(tiles):
            self._load_left(i, tile, fn.add(at_a, fn.mul(step, self.product.size)), valid)
            for j in range(len(columns.masks)):
                if i == 0:
                    self._load_right(j, flat, b, step, valid)
                name = f"llvm.x86.{self.product.instruction}"
                fn.call("void", name, f"i8 {2 * i + j}", f"i8 {4 + i}", f"i8 {6 + j}")

    def _load_right(self, column: int, flat: Value, b: str, step: Value, valid: int) -> None:
        fn, product = self.fn, self.product
        word = fn.mul(step, product.words)
        if product.packed and valid == product.size:
            at = fn.add(fn.mul(word, product.step), column * TILE_ROWS * product.group)
            pointer, stride = fn.offset(b, at, self.right), fn.mul(product.step, self.site.b.dtype.bytes)
        else:
            pointer, stride = self._copy_of(column, flat, word), _ROW_BYTES
        fn.call("void", "llvm.x86.tileloadd64", f"i8 {6 + column}", f"ptr {pointer}", f"i64 {stride}")

    def _load_left(self, number: int, tile: _Rows, at: Value, valid: int) -> None:
        fn, size = self.fn, self.site.a.dtype.bytes
        pointer, stride = fn.offset(tile.pointer, at, self.left), self.row_stride
        if tile.steps == self.height and valid == self.product.size and stride is not None:
            stride = fn.mul(stride, size)
        else:
            gathered, lanes = fn.offset(self.workspace, _LEFT + number * _TILE_BYTES, "i8"), _ROW_BYTES // size
            mask = None if valid == lanes else lane_mask(fn, lanes, valid)
            with fn.loop(tile.steps) as step, fn.loop(self.unit) as x:
                row = fn.offset(pointer, fn.mul(step, self.strides[self.stacked]), self.left)
                if self.unit > 1:
                    row = fn.offset(row, fn.mul(x, self.strides[-1]), self.left)
                value = _load(fn, self.left, row, mask, lanes)
                place = fn.offset(gathered, fn.mul(fn.add(fn.mul(step, self.unit), x), _ROW_BYTES), "i8")
                fn.store(f"<{lanes} x {self.left}>", value, place, _ROW_BYTES)
            pointer, stride = gathered, _ROW_BYTES
        fn.call("void", "llvm.x86.tileloadd64", f"i8 {4 + number}", f"ptr {pointer}", f"i64 {stride}")

    # Results
    def _finish(self, number: int, tile: _Rows, columns: _Columns) -> None:
        """Hands the rows of a finished tile of the workspace on."""
        results = self.fn.offset(self.workspace, _RESULTS + 2 * number * _TILE_BYTES, "i8")
        if not self.narrow:
            cut(self.fn, tile.steps, _FINISHED_ROWS,
                lambda row, count: self._hand_over(results, row, tile.index, row, count, columns))  # fmt: skip
            return
        with self.fn.loop(tile.steps) as step:
            index = (*tile.index[:-1], self.fn.add(tile.index[-1], step), 0)
            first = self.fn.mul(step, self.unit)
            cut(self.fn, self.unit, _FINISHED_ROWS,
                lambda x, count: self._hand_over(results, self.fn.add(first, x), index, x, count, columns))  # fmt: skip

    def _hand_over(
        self, results: str, row: Value, index: tuple[Value, ...], x: Value, count: int, columns: _Columns
    ) -> None:
        """`count` rows from `row` of the results on, whose index in m starts at `index` plus x along its last axis."""
        fn, elements = self.fn, self.elements
        origin = (*index[:-1], fn.add(index[-1], x))
        offsets = [(*[0] * (len(origin) - 1), i) for i in range(count)]
        indices = [(*origin[:-1], fn.add(origin[-1], i)) for i in range(count)]
        width = len(columns.masks)
        tile = RegisterTile(indices, columns.start, TILE_ROWS, [], list(columns.masks), origin, offsets)
        start = fn.offset(results, fn.mul(row, 2 * _ROW_BYTES), "i8")
        sums = [
            fn.load(elements.vector, fn.offset(start, (2 * i + j) * _ROW_BYTES, "i8"), _ROW_BYTES)
            for i in range(count) for j in range(width)
        ]  # fmt: skip
        if self.site.initial:
            held = load_rows(fn, elements, self.site.initial, tile)
            sums = [elements.add(fn, x, y) for x, y in zip(held, sums, strict=True)]
        tile.vectors = [sums[i : i + width] for i in range(0, len(sums), width)]
        self.site.finish(fn, tile)


def _load(fn: Function, element: str, pointer: str, mask: str | None, lanes: int = TILE_ROWS) -> str:
    """A vector of stored elements; lanes outside the mask are zero and not read."""
    vector = f"<{lanes} x {element}>"
    if mask is None:
        return fn.load(vector, pointer)
    name = f"llvm.masked.load.v{lanes}{element}.p0"
    return fn.call(vector, name, f"ptr align 1 {pointer}", mask, f"{vector} zeroinitializer")
