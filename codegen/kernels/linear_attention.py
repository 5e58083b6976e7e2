"""LinearAttention: a state [Dk, Dv] for each head of keys, which every token decays, corrects and reads.

    S = exp(g) S + k u^T        u = v, or b (v - exp(g) S^T k) with a rule that corrects ("delta")
    o = scale S^T q

A grid index is one head of one batch. With one decay a head, a chunk of tokens is a few products (Yang et al. 2024):
with c the running sum of g, D[i, j] = exp(c_i - c_j) for j <= i, and S the state before the chunk,

    (1 + A) U = b (V - exp(c) K S)      A = b (K K^T) D, below the diagonal
    O = exp(c) Q S + ((Q K^T) D) U      S' = exp(c_last) S + (exp(c_last - c) K)^T U

U comes by forward substitution, block by block of rows. A decay for each key element has no D that stays within the
range of f32, so its tokens are taken one by one. States and sums are f32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.operands import NotLowerable, block_extent, body_of, outer_values, shape_of
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling, first_fit
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import View, axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, ceildiv
from tensor_types.dtypes import BF16, F16, F32

_RULES = ("linear", "gated", "delta", "gated_delta")
_FORGOTTEN = -128.0
"""exp of this and of anything below is 0 in f32."""


@dataclass(frozen=True)
class LinearAttentionTiling(Tiling, kind="linear_attention"):
    """Tokens of a chunk; rows that forward substitution takes at once."""

    tokens: int
    rows: int


def lower_linear_attention(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node around a LinearAttention; NotLowerable says why there is none."""
    problem = _Problem(node)
    if target.explicit_memory:
        raise NotLowerable("a chip: products of a state in its vector memory")
    if 0 in shape_of(problem.v):
        raise NotLowerable("nothing to attend to")

    def emit(chosen: LinearAttentionTiling) -> list[Record]:
        return _Kernel(KernelTask(node, "linear_attention", target), target, problem, chosen).emit()

    return first_fit(_candidates(), emit, tiling)


def _candidates() -> Iterator[LinearAttentionTiling]:
    for tokens in (32, 64, 16):
        yield LinearAttentionTiling(tokens, min(tokens, 8))


class _Problem:
    """The node's operands and attributes, checked."""

    def __init__(self, node: Node) -> None:
        body, values = body_of(node), outer_values(node)
        if len(body.nodes) != 1 or body.nodes[0].op != "LinearAttention":
            raise NotLowerable("the body is not one LinearAttention")
        anchor = body.nodes[0]

        def operand(index: int) -> Value | None:
            inner = anchor.input(index)
            return None if inner is None else values.get(inner.name, inner)

        q, k, v = (operand(i) for i in range(3))
        assert q is not None and k is not None and v is not None
        self.q, self.k, self.v = q, k, v
        self.past, self.decay, self.beta = (operand(i) for i in range(3, 6))
        self.out, self.present = (values.get(o.name) for o in (*anchor.outputs, anchor.output)[:2])
        if len(anchor.outputs) < 2:
            self.present = None
        rule = str(anchor.attrs.get("update_rule", "gated_delta"))
        if rule not in _RULES:
            raise NotLowerable(f"the update rule {rule}")
        self.gated, self.corrects = rule.startswith("gated"), rule.endswith("delta")
        if (self.gated and self.decay is None) or (self.corrects and self.beta is None):
            raise NotLowerable("the update rule lacks its decay or its rate")
        self.heads, self.kv_heads = (int(anchor.attrs[f"{w}_num_heads"]) for w in ("q", "kv"))
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise NotLowerable("heads of the queries that are no multiple of those of the keys")
        self.batch, self.length, _ = shape_of(q)
        self.depth, self.width = (self._per_head(x) for x in (k, v))
        if shape_of(q)[2] != self.heads * self.depth:
            raise NotLowerable("queries and keys of unlike sizes")
        used = [x for x in (q, k, v, self.past, self.decay, self.beta, self.out, self.present) if x is not None]
        if any(x.dtype not in (F32, F16, BF16) or not x.format.is_plain for x in used):
            raise NotLowerable("f32, f16 and bf16 in plain order only")
        factor = float(anchor.attrs.get("scale", 0.0) or 0.0)
        self.scale = factor or max(self.depth, 1) ** -0.5
        self.by_key = self.gated and self.decay is not None and self._columns(self.decay) != self.kv_heads

    def _columns(self, value: Value) -> int:
        width = shape_of(value)[2]
        if not isinstance(width, int):
            raise NotLowerable("sizes of heads must be static")
        return width

    def _per_head(self, value: Value) -> int:
        width = self._columns(value)
        if width % self.kv_heads:
            raise NotLowerable("a width that is not one of its heads")
        return width // self.kv_heads


