"""Scaled dot-product attention with online softmax: scores never leave the core.

A grid index is one head and a chunk of query rows. Keys come in blocks: a block of K is packed once into scaled panels
of its transpose, then blocks of query rows take scores, softmax and the product with V. With few keys there is one
block and a plain softmax; else running maximum, sum and output are carried over the blocks.

Layouts: 'bhsd' or 'bshd' per operand, from the attributes q_layout, k_layout, v_layout and out_layout of the Attention
node, from Transposes with perm 0,2,1,3 around it, or from 3-D operands with head counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.operands import NotLowerable, body_of, body_values, shape_of
from codegen.kernels.region_task import KernelTask
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import View, axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, ceildiv, dmax, dmin
from tensor_types.dtypes import BF16, BOOL, F16, F32

_HEAD_SPLIT = (0, 2, 1, 3)
_TINY = 1e-30
"""Below any sum of a row that sees something."""
_LOWEST = -3.4028234663852886e38
"""Maxima start here, not at -inf: exp(-inf - maximum) is then 0 and never NaN."""
_LOG2_E = 1.4426950408889634
_ONE_BLOCK = 1024
"""Up to this many keys are one block."""
_KEYS, _QUERIES, _CHUNK = 512, 64, 512
_FEW_QUERIES = 4
"""Up to this many queries read K as it lies: packing it would cost more than the products."""
_PARALLEL = 8
_CHIP_KEYS, _CHIP_QUERIES = 64, 64


@dataclass(frozen=True)
class Head:
    """An operand [batch, heads, length, width] in one of two orders."""

    value: Value
    layout: str
    batch: Dim
    heads: int
    length: Dim
    width: int

    def buffer(self, task: KernelTask, role: str = "in") -> Buffer:
        """The parameter in physical order."""
        b, s = task.extent(self.batch), task.extent(self.length)
        shape = (b, self.heads, s, self.width) if self.layout == "bhsd" else (b, s, self.heads, self.width)
        return task.operand(self.value, role, shape)

    def view(self, buffer: Buffer, batch: Dim, head: Dim, row: Dim, column: Dim, shape: tuple[Dim, ...]) -> View:
        """Elements (row, column) of one head."""
        if self.layout == "bhsd":
            return buffer.view(batch, head, row, column, shape=shape)
        return buffer.view(batch, row, head, column, shape=shape)


@dataclass(frozen=True)
class Problem:
    """An attention node with the layouts of its operands."""

    q: Head
    k: Head
    v: Head
    out: Head
    mask: Value | None
    scale: float
    softcap: float
    causal: bool


def problem_of(node: Node) -> Problem:
    """Reads the body: an Attention node, head transposes around it. NotLowerable for anything else."""
    body = body_of(node)
    values = body_values(node)
    anchors = [n for n in body.nodes if n.op == "Attention"]
    if len(anchors) != 1 or any(n.op not in ("Attention", "Transpose") for n in body.nodes):
        raise NotLowerable("the body is not one attention with head transposes")
    anchor = anchors[0]
    if any(anchor.input(i) is not None for i in range(4, 7)) or len(anchor.outputs) > 1:
        raise NotLowerable("cache operands or further results")
    if any(int(anchor.attrs.get(f"{side}_window_size", -1)) >= 0 for side in ("left", "right")):  # type: ignore[call-overload]
        raise NotLowerable("a sliding window")
    producers = {n.output.name: n for n in body.nodes if n.op == "Transpose"}
    for n in producers.values():
        if tuple(n.attrs.get("perm", ())) != _HEAD_SPLIT:  # type: ignore[arg-type]
            raise NotLowerable("a transpose other than that of heads")
    heads: list[Head] = []
    for i, name in enumerate("qkv"):
        inner = anchor.inputs[i]
        assert inner is not None
        layout = str(anchor.attrs.get(f"{name}_layout", "bhsd"))
        shape = shape_of(inner)
        if inner.name in producers:
            source = producers[inner.name].inputs[0]
            assert source is not None
            inner, layout = source, {"bhsd": "bshd", "bshd": "bhsd"}[layout]
            shape = tuple(shape_of(inner)[p] for p in _HEAD_SPLIT) if layout == "bshd" else shape_of(inner)
        elif layout == "bshd" and len(shape) == 4:
            shape = tuple(shape[p] for p in _HEAD_SPLIT)
        if len(shape) == 3:
            count = anchor.attrs["q_num_heads" if name == "q" else "kv_num_heads"]
            hidden = shape[2]
            if not isinstance(hidden, int) or not isinstance(count, int):
                raise NotLowerable("the hidden size is not static")
            shape, layout = (shape[0], count, shape[1], hidden // count), "bshd"
        if not isinstance(shape[1], int) or not isinstance(shape[3], int):
            raise NotLowerable("heads and head size must be static")
        outer = values[inner.name]
        if not outer.format.is_plain:
            raise NotLowerable("operands in plain order only")
        heads.append(Head(outer, layout, shape[0], shape[1], shape[2], shape[3]))
    q, k, v = heads
    layout = str(anchor.attrs.get("out_layout", "bhsd"))
    if len(shape_of(anchor.output)) == 3:
        layout = "bshd"
    result = body.outputs[0]
    if result is not anchor.output:
        if result.producer is None or result.producer.inputs[0] is not anchor.output:
            raise NotLowerable("the result is not that of the attention")
        layout = {"bhsd": "bshd", "bshd": "bhsd"}[layout]
    out = Head(values[result.name], layout, q.batch, q.heads, q.length, v.width)
    if q.heads % k.heads or k.heads != v.heads or q.width != k.width:
        raise NotLowerable("head counts or sizes do not belong together")
    inner_mask = anchor.input(3)
    mask = None if inner_mask is None else values.get(inner_mask.name, inner_mask)
    scale = anchor.attrs.get("scale")
    softcap = float(anchor.attrs.get("softcap", 0.0) or 0.0)  # type: ignore[arg-type]
    factor = float(scale) if scale else q.width**-0.5  # type: ignore[arg-type]
    return Problem(q, k, v, out, mask, factor, softcap, bool(anchor.attrs.get("is_causal", 0)))


def lower_attention(node: Node, target: Target) -> list[Record] | None:
    """One task for a Fused node of family attention."""
    p = problem_of(node)
    if any(d == 0 for d in (p.q.batch, p.q.heads, p.q.length, p.v.width)):
        return []
    if p.q.value.dtype not in (F32, F16, BF16) or p.k.length == 0:
        raise NotLowerable("dtype or no keys")
    task = KernelTask(node, "attention")
    kernel = _ChipKernel(task, target, p) if target.explicit_memory else _HostKernel(task, target, p)
    kernel.emit()
    work = 2 * p.q.batch * p.q.heads * p.q.length * p.k.length * (p.q.width + p.v.width)
    return [task.record(work)]


def _extent(block: int, at: Dim, total: Dim) -> Dim:
    """Elements of block `at` of `total`."""
    if isinstance(total, int):
        if total <= block:
            return total
        if total % block == 0:
            return block
    return dmin(block, total - block * at)


def _even(extent: Dim, most: int, step: int = 1) -> int:
    """The size of equal blocks of at most `most`; run-time extents get blocks of `most`."""
    if not isinstance(extent, int):
        return most
    parts = -(-extent // most)
    size = -(-extent // parts)
    return -(-size // step) * step


class _Kernel:
    """What both kernels share: operands, the grid over batch and heads, and the mask."""

    def __init__(self, task: KernelTask, target: Target, p: Problem) -> None:
        self.task, self.target, self.p = task, target, p
        self.paths = MemoryPaths(task, target, products=2)
        self.q, self.k, self.v = (h.buffer(task) for h in (p.q, p.k, p.v))
        self.mask = None if p.mask is None else task.operand(p.mask)
        self.out = p.out.buffer(task, "out")
        self.s, self.t = task.extent(p.q.length), task.extent(p.k.length)
        self.rows = 0
        """Query rows of a block."""
        self.batch = self.paths.grid(task.extent(p.q.batch))
        group = p.q.heads // p.k.heads
        self.kv_head = self.paths.grid(p.k.heads)
        self.head = self.kv_head * group + self.paths.grid(group)

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
        return self.paths.vector_input(view, (_CHIP_QUERIES, _CHIP_KEYS), self.p.mask.dtype)

    def guard(self, sums: View) -> None:
        """A row that a bool mask hides everywhere gives 0: its sum of exponentials is 0, any other's is at least 1."""
        if self.p.mask is not None and self.p.mask.dtype == BOOL:
            self.task.max(sums, sums, _TINY)

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

    def declare_step(self, columns: int) -> None:
        """A tile of zeros, then -inf: read at (key - query) it hides the keys behind a query's own position."""
        self.step_columns, self.origin = columns, self.rows + columns
        self.step = self.paths.tile(F32, (2 * self.origin,))
        self.task.expands(self.step.window((0,), (self.origin + 1,)), 0.0)
        self.task.expands(self.step.window((self.origin + 1,), (self.origin - 1,)), float("-inf"))

    def hide_later_keys(self, scores: View, first_row: Dim, first_key: Dim) -> None:
        distance = dmax(-self.step_columns, dmin(self.rows, first_key - first_row))
        step = self.step.view(self.origin + distance + axis(1) - axis(0), shape=scores.shape)
        self.task.add(scores, scores, step)

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


