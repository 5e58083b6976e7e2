"""Passes over the reduced axes of a node: index space, blocks of kept positions, chunks, statistics.

A block holds some kept positions and, where their number is static and fits, all reduced ones: then everything is one
pass over memory. Longer or run-time axes are walked in chunks, once per pass, with accumulators carried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from codegen.kernels.attached import Attached, ViewOf, vector_operand
from codegen.kernels.block_emitter import Operand, immediate
from codegen.kernels.elementwise import ElementwiseEmitter
from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.operands import NotLowerable, body_of, outer_inputs, outer_outputs, shape_of
from codegen.kernels.region import blocks, grid_blocks
from codegen.kernels.region_space import Space
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling, halvings
from codegen.kernels.wide_integers import in_words
from codegen.targets.target import Target
from codegen.tile.ir import Imm, View, axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, ceildiv, dmin, product
from tensor_types.dtypes import BF16, F16, F32, I32, DType

REDUCE = {
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare",
}  # fmt: skip
_POOLS = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}
NORMALISE = {"Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "InstanceNormalization"}
ARG = {"ArgMax", "ArgMin"}


@dataclass(frozen=True)
class ReductionTiling(Tiling, kind="reduction"):
    """`elements` of a block, where one kept position has fewer; `lanes` kept positions side by side at least.

    A block takes up to `whole` reduced positions at once; more are walked in chunks of `chunk`.
    """

    elements: int
    lanes: int
    whole: int
    chunk: int


def _integers(value: Value | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    if value.data is None:
        raise NotLowerable(f"axes in {value.name} are known at run time only")
    return tuple(int(v) for v in value.data.reshape(-1))


@dataclass
class Chunk:
    """What a pass sees of the reduced axes: extents and index of the block, the anchor's input over it."""

    emitter: ElementwiseEmitter
    counts: tuple[Dim, ...]
    index: tuple[Dim, ...]
    x: Operand
    held: dict[str, View] = field(default_factory=dict)
    """Results that later passes over the same chunk need not compute again."""