class _Kernel:
    def __init__(self, task: KernelTask, target: Target, p: _Problem, tiling: LinearAttentionTiling) -> None:
        self.task, self.p, self.tiling = task, p, tiling
        self.paths = MemoryPaths(task, target)
        self._tiles: dict[str, Buffer] = {}
        self.batch, self.length = task.extents((p.batch, p.length))
        lead = (self.batch, self.length)
        self.past = None if p.past is None else task.operand(p.past)
        self.present = None if p.present is None else task.operand(p.present, "out")
        self.q = task.operand(p.q, shape=(*lead, p.heads, p.depth))
        self.k = task.operand(p.k, shape=(*lead, p.kv_heads, p.depth))
        self.v = task.operand(p.v, shape=(*lead, p.kv_heads, p.width))
        self.decay = self.beta = None
        if p.gated and p.decay is not None:
            self.decay = task.operand(p.decay, shape=(*lead, p.kv_heads, p.depth) if p.by_key else (*lead, p.kv_heads))
        if p.corrects and p.beta is not None:
            self.beta = task.operand(p.beta)
        self.out = None if p.out is None else task.operand(p.out, "out", (*lead, p.heads, p.width))
        self.b, self.h = self.paths.grid(self.batch), self.paths.grid(p.kv_heads)

    def emit(self) -> list[Record]:
        p, task = self.p, self.task
        self.state = self.paths.tile(F32, (p.depth, p.width))
        whole = (p.depth, p.width)
        if self.past is None:
            task.expands(self.state.whole(), 0.0)
        else:
            self._read(self.state.whole(), self.past.view(self.b, self.h, axis(0), axis(1), shape=whole))
        if p.by_key:
            self._token_by_token()
        else:
            self._chunks()
        if self.present is not None:
            task.store(self.present.view(self.b, self.h, axis(0), axis(1), shape=whole), self.state.whole())
        work = 8 * p.batch * p.length * p.heads * p.depth * p.width
        in_place = p.past is not None and p.present is not None and p.past.dtype == p.present.dtype
        # A grid index has read all of its old state when it writes the new one.
        return [task.record(work, ((1, 0),) if in_place else ())]

    def _read(self, tile: View, source: View) -> None:
        """A block of a parameter in f32."""
        if self.task.element_type(source) == F32:
            self.task.load(tile, source)
        else:
            self.task.cvt(tile, source)

    def _rows_of(self, x: Buffer, head: Dim, first: Dim, shape: tuple[Dim, Dim]) -> View:
        return x.view(self.b, first + axis(0), head, axis(1), shape=shape)

    def _left(self, name: str, x: Buffer, head: Dim, first: Dim, shape: tuple[Dim, Dim]) -> View:
        """Rows of a parameter as left operand of products, in f32."""
        source = self._rows_of(x, head, first, shape)
        if x.dtype == F32:
            return source
        wide = self._tile(name, self.tiling.tokens, self.p.depth).window((0, 0), shape)
        self.task.cvt(wide, source)
        return wide

    def _tile(self, name: str, *shape: int) -> Buffer:
        """The tile of that name, declared when it is first asked for."""
        if name not in self._tiles:
            self._tiles[name] = self.paths.tile(F32, shape)
        return self._tiles[name]

    def _each_query_head(self, body: Callable[[Dim], None]) -> None:
        group = self.p.heads // self.p.kv_heads
        if self.out is None:
            return
        if group == 1:
            body(self.h)
            return
        with self.task.loop("g", group) as g:
            body(self.h * group + g)

    # One decay a head, or none

    def _chunks(self) -> None:
        p, task, size = self.p, self.task, self.tiling.tokens
        self.turned, self.inner = self._tile("turned", p.depth, size), self._tile("inner", size, size)
        self.update, self.result = self._tile("update", size, p.width), self._tile("result", size, p.width)
        self.products = self._tile("products", size, size)
        # Read at (column - row): 0 up to the diagonal, -inf behind it.
        self.step = self._tile("step", 2 * size)
        task.expands(self.step.window((0,), (size + 1,)), 0.0)
        task.expands(self.step.window((size + 1,), (size - 1,)), float("-inf"))
        if self.decay is None:
            square = (size, size)
            task.exp(self.inner.window((0, 0), square), self.step.view(size + axis(1) - axis(0), shape=square))
        with task.loop("c", ceildiv(self.length, size)) as c:
            self._chunk(size * c, block_extent(size, c, self.length))

    def _chunk(self, first: Dim, rows: Dim) -> None:
        p, task = self.p, self.task
        square, wide, deep = (rows, rows), (rows, p.width), (rows, p.depth)
        turned = self.turned.window((0, 0), (p.depth, rows))
        source = self.k.view(self.b, first + axis(1), self.h, axis(0), shape=(p.depth, rows))
        self._read(turned, source)
        inner, update = self.inner.window((0, 0), square), self.update.window((0, 0), wide)
        if self.decay is not None:
            self._decays(first, rows)
        values = self._rows_of(self.v, self.h, first, wide)
        if self.beta is None:
            self._read(update, values)
        else:
            keys = self._left("keys", self.k, self.h, first, deep)
            products = self.products.window((0, 0), square)
            task.matmul(products, keys, turned, nm=1, nk=1)
            task.mul(products, products, inner)
            task.mul(products, products, self._rate(first, square))
            task.matmul(update, keys, self.state.whole(), nm=1, nk=1)
            if self.decay is not None:
                task.mul(update, update, self.kept.view(axis(0), shape=wide))
            if self.v.dtype != F32:
                held = self.result.window((0, 0), wide)
                task.cvt(held, values)
                values = held
            task.sub(update, values, update)
            task.mul(update, update, self._rate(first, wide))
            self._substitute(rows)

        def read(head: Dim) -> None:
            assert self.out is not None
            queries = self._left("queries", self.q, head, first, deep)
            result = self.result.window((0, 0), wide)
            products = self.products.window((0, 0), square)
            task.matmul(products, queries, turned, nm=1, nk=1)
            task.mul(products, products, inner)
            task.matmul(result, queries, self.state.whole(), nm=1, nk=1)
            if self.decay is not None:
                task.mul(result, result, self.kept.view(axis(0), shape=wide))
            task.matmul_acc(result, products, update, nm=1, nk=1)
            task.mul(result, result, p.scale)
            task.store(self._rows_of(self.out, head, first, wide), result)

        self._each_query_head(read)
        if self.decay is not None:
            state = self.state.whole()
            task.mul(state, state, self.kept.view(rows - 1, shape=(p.depth, p.width)))
            task.mul(turned, turned, self.left.view(axis(1), shape=(p.depth, rows)))
        task.matmul_acc(self.state.whole(), turned, update, nm=1, nk=1)

    def _decays(self, first: Dim, rows: Dim) -> None:
        """`inner`: D. `kept`: of the state before the chunk at each token. `left`: of each token behind the chunk."""
        assert self.decay is not None
        task, size = self.task, self.tiling.tokens
        own, sums = (self._tile(n, size).window((0,), (rows,)) for n in ("own", "sums"))
        self.kept, self.left = self._tile("kept", size), self._tile("left", size)
        self._read(own, self.decay.view(self.b, first + axis(0), self.h, shape=(rows,)))
        task.max(own, own, _FORGOTTEN)
        task.cumsum(sums, own, axis=0)
        task.exp(self.kept.window((0,), (rows,)), sums)
        held, left = self._tile("sums", size), self.left.window((0,), (rows,))
        task.sub(left, held.view(rows - 1, shape=(rows,)), sums)
        task.exp(left, left)
        square = (rows, rows)
        inner = self.inner.window((0, 0), square)
        task.sub(inner, held.view(axis(0), shape=square), held.view(axis(1), shape=square))
        task.add(inner, inner, self.step.view(size + axis(1) - axis(0), shape=square))
        task.exp(inner, inner)

    def _rate(self, first: Dim, shape: tuple[Dim, Dim]) -> View:
        """The rate of each row, in f32."""
        assert self.beta is not None
        rows = shape[0]
        head = 0 if self.beta.shape[2] == 1 else self.h
        source = self.beta.view(self.b, first + axis(0), head, shape=(rows,))
        held = self._tile("rate", self.tiling.tokens)
        self._read(held.window((0,), (rows,)), source)
        return held.view(axis(0), shape=shape)

    def _substitute(self, rows: Dim) -> None:
        """update = (1 + A)^-1 update, A in `products` below its diagonal."""
        task, width, step = self.task, self.p.width, self.tiling.rows
        part = self._tile("part", step, width)
        with task.loop("s", ceildiv(rows, step)) as s:
            start, count = step * s, block_extent(step, s, rows)
            block = (count, width)
            with task.when(0, "<", s):
                before = self.products.window((start, 0), (count, start))
                task.matmul(part.window((0, 0), block), before, self.update.window((0, 0), (start, width)), nm=1, nk=1)
                mine = self.update.window((start, 0), block)
                task.sub(mine, mine, part.window((0, 0), block))
            with task.loop("r", count - 1) as r:
                row = start + r + 1
                line = part.window((0, 0), (1, width))
                factors = self.products.window((row, start), (1, r + 1))
                task.matmul(line, factors, self.update.window((start, 0), (r + 1, width)), nm=1, nk=1)
                mine = self.update.window((row, 0), (1, width))
                task.sub(mine, mine, line)

    # A decay for each key element

    def _token_by_token(self) -> None:
        p, task = self.p, self.task
        assert self.decay is not None
        state, deep, wide = self.state.whole(), (1, p.depth), (1, p.width)
        keep, key = (self._tile(n, p.depth) for n in ("keep", "key"))
        query, result = self._tile("query", 1, p.depth), self._tile("result", 1, p.width)
        update = self._tile("update", p.width)
        with task.loop("t", self.length) as t:
            self._read(keep.whole(), self.decay.view(self.b, t, self.h, axis(0), shape=(p.depth,)))
            task.exp(keep.whole(), keep.whole())
            self._read(key.whole(), self.k.view(self.b, t, self.h, axis(0), shape=(p.depth,)))
            task.mul(state, state, keep.view(axis(0), shape=state.shape))
            self._read(update.whole(), self.v.view(self.b, t, self.h, axis(0), shape=(p.width,)))
            if self.beta is not None:
                task.matmul(result.whole(), key.view(axis(1), shape=deep), state, nm=1, nk=1)
                line = update.view(axis(1), shape=wide)
                task.sub(line, line, result.whole())
                self._scale_rate(line, t)
            task.fma(state, key.view(axis(0), shape=state.shape), update.view(axis(1), shape=state.shape), state)

            def read(head: Dim) -> None:
                assert self.out is not None
                self._read(query.whole(), self._rows_of(self.q, head, t, deep))
                task.matmul(result.whole(), query.whole(), state, nm=1, nk=1)
                task.mul(result.whole(), result.whole(), p.scale)
                task.store(self._rows_of(self.out, head, t, wide), result.whole())

            self._each_query_head(read)

    def _scale_rate(self, line: View, t: Dim) -> None:
        assert self.beta is not None
        head = 0 if self.beta.shape[2] == 1 else self.h
        rate = self._tile("rate", 1)
        self._read(rate.whole(), self.beta.view(self.b, t, head, shape=(1,)))
        self.task.mul(line, line, rate.view(0, shape=line.shape))