class _HostKernel(_Kernel):
    def emit(self) -> None:
        p, task, paths = self.p, self.task, self.paths
        lanes = self.target.vector_bytes // 4
        self.panel = lanes * (4 if self.target.registers >= 32 else 2)
        few = self.t if isinstance(self.t, int) and self.t <= _ONE_BLOCK else None
        one = few is not None
        self.keys = _KEYS if few is None else -(-few // self.panel) * self.panel
        chunk = _even(self.s, _CHUNK)
        heads = p.q.heads * (p.q.batch if isinstance(p.q.batch, int) else 1)
        if heads < _PARALLEL:
            chunk = max(_QUERIES, min(chunk, _even(self.s, -(-chunk * heads // _PARALLEL))))
            chunk = min(chunk, self.s) if isinstance(self.s, int) else chunk
        self.rows = min(_even(self.s, _QUERIES), chunk)
        d, dv = p.q.width, p.v.width
        c = paths.grid(ceildiv(self.s, chunk))
        self.first = chunk * c
        total = _extent(chunk, c, self.s)
        self.kt = paths.tile(F32, (self.keys // self.panel, d, self.panel), "L1")
        self.scores = paths.tile(F32, (self.rows, self.keys), "L0C")
        self.products = paths.tile(F32, (self.rows, dv), "L0C")
        if not one:
            self.highest, self.sums = (paths.tile(F32, (chunk,)) for _ in range(2))
            self.held = paths.tile(F32, (chunk, dv))
        self.now, self.factor, self.part = (paths.tile(F32, (self.rows,)) for _ in range(3))
        self.wide_q = paths.tile(F32, (self.rows, d), "L1") if p.q.value.dtype != F32 else None
        self.wide_v = paths.tile(F32, (self.keys, dv), "L1") if p.v.value.dtype != F32 else None
        if p.causal:
            self.declare_step(self.panel)
        if not one:
            task.expands(self.highest, _LOWEST)
            task.expands(self.sums, 0.0)
            task.expands(self.held, 0.0)

        def key_block(j: Dim, packed: bool) -> None:
            if packed:
                self._pack(j)
            elif self.wide_v is not None:
                self._widen_values(j)

            def query_block(i: Dim) -> None:
                if p.causal and j != 0:
                    with task.when(self.keys * j, "<", self.first + self.rows * (i + 1)):
                        self._query_block(i, j, total, one, packed)
                else:
                    self._query_block(i, j, total, one, packed)

            self.loop("i", ceildiv(total, self.rows), query_block)

        def all_keys(packed: bool) -> None:
            self.loop("j", ceildiv(self.t, self.keys), lambda j: key_block(j, packed))

        if p.k.value.dtype != F32 or isinstance(self.s, int):
            all_keys(p.k.value.dtype != F32 or not isinstance(self.s, int) or self.s > _FEW_QUERIES)
        else:
            with task.when(self.s, "<=", _FEW_QUERIES):
                all_keys(packed=False)
            with task.otherwise():
                all_keys(packed=True)
        if not one:
            self.loop("f", ceildiv(total, self.rows), lambda i: self._divide(i, total))

    def wide_mask(self) -> Buffer:
        """A tile for a block of the mask in f32."""
        return self.paths.passing(F32, (self.rows, self.panel), "UB")

    @property
    def factor_of_scores(self) -> float:
        return self.p.scale * (_LOG2_E if self.base_2 else 1.0)

    def _count(self, j: Dim) -> Dim:
        return _extent(self.keys, j, self.t)

    def _pack(self, j: Dim) -> None:
        """Panels of the transpose of a block of K, scaled."""
        p, task, d = self.p, self.task, self.p.q.width
        keys = self._count(j)
        factor = self.factor_of_scores

        def panel(n: Dim) -> None:
            columns = _extent(self.panel, n, keys)
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
        keys, rows = self._count(j), _extent(self.rows, i, total)
        first = self.first + self.rows * i
        count, blocks = keys, ceildiv(keys, self.panel)
        if p.causal:
            # Whole panels up to the last query's own key.
            reach = dmax(0, first + self.rows - self.keys * j)
            blocks = ceildiv(dmin(keys, reach), self.panel)
            keys = dmin(keys, ceildiv(reach, self.panel) * self.panel)
        queries = p.q.view(self.q, self.batch, self.head, first + axis(0), axis(1), (rows, p.q.width))
        if self.wide_q is not None:
            wide = self.wide_q.window((0, 0), (rows, p.q.width))
            task.cvt(wide, queries)
            queries = wide

        def panel(n: Dim) -> None:
            columns = _extent(self.panel, n, count)
            shape = (rows, columns)
            scores = self.scores.window((0, self.panel * n), shape)
            if packed:
                task.matmul(scores, queries, self.kt.view(n, axis(0), axis(1), shape=(p.q.width, columns)), nm=1, nk=1)
            else:
                key = self.keys * j + self.panel * n + axis(1)
                rows_of_k = p.k.view(self.k, self.batch, self.kv_head, key, axis(0), (p.q.width, columns))
                task.matmul(scores, queries, rows_of_k, nm=1, nk=1)
                task.mul(scores, scores, self.factor_of_scores)
            self.capped(scores)
            if p.causal:
                self.hide_later_keys(scores, first, self.keys * j + self.panel * n)
            if p.mask is not None:
                self.apply_mask(scores, first + axis(0), self.keys * j + self.panel * n + axis(1),
                                lambda: self.wide_mask().window((0, 0), shape))  # fmt: skip

        self.loop("n", blocks, panel)
        shape = (rows, keys)
        scores = self.scores.window((0, 0), shape)
        now, part = (t.window((0,), (rows,)) for t in (self.now, self.part))
        task.rowmax(_rows(self.now, shape), scores, axes=(1,))
        if one:
            task.max(now, now, _LOWEST)
        else:
            held = self.highest.window((self.rows * i,), (rows,))
            sums = self.sums.window((self.rows * i,), (rows,))
            factor = self.factor.window((0,), (rows,))
            task.max(now, now, held)
            task.sub(factor, held, now)
            self.exponential(factor, factor)
            task.mov(held, now)
        task.sub(scores, scores, _rows(self.now, shape))
        self.exponential(scores, scores)
        task.rowsum(_rows(self.part, shape), scores, axes=(1,))
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
            task.mul(products, products, _rows(self.part, size))
            task.store(self._result(first, size), products)
        else:
            kept = self.held.window((self.rows * i, 0), size)
            task.fma(kept, kept, _rows(self.factor, size), products)

    def _divide(self, i: Dim, total: Dim) -> None:
        """Ends a run over several key blocks: output / sum."""
        task = self.task
        rows = _extent(self.rows, i, total)
        size = (rows, self.p.v.width)
        kept = self.held.window((self.rows * i, 0), size)
        self.guard(self.sums.window((self.rows * i,), (rows,)))
        task.div(kept, kept, self.sums.view(self.rows * i + axis(0), shape=size))
        task.store(self._result(self.first + self.rows * i, size), kept)

    def _result(self, first: Dim, size: tuple[Dim, ...]) -> View:
        return self.p.out.view(self.out, self.batch, self.head, first + axis(0), axis(1), size)


def _rows(tile: Buffer, shape: tuple[Dim, ...]) -> View:
    """A value per row, repeated along the columns."""
    return tile.view(axis(0), shape=shape)


class _ChipKernel(_Kernel):
    """One block of query rows per grid index; scores and weights pass between the engines by `MemoryPaths`."""

    def emit(self) -> None:
        p, task, paths = self.p, self.task, self.paths
        dtype, d, dv = p.q.value.dtype, p.q.width, p.v.width
        self.rows, keys = _CHIP_QUERIES, _CHIP_KEYS
        first = self.rows * paths.grid(ceildiv(self.s, self.rows))
        rows = _extent(self.rows, 0, self.s) if first == 0 else dmin(self.rows, self.s - first)
        highest, sums, now, factor, part = (paths.tile(F32, (self.rows,)) for _ in range(5))
        held = paths.tile(F32, (self.rows, dv))
        weights = paths.tile(dtype, (self.rows, keys)) if dtype != F32 else None
        size = (rows, dv)
        output = held.window((0, 0), size)
        m, total, new, f, sum_ = (t.window((0,), (rows,)) for t in (highest, sums, now, factor, part))
        task.expands(m, _LOWEST)
        task.expands(total, 0.0)
        task.expands(output, 0.0)
        if p.causal:
            self.declare_step(keys)
        queries = p.q.view(self.q, self.batch, self.head, first + axis(0), axis(1), (rows, d))

        def key_block(j: Dim) -> None:
            columns = _extent(keys, j, self.t)
            shape, bounds = (rows, columns), (self.rows, keys)
            transposed = p.k.view(self.k, self.batch, self.kv_head, keys * j + axis(1), axis(0), (d, columns))
            acc = paths.accumulator(dtype, bounds, shape)
            paths.product(acc, bounds, queries, transposed, dtype)
            scores = paths.to_vector(acc, bounds, F32)
            task.mul(scores, scores, p.scale * (_LOG2_E if self.base_2 else 1.0))
            self.capped(scores)
            if p.causal:
                self.hide_later_keys(scores, first, keys * j)
            if p.mask is not None:
                # Not a passing tile: that of this shape may hold the scores.
                self.apply_mask(scores, first + axis(0), keys * j + axis(1),
                                lambda: paths.tile(F32, bounds).window((0, 0), shape))  # fmt: skip
            task.rowmax(_rows(now, shape), scores, axes=(1,))
            task.max(new, new, m)
            task.sub(f, m, new)
            self.exponential(f, f)
            task.mov(m, new)
            task.sub(scores, scores, _rows(now, shape))
            self.exponential(scores, scores)
            task.rowsum(_rows(part, shape), scores, axes=(1,))
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
            task.mul(output, output, _rows(factor, size))
            task.add(output, output, paths.to_vector(result, (self.rows, dv), F32))

        self.loop("j", ceildiv(self.t, keys), key_block)
        self.guard(total)
        task.div(output, output, _rows(sums, size))
        destination = p.out.view(self.out, self.batch, self.head, first + axis(0), axis(1), size)
        if dtype == F32:
            task.store(destination, output)
        else:
            narrow = paths.tile(dtype, (self.rows, dv)).window((0, 0), size)
            task.cvt(narrow, output)
            task.store(destination, narrow)
