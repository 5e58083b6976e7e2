"""Products with constant codes of 2, 4 or 8 bits, scaled block by block of k and column: BlockMatMul on hosts.

The codes are multiplied as they lie: c = sum over blocks of ((a @ codes) - zeros * sum(a)) * scales, each term an
epilogue on the accumulators of its block. They are packed in panels, those below 8 bits in words (`bits` of TMATMUL).
With many rows of numbers, a panel is converted once for them instead (`widen`). Where a comes as codes too
(QuantizeBlocks), products of bytes are summed in i32, part by part, each with its own scale of a; where these count
from the least number of their part, that times the sum of the codes joins them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from codegen.kernels.attached import Attached, store_results
from codegen.kernels.conv_core import panel_width
from codegen.kernels.elementwise import ElementwiseEmitter, Operand
from codegen.kernels.memory_paths import MemoryPaths, accumulator_dtype
from codegen.kernels.narrow_weight import weight_of
from codegen.kernels.operands import NotLowerable, block_extent, body_of, outer_outputs, outer_values, shape_of
from codegen.kernels.region_space import Space
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling, first_fit, halvings
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.instructions import code_shifts
from codegen.tile.ir import View, axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, ceildiv, product
from tensor_types.dtypes import F32, I32, U8, U32, DType
from tensor_types.formats import PLAIN, code_panels, panels

_MOST_ROWS = 192
_VECTORS = 4
"""Of a panel: what belongs to a block of k as a whole, sums of a and parameters, is shared by so many columns."""
_WIDEN_ROWS = 12
"""From this many rows on, converting a panel once costs less than in each register tile."""
_WIDE_ELEMENTS = 1 << 13
"""Of a part of a panel as numbers, which stays in the first-level cache."""


@dataclass(frozen=True)
class BlockMatmulTiling(Tiling, kind="block_matmul", place="host"):
    """Blocks of `rows` by `columns`; `widen` converts the codes of a panel to f32 once for a block."""

    rows: int
    columns: int
    widen: bool = False


def lower_block_matmul(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node around a BlockMatMul; NotLowerable says why there is none."""
    if target.explicit_memory:
        raise NotLowerable("a chip multiplies numbers, not codes")
    kernel = _Lowering(node, target)
    if any(d == 0 for d in shape_of(kernel.anchor.output)):
        return []
    if kernel.weight.k == 0:
        raise NotLowerable("it sums over nothing: the result is 0")
    return first_fit(kernel.candidates(), lambda chosen: _Lowering(node, target).emit(chosen), tiling)


