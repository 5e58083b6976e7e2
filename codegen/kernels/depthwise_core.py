"""Windows over each channel by itself, for depthwise convolution and pooling.

Vectors run along the channels, and the taps of a window are a chain of instructions.

The output is cut into rectangles in which the same taps lie inside the input, so static sizes need no padded copy: the
interior reads the input directly and border rectangles have fewer taps. Run-time sizes, and kernels whose rectangles
would be too many, go through a padded copy of the input block.

On a chip the copy lies in UB, and rectangles, which only pools that count what is inside the input need there, load
tap by tap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product as combinations
from math import prod

from codegen.kernels.conv_core import extent_of
from codegen.kernels.conv_geometry import Axis, even_block, tap_classes
from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.tiling import Tiling, halvings
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import View, axis
from tensor_types.dims import Dim, ceildiv, dmax, dmin
from tensor_types.dtypes import DType

_RECTANGLES = 25
"""More of them make more code than they save time."""
_CHAIN = 25
"""Longest chain of taps that is written out."""
_PARALLEL = 4
"""Grid indices that are wanted at least."""
_COLUMNS, _ROWS = 64, 8
"""Output positions of a block along axes that are known at run time only."""

Finish = Callable[[View, tuple[int, ...], tuple[Dim, ...]], None]
"""Takes a result block, the static shape of its tile, and the index of its elements: batch, positions.., channel."""


Chain = Callable[[View, list[tuple[tuple[Dim, ...], View]], Dim, bool], None]
"""Takes the result block, its (tap, source) pairs and the channel index; True if it holds earlier taps."""
Open = Callable[[Dim, int, Dim], None]
"""Takes the first channel of a grid index, the bound of their number and their number, before its first block."""
Close = Callable[[View, int], None]
"""Takes the result block when the given number of taps has gone into it."""


@dataclass(frozen=True)
class WindowTiling(Tiling, kind="windows"):
    """`channels` side by side and output `positions` of a block; a padded copy of its input takes `copy` bytes."""

    channels: int
    positions: int
    copy: int


@dataclass(frozen=True)
class DepthwiseShape:
    """x[batch, axes.., channels], each channel by itself; `dtype` is what is computed in."""

    batch: Dim
    axes: tuple[Axis, ...]
    channels: int
    dtype: DType

    @property
    def taps(self) -> int:
        total = 1
        for a in self.axes:
            total *= a.kernel
        return total


@dataclass(frozen=True)
class ChannelsFirst(Buffer):
    """A plain tensor, [batch, channels, axes..], seen as [batch, axes.., channels]."""

    @classmethod
    def of(cls, buffer: Buffer) -> Buffer:
        return cls(buffer.name, buffer.dtype, buffer.shape)

    def view(self, *index: Dim, shape: Sequence[Dim]) -> View:
        batch, *positions, channel = index
        return super().view(batch, channel, *positions, shape=shape)


Run = tuple[Dim, Dim, tuple[int, ...], int]
"""First output position, count, taps, and the static bound of the count."""


def emit_depthwise(
    paths: MemoryPaths, shape: DepthwiseShape, x: Buffer, w: Buffer, bias: Buffer | None, finish: Finish,
    tiling: WindowTiling,
) -> None:  # fmt: skip
    """Declares the grid and emits every rectangle; w is [kernel.., channels], bias [channels]."""
    b = paths.builder
    filters: Filter | None = None

    def open_(first: Dim, block: int, count: Dim) -> None:
        nonlocal filters
        if paths.explicit or w.dtype != shape.dtype:
            filters = Filter(paths, shape, w, bias, first, block, count)

    def chain(acc: View, terms: list[tuple[tuple[Dim, ...], View]], channel: Dim, resume: bool) -> None:
        first = bias
        if filters is not None:
            first = filters.bias
        held: View | None = acc if resume else None
        if not resume and first is not None:
            held = first.view(axis(len(acc.shape) - 1) if filters else channel, shape=acc.shape)
        for tap, source in terms:
            weight = filters.at(tap, acc.shape) if filters else w.view(*tap, channel, shape=acc.shape)
            if held is None:
                b.mul(acc, source, weight)
            else:
                b.fma(acc, source, weight, held)
            held = acc
        if not terms:
            b.expands(acc, 0.0) if held is None else b.mov(acc, held)

    emit_windows(paths, shape, x, chain, lambda acc, taps: None, finish, 0.0, tiling, open_=open_)


class Filter:
    """The weight and bias of a block of channels in tiles, in the dtype that is computed in."""

    def __init__(
        self, paths: MemoryPaths, shape: DepthwiseShape, w: Buffer, bias: Buffer | None, channel: Dim, block: int,
        count: Dim,
    ) -> None:  # fmt: skip
        kernel, first = tuple(a.kernel for a in shape.axes), (*(0,) * len(shape.axes), channel)
        self._taps = _load(paths, w, first, (*kernel, block), (*kernel, count), shape.dtype)
        self.bias = None if bias is None else _load(paths, bias, (channel,), (block,), (count,), shape.dtype)

    def at(self, tap: Sequence[Dim], extents: Sequence[Dim]) -> View:
        """The weight of one tap at every element of a block."""
        return self._taps.view(*tap, axis(len(extents) - 1), shape=extents)


def _load(
    paths: MemoryPaths, source: Buffer, start: Sequence[Dim], shape: Sequence[int], extents: Sequence[Dim], dtype: DType
) -> Buffer:
    """A window in UB as `dtype`."""
    raw = paths.tile(source.dtype, shape)
    origin = (0,) * len(shape)
    paths.builder.load(raw.window(origin, extents), source.window(start, extents))
    if source.dtype == dtype:
        return raw
    wide = paths.tile(dtype, shape)
    paths.builder.cvt(wide.window(origin, extents), raw.window(origin, extents))
    return wide


def is_direct(shape: DepthwiseShape, target: Target, partial: bool = True, counted: bool = False) -> bool:
    """True if rectangles read the input itself, False if a padded copy of it. Arguments as of `emit_windows`."""
    static = all(isinstance(a.size, int) and isinstance(a.out, int) for a in shape.axes)
    if not static or not partial or shape.taps > _CHAIN or target.explicit_memory and not counted:
        return False
    # Every rectangle has its own code, doubled where channels leave a tail of a vector.
    few = _RECTANGLES if counted or shape.channels % _lanes(shape, target) == 0 else _RECTANGLES // 2
    return prod(len(tap_classes(a)) for a in shape.axes) <= few


def window_tilings(
    shape: DepthwiseShape, target: Target, partial: bool = True, counted: bool = False
) -> Iterator[WindowTiling]:
    """Whole rectangles, since their taps and epilogue run in registers; padded copies that stay in a part of L2."""
    if target.explicit_memory:
        for positions in halvings(64):
            yield WindowTiling(min(shape.channels, 64), positions, 512 * positions)
        return
    direct = is_direct(shape, target, partial, counted)
    # A direct grid has no other parts than these; a copy is cheaper the longer its rows are.
    parts = -(-_PARALLEL // max(1, shape.batch if isinstance(shape.batch, int) else 1)) if direct else 1
    channels = _channel_block(shape.channels, _lanes(shape, target), parts)
    outs = [a.out for a in shape.axes]
    positions = max(1, prod(out for out in outs if isinstance(out, int))) if direct else 1 << 18
    copies = halvings(1 << 18)
    for most in halvings(positions):
        yield WindowTiling(channels, most, next(copies, 1))


def emit_windows(
    paths: MemoryPaths, shape: DepthwiseShape, x: Buffer, chain: Chain, close: Close, finish: Finish,
    pad: float | int, tiling: WindowTiling, partial: bool = True, counted: bool = False, open_: Open | None = None,
) -> None:  # fmt: skip
    """Declares the grid and emits every rectangle. `pad` lies outside; without `partial` windows are whole.

    With `counted` a window is divided by its number of taps inside the input: by `close` where all windows of a block
    have the same, else by the counts along each axis, which are worked out for the block.
    """
    b = paths.builder
    direct = is_direct(shape, paths.target, partial, counted)
    block = min(shape.channels, tiling.channels)
    n: Dim = 0 if shape.batch == 1 else b.grid("n", shape.batch)
    start: Dim = 0
    count: Dim = shape.channels
    if block < shape.channels:
        start = b.grid("c", ceildiv(shape.channels, block)) * block
        count = extent_of(block, start, shape.channels)
    if paths.explicit:
        block = -(-block // 32) * 32
    if open_ is not None:
        open_(start, block, count)
    work = _Windows(paths, shape, x, chain, close, finish, n, start, count, block, pad, tiling)
    if direct:
        work.direct([tap_classes(a) for a in shape.axes])
    else:
        work.through_copy(counted)


def _lanes(shape: DepthwiseShape, target: Target) -> int:
    return max(1, target.vector_bytes // shape.dtype.bytes)


def _channel_block(channels: int, lanes: int, parts: int) -> int:
    """Channels that run together: a few vectors, so that the filter stays in L1; a divisor where there is one."""
    if parts == 1 and channels <= 8 * lanes:
        return channels
    widths = [v * lanes for v in (8, 6, 5, 4, 3, 2, 1)]
    dividing = [w for w in widths if w <= channels and channels % w == 0]
    return next((w for w in dividing if channels // w >= parts), min(dividing, default=min(channels, 4 * lanes)))


class _Windows:
    def __init__(
        self, paths: MemoryPaths, shape: DepthwiseShape, x: Buffer, chain: Chain, close: Close, finish: Finish,
        n: Dim, start: Dim, count: Dim, block: int, pad: float | int, tiling: WindowTiling,
    ) -> None:  # fmt: skip
        self.paths, self.b, self.tiling = paths, paths.builder, tiling
        self.shape, self.x, self.chain, self.close, self.finish = shape, x, chain, close, finish
        self.n, self.start, self.count, self.block, self.pad = n, start, count, block, pad
        self.tiles = 0
        self._inverse: list[Buffer] = []
        self._tap_tiles: dict[tuple[DType, tuple[int, ...]], Buffer] = {}

    def direct(self, classes: list[list[tuple[int, int, tuple[int, ...]]]]) -> None:
        """Rectangles that read the input itself."""
        for first, count, taps in classes[0]:
            self._row_run((first, count, taps, count), classes[1:])

    def _row_run(self, rows: Run, others: Sequence[list[tuple[int, int, tuple[int, ...]]]]) -> None:
        for runs in combinations(*others):
            rectangle = [rows, *((f, c, t, c) for f, c, t in runs)]
            self._in_parts(rectangle)

    def _in_parts(self, runs: Sequence[Run]) -> None:
        """A rectangle in blocks."""
        left, parts = self.tiling.positions, []
        with ExitStack() as stack:
            for i, (first, count, taps, _) in reversed(list(enumerate(runs))):
                assert isinstance(count, int)
                size = min(count, left)
                left = max(1, left // size)
                start: Dim = 0
                if size < count:
                    start = stack.enter_context(self.b.loop(f"v{self.tiles}_{i}", ceildiv(count, size))) * size
                parts.append((first + start, extent_of(size, start, count), taps, size))
            self._rectangle(list(reversed(parts)))

    def _rectangle(self, runs: Sequence[Run]) -> None:
        shape = self.shape
        rank = len(runs)
        extents = (*(count for _, count, _, _ in runs), self.count)
        channel = self.start + axis(rank)

        def source(taps: tuple[int, ...]) -> View:
            index = [
                (run[0] + axis(i)) * a.stride - a.before + t * a.dilation
                for i, (run, a, t) in enumerate(zip(runs, shape.axes, taps, strict=True))
            ]
            return self.x.view(self.n, *index, channel, shape=extents)

        self._chain(runs, extents, list(combinations(*(r[2] for r in runs))), source)

    def _chain(
        self, runs: Sequence[Run], extents: tuple[Dim, ...], taps: list[tuple[int, ...]],
        source: Callable[[tuple[int, ...]], View],
    ) -> None:  # fmt: skip
        """One block: its taps, then the epilogue."""
        b, rank = self.b, len(runs)
        channel = self.start + axis(rank)
        tile_shape = (*(r[3] for r in runs), self.block)
        dtype = self.shape.dtype
        if self.paths.explicit:
            tile = self.paths.passing(dtype, tile_shape, "UB")
        else:
            tile = b.tile(f"acc{self.tiles}", dtype, tile_shape)
        self.tiles += 1
        acc = tile.window((0,) * (rank + 1), extents)
        terms: list[tuple[tuple[Dim, ...], View]] = [(tap, source(tap)) for tap in taps]
        narrow = self.x.dtype != dtype
        if (self.paths.explicit or narrow) and any(view.base == self.x.name for _, view in terms):
            wide = self._tap_tile(dtype, tile_shape).window((0,) * (rank + 1), extents)
            raw = self._tap_tile(self.x.dtype, tile_shape).window((0,) * (rank + 1), extents)
            self.chain(acc, [], channel, False)
            for tap, view in terms:
                if self.paths.explicit:
                    b.load(raw, view)
                    view = raw
                if narrow:
                    b.cvt(wide, view)
                self.chain(acc, [(tap, wide)], channel, True)
        else:
            self.chain(acc, terms, channel, False)
        self._close(acc, len(taps), [axis(i) for i in range(rank)])
        self.finish(acc, tile_shape, (self.n, *(r[0] + axis(i) for i, r in enumerate(runs)), channel))

    def _tap_tile(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        """The tile that loads of single taps take turns in."""
        if (dtype, shape) not in self._tap_tiles:
            self._tap_tiles[dtype, shape] = self.paths.tile(dtype, shape)
        return self._tap_tiles[dtype, shape]

    def through_copy(self, counted: bool) -> None:
        """Blocks of output positions over a padded copy of their input."""
        b, shape = self.b, self.shape
        rank = len(shape.axes)
        blocks = self._copy_blocks()
        runs: list[Run] = []
        for i, (a, size) in enumerate(zip(shape.axes, blocks, strict=True)):
            every = tuple(range(a.kernel))
            if isinstance(a.out, int) and a.out <= size:
                runs.append((0, a.out, every, a.out))
                continue
            start = b.grid(f"o{i}", ceildiv(a.out, size)) * size
            runs.append((start, extent_of(size, start, a.out), every, size))
        spans = [a.span(r[1]) for a, r in zip(shape.axes, runs, strict=True)]
        sizes = [int(a.span(r[3])) for a, r in zip(shape.axes, runs, strict=True)]  # type: ignore[arg-type]
        held = self.x.dtype
        t = b.tile("padded", held, (*sizes, self.block), "UB" if self.paths.explicit else "L1")
        origin = [r[0] * a.stride - a.before for a, r in zip(shape.axes, runs, strict=True)]
        index = (self.n, *(o + axis(i) for i, o in enumerate(origin)), self.start + axis(rank))
        window = (*spans, self.count)
        b.load(t.window((0,) * (rank + 1), window), self.x.view(*index, shape=window), pad=self.pad)
        if held != shape.dtype:
            narrow = t.window((0,) * (rank + 1), window)
            t = b.tile("wide", shape.dtype, (*sizes, self.block))
            b.cvt(t.window((0,) * (rank + 1), window), narrow)
        extents = (*(r[1] for r in runs), self.count)
        if counted:
            along = zip(shape.axes, runs, origin, sizes, strict=True)
            self._inverse = [self._inverse_counts(*of_axis) for of_axis in along]
        if shape.taps <= _CHAIN:

            def source(taps: tuple[int, ...]) -> View:
                pairs = enumerate(zip(shape.axes, taps, strict=True))
                at = [axis(i) * a.stride + k * a.dilation for i, (a, k) in pairs]
                return t.view(*at, axis(rank), shape=extents)

            self._chain(runs, extents, list(combinations(*(r[2] for r in runs))), source)
            return
        self._row_by_row(t, runs)

    def _inverse_counts(self, a: Axis, run: Run, origin: Dim, size: int) -> Buffer:
        """1 / number of taps inside the input, by output of a block along one axis; its input starts at `origin`."""
        b, (_, outputs, _, bound) = self.b, run
        span, before = a.span(outputs), dmax(0, 0 - origin)
        mask, counts = self.paths.tile(self.shape.dtype, (size,)), self.paths.tile(self.shape.dtype, (bound,))
        b.expands(mask.window((0,), (span,)), 0.0)
        b.expands(mask.window((before,), (dmin(span, a.size - origin) - before,)), 1.0)
        count = counts.window((0,), (outputs,))
        b.expands(count, 0.0)
        for k in range(a.kernel):
            b.add(count, count, mask.view(axis(0) * a.stride + k * a.dilation, shape=(outputs,)))
        b.max(count, count, 1.0)
        b.recip(count, count)
        return counts

    def _close(self, acc: View, taps: int, at: Sequence[Dim]) -> None:
        """Ends the windows of a block, whose outputs are at `at` along the axes."""
        if not self._inverse:
            self.close(acc, taps)
        for counts, place in zip(self._inverse, at, strict=False):
            self.b.mul(acc, acc, counts.view(place, shape=acc.shape))

    def _row_by_row(self, t: Buffer, runs: Sequence[Run]) -> None:
        """Windows of many taps: loops over output rows and kernel rows, a chain along what is left of the kernel."""
        b, shape, rank = self.b, self.shape, len(runs)
        acc_shape = (1, *(r[3] for r in runs[1:]), self.block)
        acc = b.tile("acc", shape.dtype, acc_shape)
        extents = (1, *(r[1] for r in runs[1:]), self.count)
        block = acc.window((0,) * (rank + 1), extents)
        channel = self.start + axis(rank)
        first = shape.axes[0]
        inner = list(combinations(*(range(a.kernel) for a in shape.axes[1:])))
        with b.loop("row", runs[0][1]) as row:
            self.chain(block, [], channel, False)
            with b.loop("kernel_row", first.kernel) as k:
                terms: list[tuple[tuple[Dim, ...], View]] = []
                for taps in inner:
                    pairs = enumerate(zip(shape.axes[1:], taps, strict=True), 1)
                    at = [axis(i) * a.stride + tap * a.dilation for i, (a, tap) in pairs]
                    index = (row * first.stride + k * first.dilation, *at, axis(rank))
                    terms.append(((k, *taps), t.view(*index, shape=extents)))
                self.chain(block, terms, channel, True)
            self._close(block, shape.taps, [row, *(axis(i) for i in range(1, rank))])
            place = (runs[0][0] + row, *(r[0] + axis(i + 1) for i, r in enumerate(runs[1:])))
            self.finish(block, acc_shape, (self.n, *place, channel))

    def _copy_blocks(self) -> list[int]:
        """Output positions of a block whose input is no larger than a copy may be."""
        shape = self.shape
        budget = self.tiling.copy // (shape.dtype.bytes * self.block)
        blocks = []
        for i, a in reversed(list(enumerate(shape.axes))):
            most = max(1, (budget - a.reach) // a.stride + 1)
            if isinstance(a.out, int):
                limit = most if i else min(most, -(-max(a.out, 1) // _PARALLEL))
                blocks.append(even_block(max(a.out, 1), limit))
            else:
                blocks.append(min(most, _COLUMNS if i == len(shape.axes) - 1 else _ROWS))
            budget = max(1, budget // int(a.span(blocks[-1])))  # type: ignore[arg-type]
        return list(reversed(blocks))