class ReductionPasses:
    """A reduction as passes over its reduced axes, chunk by chunk; subclasses say what is computed (`_emit`)."""

    tiling: ReductionTiling
    of_words: Mapping[str, bool]
    """Operators that take 64-bit integers as words, and whether they take them one by one."""

    def __init__(self, node: Node, target: Target) -> None:
        self.node = node
        self.body = body_of(node)
        self.values = outer_inputs(node)
        self.outputs = outer_outputs(node)
        self.task = KernelTask(node, "reduction", target)
        self.paths = MemoryPaths(self.task, target)
        place = next(
            (i for i, n in enumerate(self.body.nodes) if n.op in REDUCE | NORMALISE | ARG or n.op in _POOLS), None
        )
        if place is None:
            raise NotLowerable("the body has no reduction")
        self.anchor = self.body.nodes[place]
        self.before, self.after = self.body.nodes[:place], self.body.nodes[place + 1 :]
        source = self.anchor.inputs[0]
        assert source is not None
        self.source = source
        given = [v.name for n in (*self.before, self.anchor) for v in n.outputs]
        self.prologue, self.epilogue = Attached(self.before, self.values), Attached(self.after, self.values, given)
        self.dtype = source.dtype
        self.full = shape_of(source)
        self.rank = len(self.full)
        self.op = _POOLS.get(self.anchor.op, self.anchor.op)
        self.axes = self._axes()
        self.normalises = self.op in NORMALISE
        self.compute = F32 if self.dtype in (F16, BF16) else self.dtype
        made = next((v for name, v in self.values.items() if name == source.name), None)
        self.format = made.format if made is not None else source.format
        self.chunk: Chunk | None = None
        self._stats = self._loops = 0

    def _axes(self) -> tuple[int, ...]:
        """Reduced logical axes in order."""
        node, rank = self.anchor, self.rank
        if node.op in _POOLS or self.op == "InstanceNormalization":
            return tuple(range(2, rank))
        if self.op in ("LayerNormalization", "RMSNormalization"):
            return tuple(range(int(node.attrs.get("axis", -1)) % max(rank, 1), rank))  # type: ignore[arg-type]
        if self.op in ("Softmax", "LogSoftmax"):
            return (int(node.attrs.get("axis", -1)) % max(rank, 1),)  # type: ignore[arg-type]
        if self.op in ARG:
            return (int(node.attrs.get("axis", 0)) % max(rank, 1),)  # type: ignore[arg-type]
        axes = _integers(node.input(1))
        if axes is None and "axes" in node.attrs:
            axes = tuple(int(a) for a in node.attrs["axes"])  # type: ignore[union-attr]
        if not axes:
            if node.attrs.get("noop_with_empty_axes"):
                raise NotLowerable("a reduction over no axes")
            axes = tuple(range(rank))
        return tuple(sorted(a % max(rank, 1) for a in axes))

    # The index space

    def _space(self) -> Space:
        kinds = [int(a in self.axes) for a in range(self.rank)]
        logical: dict[str, Sequence[int]] = {}
        out = self.anchor.output
        kept = [a for a in range(self.rank) if a not in self.axes]
        keepdims = self.normalises or out.shape is not None and len(out.shape) == self.rank
        # A reduction's further input are its axes.
        inputs = [self.source] if self.op in REDUCE else [v for v in self.anchor.inputs if v is not None]
        own = {v.name: self.values[v.name] for v in inputs if v.name in self.values}
        own = {name: value for name, value in own.items() if immediate(value) is None}
        seen = {**self.prologue.extras, **own, **self.epilogue.extras}
        small = [v for n, v in self.epilogue.extras.items() if n != self.source.name] if not self.normalises else []
        for value in [*small, *(v for _, v in self.outputs)]:
            if not keepdims:
                assert value.shape is not None
                logical[value.name] = kept[len(kept) - len(value.shape) :]
        if self.op == "InstanceNormalization":
            for v in self.anchor.inputs[1:]:
                if v is not None and v.name in self.values:
                    logical[self.values[v.name].name] = (1,)
        values = [*seen.values(), *(v for _, v in self.outputs)]
        return Space(self.task, self.full, self.format, values, kinds=kinds, logical=logical)

    def candidates(self) -> Iterator[ReductionTiling]:
        """Hosts take rows whole as long as L2 holds a block, and read longer ones once for each pass. On a chip all
        passes read from UB.
        """
        self._enter()
        inner_kept = bool(self.kept) and self.kept[-1] == len(self.space.groups) - 1
        if self.paths.explicit:
            lanes = 32 if inner_kept else 1
            single = in_words(self.dtype, self.paths.target) and self.of_words.get(self.op)
            for elements in halvings(1 << 13, 32):
                most = 1 if single else max(1, elements // lanes)
                yield ReductionTiling(elements, lanes, most, most)
            return
        lanes = 64 if inner_kept else 1
        yield ReductionTiling(1 << 13, lanes, 1 << 16, 1 << 12)
        for chunk in halvings(1 << 12, 1 << 6):
            yield ReductionTiling(1 << 13, lanes, 1, chunk)

    def _enter(self) -> None:
        """Checks the node and lays out its index space."""
        self._check()
        self.space = space = self._space()
        order_ = space._order
        self.reduced = [g for g, axes in enumerate(space.groups) if order_[axes[0]] in self.axes]
        self.kept = [g for g in range(len(space.groups)) if g not in self.reduced]

    def emit(self, tiling: ReductionTiling) -> list[Record]:
        self.tiling = tiling
        self._enter()
        task, space = self.task, self.space
        sizes = [space.extents[g] for g in self.reduced]
        volume = product(sizes)
        self.whole = isinstance(volume, int) and 0 < volume <= tiling.whole
        if self.op in ARG and not self.paths.explicit:
            self.whole = True
        pieces = [s if isinstance(s, int) and self.whole else None for s in sizes]
        if self.whole and any(p is None for p in pieces):
            self._direct_only()
        if not self.whole:
            pieces = list(blocks(sizes, tiling.chunk))
        self.pieces = dict(zip(self.reduced, pieces, strict=True))
        self.starts: dict[int, Dim] = {}
        self.counts: dict[int, Dim] = {}
        self.blocks: dict[int, int] = {}
        self._kept_grid()
        self._emit()
        cost = 4 if self.normalises else 1
        return [task.record(work=product(space.extents) * (cost + len(self.before) + len(self.after)))]

    def _emit(self) -> None:
        raise NotImplementedError

    def _check(self) -> None:
        if self.dtype.kind not in ("float", "int", "uint") or self.dtype.name.startswith("f8") or self.dtype.bits < 8:
            raise NotLowerable(f"{self.op} on {self.dtype}")
        if self.normalises and not self.dtype.is_float:
            raise NotLowerable(f"{self.op} on {self.dtype}")
        if in_words(self.dtype, self.paths.target):
            if self.op not in self.of_words:
                raise NotLowerable(f"{self.op} of 64-bit integers in 32-bit words")
            self.paths.require(I32)
        else:
            for dtype in (self.dtype, self.compute):
                self.paths.require(dtype)
        if len(self.anchor.outputs) > 1 and any(v.uses for v in self.anchor.outputs[1:]):
            raise NotLowerable("mean and deviation as results")
        known = {v.name for v in self.anchor.outputs[1:]}
        if any(name in known for name, _ in self.outputs):
            raise NotLowerable("mean and deviation as results")

    def _direct_only(self) -> None:
        if self.before:
            raise NotLowerable("the position of an extreme along a run-time axis, of a computed value")

    def _kept_grid(self) -> None:
        extents = [self.space.extents[g] for g in self.kept]
        volume = 1
        for size in self.pieces.values():
            volume *= size or self.tiling.chunk
        most = max(1, self.tiling.elements // volume)
        if self.tiling.lanes > 1:
            most = max(most, self.tiling.lanes)
        elif not self.whole:
            # One row at a time: several would tempt the code generator to lay lanes across rows.
            most = 1
        elif most > 4:
            most -= most % 4
        sizes = blocks(extents, most)
        starts, counts = grid_blocks(self.task, extents, sizes)
        for g, start, count, size in zip(self.kept, starts, counts, sizes, strict=True):
            self.starts[g], self.counts[g], self.blocks[g] = start, count, size
        self.kept_counts = tuple(counts)
        self.kept_shape = self._rows(sizes)
        self.small = ElementwiseEmitter(self.task, self.kept_shape or (1,), self.kept_counts or (1,), prefix="k")

    def _rows(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of a tile; on a chip with rows that are whole blocks of its memory for the smallest element."""
        if not self.paths.explicit:
            return tuple(shape)
        return (*shape[:-1], -(-shape[-1] // 32) * 32) if shape else (32,)

    def _kept_index(self) -> list[Dim]:
        """Index per group for views over kept positions only."""
        numbers = {g: i for i, g in enumerate(self.kept)}
        return [self.starts[g] + axis(numbers[g]) if g in numbers else 0 for g in range(len(self.space.groups))]

    # Passes

    @contextmanager
    def passed(self) -> Iterator[Chunk]:
        """The chunk of one pass: all reduced positions if the block holds them, else inside loops over chunks."""
        if self.whole:
            if self.chunk is None:
                self.chunk = self._chunk({g: 0 for g in self.reduced}, {g: self.space.extents[g] for g in self.reduced})
            yield self.chunk
            return
        starts: dict[int, Dim] = {}
        counts: dict[int, Dim] = {}
        with ExitStack() as stack:
            for g in self.reduced:
                size, extent = self.pieces[g], self.space.extents[g]
                assert size is not None
                if isinstance(extent, int) and extent <= size:
                    starts[g], counts[g] = 0, extent
                    continue
                self._loops += 1
                i = stack.enter_context(self.task.loop(f"i{self._loops}", ceildiv(extent, size)))
                starts[g] = i * size
                counts[g] = size if isinstance(extent, int) and extent % size == 0 else dmin(size, extent - i * size)
            yield self._chunk(starts, counts)

    def _chunk(self, starts: dict[int, Dim], counts: dict[int, Dim]) -> Chunk:
        groups = range(len(self.space.groups))
        extents = tuple(self.counts[g] if g in self.counts else counts[g] for g in groups) or (1,)
        index = tuple((self.starts[g] if g in self.starts else starts[g]) + axis(g) for g in groups)
        shape = tuple(self.blocks.get(g) or self.pieces[g] or 1 for g in groups)
        self._stats += 1
        emitter = ElementwiseEmitter(self.task, self._rows(shape) or (1,), extents, prefix=f"c{self._stats}_")
        name = self.source.name
        operands = self.prologue.emit(emitter, self.paths, self._viewer(index, extents), {}, [self.source])
        if name in self.values and name not in operands:
            seen = self.space.view(self.values[name], index, extents)
            operands[name] = vector_operand(self.paths, self.values[name], seen, emitter.shape)
        x = operands[name]
        if isinstance(x, Imm):
            constant = emitter.tile(self.dtype)
            self.task.expands(constant, x)
            x = constant
        if self.compute != self.dtype:
            x = emitter.apply("TCVT", self.compute, x)
        return Chunk(emitter, extents, index, x)

    def _input(self, value: Value, index: Sequence[Dim], extents: Sequence[Dim], shape: Sequence[int]) -> View:
        """A value where the vector engine reads it; `shape` is the static one of the block's tiles."""
        return self.paths.vector_input(self.space.view(value, index, extents), shape, value.dtype)

    def _viewer(self, index: Sequence[Dim], extents: Sequence[Dim], role: str = "in") -> ViewOf:
        return lambda value: self.space.view(value, index, extents, role)

    def stat(self, dtype: DType | None = None) -> View:
        """A tile over the kept positions, as a view of them."""
        self._stats += 1
        tile = self.task.tile(f"s{self._stats}", dtype or self.compute, self.kept_shape or (1,))
        return tile.view(*(axis(i) for i in range(len(tile.shape))), shape=self.kept_counts or (1,))

    def spread(self, stat: View, chunk: Chunk) -> View:
        """A statistic seen at every position of a chunk."""
        index = tuple(axis(g) for g in self.kept) or (0,)
        return View(stat.base, index, chunk.counts)

    def accumulate(self, op: str, term: Callable[[Chunk], Operand], **attrs: int) -> View:
        """The reduction of `term` over all reduced positions."""
        dtype = self.compute
        stat = self.stat(dtype)
        if not self.whole:
            self.task.expands(stat, neutral(op, dtype))
            attrs["acc"] = 1
        with self.passed() as chunk:
            value = term(chunk)
            if not self.reduced:
                self.task.mov(stat, value)
            else:
                self.task.instr(op, self.spread(stat, chunk), value, axes=tuple(self.reduced), **attrs)
        return stat

    def count(self) -> Operand:
        """1 / number of reduced positions, over the kept positions."""
        volume = product(self.space.extents[g] for g in self.reduced)
        if isinstance(volume, int):
            return Imm(1.0 / volume)

        def ones(chunk: Chunk) -> Operand:
            one = chunk.emitter.tile(self.compute)
            self.task.expands(one, 1.0)
            return one

        total = self.accumulate("TROWSUM", ones)
        return self.small.apply("TRECIP", self.compute, total)


def neutral(op: str, dtype: DType) -> float | int:
    if op in ("TROWSUM", "TROWPROD"):
        return (0.0 if dtype.is_float else 0) if op == "TROWSUM" else (1.0 if dtype.is_float else 1)
    if dtype.is_float:
        return float("-inf") if op == "TROWMAX" else float("inf")
    high = (1 << (dtype.bits - (dtype.kind == "int"))) - 1
    low = -high - 1 if dtype.kind == "int" else 0
    return low if op == "TROWMAX" else high
