"""PagedAttention: the attention kernel of hosts over keys and values in pages, queries of all sequences one behind the
other.

A grid index has a head of K and a chunk of tokens, of whatever sequences these are, so that no two store to a row. It
goes through the sequences that have tokens there. A block of keys is some pages. Many queries copy them one behind the
other into tiles, from where on all is as it is for keys that lie in one piece; few take their products page by page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import lcm

from codegen.kernels.attention_base import LOG2_E, AttentionTiling
from codegen.kernels.attention_host import HostKernel, Rows, panel_of
from codegen.kernels.attention_problem import Head, Problem
from codegen.kernels.operands import NotLowerable, block_extent, body_of, outer_values, shape_of
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling, first_fit
from codegen.targets.target import Target
from codegen.tile.ir import View, axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, ceildiv, dmax, dmin
from tensor_types.dtypes import BF16, F16, F32

_KEYS = 256
"""Keys of a block, about."""
_CHUNK = 64
"""Tokens of a grid index at most."""
_AHEAD = 64
"""How many keys further on the next are fetched, in whole pages and one at least."""
_PART = 16
"""Most rows of a page at a time: what is fetched meanwhile comes in small portions (Zen 4, pages of 256 rows behind
1000 tokens: 0.85 of the time of whole pages)."""


@dataclass(frozen=True)
class _Pages:
    """What says where rows lie: [sequences, most pages], [sequences + 1], [sequences], and a score for each head."""

    table: Value
    starts: Value
    lengths: Value
    sink: Value | None


@dataclass(frozen=True)
class _Place:
    """Where rows lie: a page, and the first row in it."""

    page: Dim
    row: Dim


def lower_paged_attention(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node around a PagedAttention; NotLowerable says why there is none."""
    p, pages = _problem_of(node)
    if target.explicit_memory:
        raise NotLowerable("caches in pages have kernels on hosts only")
    if 0 in p.out.extents or 0 in p.k.extents or 0 in shape_of(pages.table):
        return []

    def emit(chosen: AttentionTiling) -> list[Record]:
        task = KernelTask(node, "paged_attention", target)
        _Kernel(task, target, p, pages, chosen).emit()
        keys = task.extent(shape_of(pages.table)[1]) * p.k.length
        return [task.record(2 * task.extent(p.q.length) * p.q.heads * keys * (p.q.width + p.out.width))]

    return first_fit(_tilings(target, p), emit, tiling)


def _problem_of(node: Node) -> tuple[Problem, _Pages]:
    body, known = body_of(node), outer_values(node)
    anchor = body.nodes[0]
    if len(body.nodes) != 1 or anchor.op != "PagedAttention":
        raise NotLowerable("the body is not one PagedAttention")
    inputs = [None if v is None else known.get(v.name, v) for v in (*anchor.inputs, None)[:7]]
    q, k, v, table, starts, lengths, sink = inputs
    assert q and k and v and table and starts and lengths
    if any(value is not None and not value.format.is_plain for value in (*inputs, node.output)):
        raise NotLowerable("operands in plain order only")
    if not q.dtype == k.dtype == v.dtype or q.dtype not in (F32, F16, BF16):
        raise NotLowerable("queries, keys and values of different dtypes")
    (tokens, heads, width), (count, size, kv_heads, _), held = shape_of(q), shape_of(k), shape_of(v)[3]
    values = int(anchor.attrs.get("v_head_size", 0)) or held  # type: ignore[call-overload]
    static = (heads, kv_heads, width, held, size)
    if not all(isinstance(n, int) for n in static):
        raise NotLowerable("heads, head size and page size must be static")
    if heads % kv_heads:  # type: ignore[operator]
        raise NotLowerable("head counts do not belong together")
    scale = anchor.attrs.get("scale")
    left = int(anchor.attrs.get("left_window_size", -1))  # type: ignore[call-overload]
    return Problem(
        q=Head(q, "bshd", 1, heads, tokens, width), k=Head(k, "bshd", count, kv_heads, size, width),  # type: ignore[arg-type]
        v=Head(v, "bshd", count, kv_heads, size, held), out=Head(node.output, "bshd", 1, heads, tokens, values),  # type: ignore[arg-type]
        mask=None, scale=width**-0.5 if scale is None else float(scale),  # type: ignore[arg-type, operator]
        softcap=float(anchor.attrs.get("softcap", 0.0) or 0.0), causal=bool(anchor.attrs.get("is_causal", 1)),  # type: ignore[arg-type]
        window=left if left >= 0 else None, nan_for_nothing=False, past=0, caches=(), lengths=None,
    ), _Pages(table, starts, lengths, sink)  # fmt: skip