class _Lowering:
    """One product; `candidates` or `emit` is to be called, once."""

    def __init__(self, node: Node, target: Target) -> None:
        self.target = target
        self.body, self.values = body_of(node), outer_values(node)
        self.anchor, *rest = self.body.nodes
        if self.anchor.op != "BlockMatMul":
            raise NotLowerable(f"{self.anchor.op} is no product with codes")
        self.weight = weight_of(self.anchor, self.values)
        self.a = self._outer(0)
        self.quantised = self.a.dtype.is_integer
        self.lows = self.anchor.input(6)
        self.attached = Attached(rest, self.values, [self.anchor.output.name])
        self.outputs = outer_outputs(node)
        self.task = KernelTask(node, "block_matmul", target)
        self.paths = MemoryPaths(self.task, target)
        if self.quantised:
            parts = shape_of(self._outer(4))[-1]
            self.a_part = self.weight.k // parts if isinstance(parts, int) and parts else 0
            k, block = self.weight.k, self.weight.block
            if not self.a_part or k % parts or block % self.a_part or k % block:
                raise NotLowerable("codes of both operands in blocks that do not divide k")

    def _outer(self, index: int) -> Value:
        value = self.anchor.inputs[index]
        assert value is not None
        return self.values.get(value.name, value)

    def _enter(self) -> None:
        result = shape_of(self.anchor.output)
        if any(o.shape != result or not o.format.is_plain for _, o in self.outputs):
            raise NotLowerable("results differ in shape or format from the product")
        seen = [*self.attached.extras.values(), *(o for _, o in self.outputs)]
        if any(not v.format.is_plain for v in (self.a, *seen)):
            raise NotLowerable("operands in plain order only")
        left = Value("", self.a.dtype, (*result[:-1], 1))
        self.space = Space(self.task, result, PLAIN, [left, *seen], (len(result) - 1,))

    def candidates(self) -> Iterator[BlockMatmulTiling]:
        """Tilings by falling preference."""
        self._enter()
        weight, lanes = self.weight, self.target.vector_bytes // F32.bytes
        groups = self.space.graph_extents[:-1]
        m = groups[-1] if groups else 1
        rows = min(m, _MOST_ROWS) if isinstance(m, int) else _MOST_ROWS
        columns = panel_width(weight.n, _VECTORS * lanes, lanes)
        widen = not self.quantised and rows >= _WIDEN_ROWS
        for fewer in halvings(rows):
            yield BlockMatmulTiling(fewer, columns, widen)

    def emit(self, tiling: BlockMatmulTiling) -> list[Record]:
        """The task."""
        self._enter()
        weight, task, space = self.weight, self.task, self.space
        if tiling.widen and self.quantised:
            raise NotLowerable("widen=1 takes numbers")
        self.rows, self.columns = tiling.rows, tiling.columns
        index: list[Dim] = [0] * len(space.groups)
        for g in range(len(space.groups) - 2):
            index[g] = self.paths.grid(space.extents[g])
        m: Dim = space.extents[-2] if len(space.groups) > 1 else 1
        j, i = self.paths.grid(ceildiv(weight.n, self.columns)), self.paths.grid(ceildiv(m, self.rows))
        self.extents = block_extent(self.rows, i, m), block_extent(self.columns, j, weight.n)
        if len(space.groups) > 1:
            index[-2] = self.rows * i + axis(0)
        index[-1] = self.columns * j + axis(1)
        self.index, self.panel = index, j
        self.acc = self._tile(F32)
        if weight.blocks > 1 or tiling.widen:
            task.expands(self.acc, 0.0)
        if not tiling.widen:
            self._terms()
        elif isinstance(m, int):
            self._wide_products()
        else:
            with task.when(self.extents[0], "<", _WIDEN_ROWS):
                self._terms()
            with task.otherwise():
                self._wide_products()
        self._finish()
        return [task.record(2 * product(shape_of(self.anchor.output)) * weight.k)]

    def _tile(self, dtype: DType) -> View:
        return self.paths.tile(dtype, (self.rows, self.columns)).window((0, 0), self.extents)

    # Terms: a block of k each, on its accumulators

    def _terms(self) -> None:
        weight = self.weight
        whole, rest = divmod(weight.k, weight.block)
        self.part, self.number = self._tile(accumulator_dtype(self.a.dtype)), self._tile(F32)
        self.term = self._tile(F32) if weight.blocks > 1 else self.number
        if self.quantised and self.lows is not None:
            self._prepare_sums_of_codes()
        if whole == 1:
            self._add_term(0, weight.block)
        elif whole:
            with self.task.loop("q", whole) as q:
                self._add_term(q, weight.block)
        if rest:
            self._add_term(whole, rest)

    def _add_term(self, q: Dim, size: int) -> None:
        """acc += ((a @ codes) - zeros * sum(a)) * scales for block q of `size` k."""
        task, scales = self.task, self._parameter(self.weight.scales, q)
        term = self._sum_of_parts(q) if self.quantised else self._sum_of_numbers(q, size)
        if self.weight.blocks == 1:
            task.mul(self.acc, term, scales)
        else:
            task.fma(self.acc, term, scales, self.acc)

    def _sum_of_numbers(self, q: Dim, size: int) -> View:
        """(a @ codes) - zeros * sum(a) over block q of `size` k."""
        product = self._product(self.part, self.weight.block * q, size)
        return self._less_zeros(product, q, lambda: self._sums_of_a(q, size))

    def _sum_of_parts(self, q: Dim) -> View:
        """The same of codes: each part of a in block q has its scale and, above its low, counts from 0."""
        count = self.weight.block // self.a_part
        if count == 1:
            self._add_part(self.number, q, q, True)
            return self.number
        total = self.term if self.weight.blocks > 1 else self.acc
        self.task.expands(total, 0.0)
        with self.task.loop("p", count) as p:
            self._add_part(total, q, count * q + p, False)
        return total

    def _add_part(self, total: View, q: Dim, p: Dim, first: bool) -> None:
        """total (+)= scale * (a @ codes - zeros * sum) + low * (sum of codes - zeros) for part p of a, in block q."""
        task, size, number = self.task, self.a_part, self.number
        counts = None if self.lows is None else self._sums_of_codes(q, p)
        product = self._product(self.part, size * p, size)
        task.cvt(number, product)
        self._less_zeros(number, q, lambda: self._of_a(5, p))
        if first:
            task.mul(total, number, self._of_a(4, p))
        else:
            task.fma(total, number, self._of_a(4, p), total)
        if counts is not None:
            task.fma(total, self._of_a(6, p), counts, total)

    def _product(self, target: View, start: Dim, size: int) -> View:
        """a @ codes for `size` k from `start` on."""
        weight, group = self.weight, self.group
        a = self._left(start, (size,) if group == 1 else (size // group, group))
        attrs = {"bits": weight.bits} if weight.bits else {}
        self.task.matmul(target, a, self._right(start, size), nm=1, nk=len(a.shape) - 1, **attrs)
        return target

    def _less_zeros(self, value: View, q: Dim, sums: Callable[[], View]) -> View:
        """value - zeros * sums, in `number`, where there are zeros; else the value."""
        weight, task, number = self.weight, self.task, self.number
        if weight.zeros is not None:
            shift = self._tile(F32)
            task.mul(shift, sums(), self._parameter(weight.zeros, q))
            task.sub(number, value, shift)
        elif weight.middle:
            task.fma(number, sums(), -weight.middle, value)
        else:
            return value
        return number

    # Sums of codes, with which the lows of a are multiplied

    def _prepare_sums_of_codes(self) -> None:
        """Ones for a, whose products with the codes are their sums."""
        paths, size, columns = self.paths, self.a_part, self.columns
        shape = (1, size) if self.group == 1 else (1, size // self.group, self.group)
        self.ones = paths.tile(U8, shape)
        self.task.expands(self.ones.window((0,) * len(shape), shape), 1)
        self.counted, self.counts = paths.tile(I32, (1, columns)), paths.tile(F32, (1, columns))

    def _sums_of_codes(self, q: Dim, p: Dim) -> View:
        """Sum of codes less zeros over part p of a, for each column."""
        task, size, n = self.task, self.a_part, self.extents[1]
        ones = self.ones.window((0,) * len(self.ones.shape), self.ones.shape)
        counted, counts = (t.window((0, 0), (1, n)) for t in (self.counted, self.counts))
        attrs = {"bits": self.weight.bits} if self.weight.bits else {}
        task.matmul(counted, ones, self._right(size * p, size), nm=1, nk=len(ones.shape) - 1, **attrs)
        task.cvt(counts, counted)
        if self.weight.zeros is not None:
            zeros = self._parameter(self.weight.zeros, q)
            task.fma(counts, View(zeros.base, zeros.index, (1, n)), -float(size), counts)
        elif self.weight.middle:
            task.sub(counts, counts, self.weight.middle * size)
        return self.counts.view(0, axis(1), shape=self.extents)

    def _of_a(self, index: int, q: Dim) -> View:
        """The scale, sum or low of part q of a's codes, for each row."""
        lead = self.space.extents[:-1]
        buffer = self.task.operand(self._outer(index), "in", (*lead, self.weight.k // self.a_part))
        return buffer.view(*self.index[:-1], q, shape=self.extents)

    def _sums_of_a(self, q: Dim, size: int) -> View:
        """The sum of a's elements in block q, for each row."""
        task, source = self.task, self._left(self.weight.block * q, (size,))
        sums = self.paths.passing(F32, (self.rows,), "UB")
        task.rowsum(View(sums.name, (axis(0),), source.shape), source, axes=(1,))
        return View(sums.name, (axis(0),), self.extents)

    def _parameter(self, value: Value, q: Dim) -> View:
        """The scales or zeros of block q as f32, one for each column of the block."""
        columns = self.extents[1]
        source = self._panel_of(value).view(self.panel, q, axis(0), shape=(columns,))
        if value.dtype == F32:
            return View(source.base, (self.panel, q, axis(1)), self.extents)
        wide = self.paths.tile(F32, (self.columns,))
        self.task.cvt(wide.window((0,), (columns,)), source)
        return View(wide.name, (axis(1),), self.extents)

    def _panel_of(self, value: Value) -> Buffer:
        """Scales or zeros as [n/columns, blocks, columns]; codes below a byte have one of their own here."""
        shape = (ceildiv(self.weight.n, self.columns), self.weight.blocks, self.columns)
        dtype = U8 if value.dtype.bits < 8 else value.dtype
        return self.task.operand(value, "in", shape, packing=panels(self.columns), dtype=dtype)

    # Operands

    def _left(self, start: Dim, shape: tuple[Dim, ...]) -> View:
        """a from k = `start` on as [rows, *shape], the last one or two axes being k."""
        lead = self.space.extents[:-1]
        buffer = self.task.operand(self.a, "in", (*lead, self.weight.k))
        at = axis(1) if len(shape) == 1 else shape[1] * axis(1) + axis(2)
        return buffer.view(*self.index[:-1], start + at, shape=(self.extents[0], *shape))

    def _right(self, start: Dim, size: int) -> View:
        """The codes from k = `start` on: words [size/codes, columns], or bytes as `group` says."""
        columns, group = self.extents[1], self.group
        buffer, at = self._codes(), start // group
        if self.weight.bits or group == 1:
            return buffer.view(self.panel, at + axis(0), axis(1), shape=(size // group, columns))
        return buffer.view(self.panel, at + axis(0), axis(2), axis(1), shape=(size // group, group, columns))

    @property
    def group(self) -> int:
        """Consecutive k that lie together in the codes: those of a word, four bytes for products of bytes, or one."""
        weight = self.weight
        if weight.bits:
            return 32 // weight.bits
        return 4 if self.quantised and self.a_part % 4 == 0 else 1

    def _codes(self) -> Buffer:
        """The codes in panels of columns, see `group`."""
        weight, columns, group = self.weight, self.columns, self.group
        shape = [ceildiv(weight.n, columns), weight.k // group, columns]
        if weight.bits:
            return self.task.operand(weight.codes, "in", shape, packing=code_panels(columns, weight.bits), dtype=U32)
        if group > 1:
            shape.append(group)
        return self.task.operand(weight.codes, "in", shape, packing=panels(columns, 2, group))

    # Panels of numbers, for many rows

    def _wide_products(self) -> None:
        """acc += a @ numbers, where some codes of a panel at a time become numbers that stay in the cache."""
        weight, group = self.weight, self.group
        most = max(group, _WIDE_ELEMENTS // self.columns // group * group)
        whole, rest = divmod(weight.k, weight.block)
        together = max(1, most // weight.block)
        self.wide = self.paths.tile(F32, (min(most, together * weight.block), self.columns), "L1")

        def blocks(first: Dim, size: int, count: int) -> None:
            if count > 1 or size <= most:
                return self._wide_product(first, 0, size, count)
            self._repeat("v", size // most, lambda v: self._wide_product(first, most * v, most, 1))
            if size % most:
                self._wide_product(first, size // most * most, size % most, 1)

        full, left = divmod(whole, together)
        self._repeat("w", full, lambda w: blocks(together * w, weight.block, together))
        if left:
            blocks(whole - left, weight.block, left)
        if rest:
            blocks(whole, rest, 1)

    def _repeat(self, variable: str, times: int, body: Callable[[Dim], None]) -> None:
        if times == 1:
            body(0)
        elif times:
            with self.task.loop(variable, times) as at:
                body(at)

    def _wide_product(self, first: Dim, offset: Dim, size: int, count: int) -> None:
        """The part of `count` blocks of `size` k from block `first` on, or of `size` k of one from `offset` on."""
        self._convert(first, offset, size, count)
        start, size = self.weight.block * first + offset, size * count
        right = self.wide.window((0, 0), (size, self.extents[1]))
        self.task.matmul_acc(self.acc, self._left(start, (size,)), right, nm=1, nk=1)

    def _convert(self, first: Dim, offset: Dim, size: int, count: int) -> None:
        """wide[k, n] = (codes - zeros) * scales for these k."""
        weight, task, paths, group = self.weight, self.task, self.paths, self.group
        steps = size // group
        shape, sizes = (count, steps, self.extents[1]), (count, steps, self.columns)
        row = (weight.block * first + offset) // group + steps * axis(0) + axis(1)
        codes = self._codes().view(self.panel, row, axis(2), shape=shape)
        scales = self._over_blocks(weight.scales, first, shape)
        zeros = None if weight.zeros is None else self._over_blocks(weight.zeros, first, shape)

        def passing(dtype: DType) -> View:
            return paths.passing(dtype, sizes, "UB").window((0, 0, 0), shape)

        for j, shift in enumerate(code_shifts(weight.bits) if weight.bits else (0,)):
            source, number = codes, passing(F32)
            if weight.bits:
                source = passing(U32)
                if shift:
                    task.shr(source, codes, shift)
                task.instr("TAND", source, source if shift else codes, (1 << weight.bits) - 1)
            task.cvt(number, source)
            if zeros is not None:
                task.sub(number, number, zeros)
            elif weight.middle:
                task.sub(number, number, weight.middle)
            place = group * (steps * axis(0) + axis(1)) + j
            task.mul(View(self.wide.name, (place, axis(2)), shape), number, scales)

    def _over_blocks(self, value: Value, first: Dim, shape: tuple[Dim, ...]) -> View:
        """Scales or zeros of the blocks from number `first` on as f32, seen with all axes of `shape`."""
        count, _, columns = shape
        view = self._panel_of(value).view(self.panel, first + axis(0), axis(2), shape=shape)
        if value.dtype == F32:
            return view
        assert isinstance(count, int)
        source = View(view.base, (self.panel, first + axis(0), axis(1)), (count, columns))
        wide = self.paths.tile(F32, (count, self.columns))
        self.task.cvt(wide.window((0, 0), source.shape), source)
        return wide.view(axis(0), axis(2), shape=shape)

    # Results

    def _finish(self) -> None:
        """Computes and stores the results of the block."""
        paths, made, acc = self.paths, self.anchor.output, self.acc
        block = (self.rows, self.columns)

        def view(value: Value, role: str = "in") -> View:
            return self.space.view(value, self.index, acc.shape, role)

        if not self.attached.nodes:
            ((_, outer),) = self.outputs
            self.task.store(view(outer, "out"), acc)
            return
        emitter = ElementwiseEmitter(self.task, block, acc.shape)
        result: Operand = acc if made.dtype == F32 else emitter.apply("TCVT", made.dtype, acc)
        operands = self.attached.emit(emitter, paths, view, {made.name: result}, self.body.outputs)
        store_results(paths, emitter, self.outputs, operands, lambda value: view(value, "out"))