def _tilings(target: Target, p: Problem) -> Iterator[AttentionTiling]:
    size = p.k.length
    assert isinstance(size, int)
    step = lcm(size, panel_of(target))
    group = p.q.heads // p.k.heads
    chunk = max(16, _CHUNK // group)
    keys = step * max(1, _KEYS // step)
    yield AttentionTiling(chunk, keys, chunk)
    for parts in (2, 4, 8):
        yield AttentionTiling(max(1, chunk // parts), step * max(1, keys // step // parts), max(1, chunk // parts))


class _Kernel(HostKernel):
    """Row numbers are those of tokens; `past` is what turns one into a position, other for each sequence."""

    def __init__(self, task: KernelTask, target: Target, p: Problem, pages: _Pages, tiling: AttentionTiling) -> None:
        super().__init__(task, target, p, tiling)
        assert isinstance(p.k.length, int)
        self.page = p.k.length
        if tiling.keys % self.page or tiling.queries != tiling.chunk:
            raise NotLowerable(f"keys={tiling.keys} is no multiple of {self.page}, the page size, or queries no chunk")
        sequences, self.most_pages = task.extents(shape_of(pages.table))
        self.sequences = sequences
        self.table = task.operand(pages.table, shape=(sequences, self.most_pages))
        self.starts = task.operand(pages.starts, shape=(sequences + 1,))
        self.lengths = task.operand(pages.lengths, shape=(sequences,))
        self.sink = None if pages.sink is None else task.operand(pages.sink, shape=(p.q.heads,))

    @property
    def may_see_nothing(self) -> bool:
        return True

    def emit(self) -> None:
        task, p, chunk = self.task, self.p, self.tiling.chunk
        tokens = self.s
        self.base = chunk * self.paths.grid(ceildiv(tokens, chunk))
        self.s, self.t = axis(0), axis(0)  # not known yet; a sequence has its own
        self.declare()
        self.pages_k = self.paths.tile(p.k.value.dtype, (self.keys, p.q.width), "L1")
        self.parts, self.pages_v = [(self.pages_k, p.k)], self.pages_k
        if p.v.value is not p.k.value and not self.halves:  # whose values are widened where they lie
            self.pages_v = self.paths.tile(F32, (self.keys, p.v.width), "L1")
            self.parts.append((self.pages_v, p.v))
        with task.loop("b", self.sequences) as b:
            self.sequence = b
            last = task.read("last", self.starts.view(b + 1, shape=()), 0, tokens)
            first = task.read("first", self.starts.view(b, shape=()), 0, last)
            with task.when(first, "<", last), task.when(first, "<", self.base + chunk), task.when(self.base, "<", last):
                self.t = task.read("length", self.lengths.view(b, shape=()), 0, self.page * self.most_pages)
                self.past = self.t - last
                self.skipped = dmax(0, first - self.base)
                self.first = self.base + self.skipped
                self.total = dmin(last - self.base, chunk) - self.skipped
                self.s = self.total
                self.attend()

    def begin(self) -> None:
        super().begin()
        if self.sink is None:
            return
        task, size = self.task, (self.group, self.total)
        highest = self.highest.window((0, self.skipped), size)
        own = self.sink.view(self.first_head + axis(0), shape=size)
        if self.element_is_f32:
            task.mov(highest, own)
        else:
            task.cvt(highest, own)
        if self.base_2:
            task.mul(highest, highest, LOG2_E)
        task.expands(self.sums.window((0, self.skipped), size), 1.0)

    def heads_in_turn(self, body: Callable[[Rows], None]) -> None:
        """A chunk is one block: how many of its rows are the sequence's is as much as can be known of them."""

        def of_head(g: Dim) -> None:
            body(Rows(self.total, self.first, self.first_head + g, g, self.skipped, False))

        self.loop("g", self.group, of_head)

    def end(self) -> None:
        """Token by token of the chunk: a place that does not depend on where sequences begin is one of its own."""
        task, p = self.task, self.p
        with task.loop("r", self.tiling.chunk) as r:
            with task.when(self.first, "<=", self.base + r), task.when(self.base + r, "<", self.first + self.total):
                size = (self.group, p.out.width)
                held = self.held.view(axis(0), r, axis(1), shape=size)
                sums = self.sums.view(axis(0), r, shape=(self.group,))
                self.guard(sums)
                task.div(held, held, self.sums.view(axis(0), r, shape=size))
                task.store(p.out.view(self.out, 0, self.first_head + axis(0), self.base + r, axis(1), size), held)

    @property
    def element_is_f32(self) -> bool:
        return self.p.q.value.dtype == F32

    def pages(self, j: Dim, keys: Dim, body: Callable[[Dim, Dim, _Place], None]) -> None:
        """Goes through the pages of the first `keys` keys of block j, large ones part by part: the first row in the
        block, how many, and where they lie.

        The rows of a whole part are a number that the kernel knows; those of the last may be fewer.
        """
        task, page = self.task, self.page
        part = next(n for n in range(min(page, _PART), 0, -1) if page % n == 0)

        def parts(m: Dim, rows: Dim, number: Dim, count: Dim) -> None:
            def one(u: Dim) -> None:
                some = part if rows == page else dmin(part, rows - part * u)
                body(page * m + part * u, some, _Place(number, part * u))

            self.loop("u", count, one)

        with task.loop("m", ceildiv(keys, page)) as m:
            entry = self.keys // page * j + m
            with task.when(entry, "<", self.most_pages):
                number = self.page_at(entry, "page")
                with task.when(page * (m + 1), "<=", keys):
                    parts(m, page, number, page // part)
                with task.otherwise():
                    rows = dmin(page, keys - page * m)
                    parts(m, rows, number, ceildiv(rows, part))

    def page_at(self, entry: Dim, name: str) -> Dim:
        """The page that an entry of the sequence's line of the block table names."""
        source = self.table.view(self.sequence, entry, shape=())
        return self.task.read(name, source, 0, self.task.extent(self.p.k.batch) - 1)

    def in_page(self, head: Head, place: _Place, row: Dim, column: Dim, shape: tuple[Dim, ...]) -> View:
        """Elements of a page of K or V; `row` counts from the place."""
        buffer = self.k if head is self.p.k else self.v
        return head.view(buffer, place.page, self.kv_head, place.row + row, column, shape)

    def fetch(self, j: Dim) -> None:
        """Copies the pages of block j, as many rows as the sequence has."""

        def copy(first: Dim, rows: Dim, place: _Place) -> None:
            for tile, head in self.parts:
                size = (rows, head.width)
                self.task.load(tile.window((first, 0), size), self.in_page(head, place, axis(0), axis(1), size))

        self.pages(j, block_extent(self.keys, j, self.t), copy)

    def key_block(self, j: Dim, row: Dim, column: Dim, shape: tuple[Dim, ...]) -> View:
        return self.pages_k.view(row, column, shape=shape)

    def value_block(self, j: Dim, keys: Dim) -> View:
        return self.pages_v.window((0, 0), (keys, self.p.out.width))

    def widen_values(self, j: Dim) -> None:
        def widen(first: Dim, rows: Dim, place: _Place) -> None:
            assert self.wide_v is not None
            size = (rows, self.p.out.width)
            self.task.cvt(self.wide_v.window((first, 0), size), self.in_page(self.p.v, place, axis(0), axis(1), size))

        self.pages(j, block_extent(self.keys, j, self.t), widen)

    def score_lying(self, scores: View, queries: View, j: Dim) -> None:
        """Pages lie anywhere: those whose turn comes soon are fetched, as no processor foresees where they are."""

        def score(first: Dim, rows: Dim, place: _Place) -> None:
            self.fetch_values(rows, place)
            if isinstance(rows, int):  # any other is the last
                self.fetch_keys(j, first, rows, place)
            part = View(scores.base, (scores.index[0], scores.index[1] + first), (scores.shape[0], rows))
            keys = self.in_page(self.p.k, place, axis(1), axis(0), (self.p.q.width, rows))
            self.task.matmul(part, queries, keys, nm=1, nk=1)

        self.pages(j, scores.shape[1], score)

    def fetch_values(self, rows: Dim, place: _Place) -> None:
        """The values of a page whose keys are read now."""
        p = self.p
        if p.v.value is not p.k.value:
            self.task.prefetch(self.in_page(p.v, place, axis(0), axis(1), (rows, p.out.width)))

    def fetch_keys(self, j: Dim, first: Dim, rows: int, place: _Place) -> None:
        """As many keys some pages behind the rows that begin with row `first` of block j, which lie at `place`."""
        p, page = self.p, self.page
        entry = (self.keys * j + first - place.row) // page + max(1, _AHEAD // page)
        with self.task.when(entry, "<", ceildiv(self.t, page)):
            there = _Place(self.page_at(entry, "ahead"), place.row)
            self.task.prefetch(self.in_page(p.k, there, axis(0), axis(1), (rows, p.k.width)))

    def weigh_lying(self, products: View, weights: View, j: Dim) -> None:
        def weigh(first: Dim, rows: Dim, place: _Place) -> None:
            part = View(weights.base, (weights.index[0], weights.index[1] + first), (weights.shape[0], rows))
            values = self.in_page(self.p.v, place, axis(0), axis(1), (rows, products.shape[1]))
            self.task.matmul_acc(products, part, values, nm=1, nk=1)

        self.task.expands(products, 0.0)
        self.pages(j, weights.shape[1], weigh)
