"""Convolutions on the cube of a chip: input blocks in L1, image-to-column extracts to L0A, sums over k in L0C.

The input block of some output positions is loaded with its padding by chunks of channels. Each chunk goes through as
many taps at a time as L0A holds; the other taps are loops around the products. Taps that lie far apart are loaded one
by one, in loops around the chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product as combinations
from math import prod

from codegen.kernels.conv_core import ConvShape, Finish, extent_of
from codegen.kernels.conv_transpose import TransposedShape, phase_extent, phases
from codegen.kernels.cube_blocks import CubeBlock, best_blocks, powers
from codegen.kernels.memory_paths import MemoryPaths, accumulator_dtype
from codegen.kernels.tiling import Tiling, halvings
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import View, axis
from tensor_types.dims import Dim, Expr, ceildiv
from tensor_types.dtypes import DType

_POSITIONS = 512
"""Output positions of a block at most."""
_USUAL = 56
"""Extent of an axis that only the run knows."""
_FRACTAL = 16
"""The cube works on multiples of this along k."""

Read = Callable[[Sequence[Dim], Dim, Sequence[Dim]], View]
"""The input at (index per spatial axis, channel) with these extents; indices may lie outside."""
Weights = Callable[[Sequence[Dim], Dim, Dim, Sequence[Dim]], View]
"""The weight at (index per kernel axis, channel, column) with these extents."""


@dataclass(frozen=True)
class CubeConvTiling(Tiling, kind="conv_cube", place="chip"):
    """`block` output positions per axis, panels of `panel` output channels; `vector` elements of the result pass
    through the vector engine at a time."""

    block: tuple[int, ...]
    panel: int
    vector: int


@dataclass(frozen=True)
class Slide:
    """One spatial axis: output i of the block and tap t read input start + step*i + move*t, weight first + pace*t."""

    start: Dim
    step: int
    taps: int
    move: int
    first: Dim = 0
    pace: int = 1

    @property
    def lowest(self) -> int:
        """The least distance of an input position from `start`."""
        return min(0, self.move * (self.taps - 1))

    def span(self, outputs: Dim) -> Dim:
        """Input positions that a run of so many outputs covers."""
        return (outputs - 1) * self.step + abs(self.move) * (self.taps - 1) + 1

    def is_sparse(self, outputs: int) -> bool:
        """True if most of what a run of so many outputs spans lies between the taps."""
        return int(self.span(outputs)) > 2 * self.taps * ((outputs - 1) * self.step + 1)

    def at(self, tap: Dim) -> Slide:
        """The slide of one tap alone."""
        return replace(self, start=self.start + self.move * tap, taps=1, first=self.first + self.pace * tap)


def _position_block(extents: Sequence[Dim], most: int) -> tuple[int, ...]:
    """Output positions of a block, inner axes first."""
    block: list[int] = []
    for extent in reversed(extents):
        block.append(max(1, min(extent, most) if isinstance(extent, int) else most))
        most //= block[-1]
    return tuple(reversed(block))


class _Cube:
    """Products over blocks of one size; all of them, each with its `slides`, share their tiles."""

    def __init__(
        self, paths: MemoryPaths, dtype: DType, block: Sequence[int], panel: int, channels: int,
        slides: Sequence[Sequence[Slide]], pad: int = 0,
    ) -> None:  # fmt: skip
        self._pad = pad
        along_axes = list(zip(*slides, strict=True))
        self._sparse = [any(s.is_sparse(n) for s in along) for n, along in zip(block, along_axes, strict=True)]
        """Axes whose taps are loaded one by one."""
        loaded = [[s.at(0) if sparse else s for s in along]
                  for sparse, along in zip(self._sparse, along_axes, strict=True)]  # fmt: skip
        taps = [max(s.taps for s in along) for along in loaded]
        spans = [max(int(s.span(n)) for s in along) for n, along in zip(block, loaded, strict=True)]
        self._paths, self._channels = paths, channels
        memories = paths.target.memories
        room = min(memories[s].bytes for s in ("L0A", "L0B")) // (2 * dtype.bytes) // max(prod(block), panel)
        least = min(channels, _FRACTAL)
        self._outer = next(i for i in range(len(taps) + 1) if prod(taps[i:]) * least <= room or i == len(taps))
        """Kernel axes before this one are loops."""
        at_once = prod(taps[self._outer :])
        fitting = max(1, room // at_once)
        self._chunk = channels if channels <= fitting else max(1, fitting // _FRACTAL * _FRACTAL or fitting)
        k = at_once * self._chunk
        self._input = paths.tile(dtype, (*spans, self._chunk), "L1", 2)
        self._l0a = paths.tile(dtype, (*block, k), "L0A", 2)
        self._weight = paths.tile(dtype, (k, panel), "L1", 2)
        self._l0b = paths.tile(dtype, (k, panel), "L0B", 2)
        self._products = 0

    def product(self, acc: View, slides: Sequence[Slide], read: Read, weights: Weights) -> None:
        """acc[positions.., columns] = the sum over all taps and channels."""
        self._products += 1
        with ExitStack() as stack:
            passed: Dim = 0
            chosen: list[Slide] = []
            for i, (s, sparse) in enumerate(zip(slides, self._sparse, strict=True)):
                if not sparse:
                    chosen.append(s)
                    continue
                tap = stack.enter_context(self._paths.builder.loop(f"w{self._products}_{i}", s.taps))
                chosen.append(s.at(tap))
                passed = passed + tap
            self._channels_of(acc, chosen, read, weights, passed)

    def _channels_of(self, acc: View, slides: Sequence[Slide], read: Read, weights: Weights, passed: Dim) -> None:
        """Adds the products of all channels; the sum starts here where `passed` is 0."""
        whole, rest = divmod(self._channels, self._chunk)
        if whole == 1:
            self._part(acc, slides, read, weights, 0, self._chunk, passed)
        else:
            with self._paths.builder.loop(f"k{self._products}", whole) as i:
                self._part(acc, slides, read, weights, i * self._chunk, self._chunk, passed + i)
        if rest:
            self._part(acc, slides, read, weights, whole * self._chunk, rest, None)

    def _part(
        self, acc: View, slides: Sequence[Slide], read: Read, weights: Weights, channel: Dim, count: int,
        number: Dim | None,
    ) -> None:  # fmt: skip
        """Products over channels channel .. channel+count-1; part 0 starts the sum, None is never the first."""
        b, rank = self._paths.builder, len(slides)
        counts, columns = acc.shape[:-1], acc.shape[-1]
        spans = (*(s.span(n) for s, n in zip(slides, counts, strict=True)), count)
        origin = [s.start + s.lowest + axis(i) for i, s in enumerate(slides)]
        b.load(self._input.window((0,) * (rank + 1), spans), read(origin, channel + axis(rank), spans), pad=self._pad)
        inner = [s.taps for s in slides[self._outer :]]
        with ExitStack() as stack:
            loops: list[Dim] = []
            for i, s in enumerate(slides[: self._outer]):
                name = f"t{self._products}_{i}" if count == self._chunk else f"r{self._products}_{i}"
                loops.append(0 if s.taps == 1 else stack.enter_context(b.loop(name, s.taps)))
            # The image-to-column view: axes of the positions, of the inner taps, of the channels.
            taps = [*loops, *(axis(rank + j) for j in range(len(inner)))]
            at = [axis(i) * s.step + t * s.move - s.lowest for i, (s, t) in enumerate(zip(slides, taps, strict=True))]
            last = axis(rank + len(inner))
            positions = [axis(i) for i in range(rank)]
            columns_of = (*counts, *inner, count)
            left = self._l0a.view(*positions, _flat(inner, count, rank), shape=columns_of)
            b.extract(left, self._input.view(*at, last, shape=columns_of))
            kernel = [*loops, *(axis(j) for j in range(len(inner)))]
            kernel = [s.first + s.pace * t for s, t in zip(slides, kernel, strict=True)]
            rows = (*inner, count, columns)
            wanted = weights(kernel, channel + axis(len(inner)), axis(len(inner) + 1), rows)
            b.load(self._weight.view(_flat(inner, count, 0), axis(len(inner) + 1), shape=rows), wanted)
            k = prod(inner) * count
            right = self._l0b.window((0, 0), (k, columns))
            b.extract(right, self._weight.window((0, 0), (k, columns)))
            operands = self._l0a.window((0,) * (rank + 1), (*counts, k)), right
            self._multiply(acc, operands, None if number is None else [number, *loops], rank)

    def _multiply(self, acc: View, operands: tuple[View, View], loops: Sequence[Dim] | None, rank: int) -> None:
        b = self._paths.builder
        if loops is None:
            b.matmul_acc(acc, *operands, nm=rank, nk=1)
            return
        started: Dim = sum(loops, 0)
        if started == 0:
            b.matmul(acc, *operands, nm=rank, nk=1)
            return
        with b.when(started, "==", 0):
            b.matmul(acc, *operands, nm=rank, nk=1)
        with b.otherwise():
            b.matmul_acc(acc, *operands, nm=rank, nk=1)


def _flat(taps: Sequence[int], count: int, first: int) -> Dim:
    """The position along k of axes first.. of the taps and the axis of channels behind them."""
    place: Dim = 0
    for i, size in enumerate(taps):
        # An axis of one element is always at 0; left out, the steps tell the others apart.
        place = place * size + (axis(first + i) if size > 1 else 0)
    return place * count + (axis(first + len(taps)) if count > 1 else 0)



def cube_tilings(shape: ConvShape, target: Target) -> Iterator[CubeConvTiling]:
    """Tilings for the cube of a chip by falling preference."""
    outs = [a.out for a in shape.axes]
    return _tilings(outs, [(a.kernel, a.stride, a.dilation) for a in shape.axes], shape, target)


def transposed_tilings_on_cube(shape: TransposedShape, target: Target) -> Iterator[CubeConvTiling]:
    """As `cube_tilings`; the positions are those of one phase."""
    outs = [ceildiv(a.out, a.stride) for a in shape.axes]
    return _tilings(outs, [(-(-a.kernel // a.stride), 1, 1) for a in shape.axes], shape, target)


def _tilings(
    outs: Sequence[Dim], windows: Sequence[tuple[int, int, int]], shape: ConvShape | TransposedShape, target: Target
) -> Iterator[CubeConvTiling]:
    """`windows` are taps, stride and dilation along each axis."""
    taps = prod(kernel for kernel, _, _ in windows)
    usual = [out if isinstance(out, int) else _USUAL for out in outs]
    outer = shape.groups * (shape.batch if isinstance(shape.batch, int) else 1)
    blocks = []
    # Rows of 8-bit tiles fill whole blocks of 32 B as well.
    panels = powers(shape.features, 32, 256, 32)
    for block in combinations(*(powers(out, 1, _POSITIONS) for out in outs)):
        if prod(block) > _POSITIONS:
            continue
        spans = prod(min((n - 1) * stride + (kernel - 1) * dilation, kernel * ((n - 1) * stride + 1) - 1) + 1
                     for n, (kernel, stride, dilation) in zip(block, windows, strict=True))  # fmt: skip
        count = outer * prod(-(-out // n) for out, n in zip(usual, block, strict=True))
        for panel in panels:
            loaded = shape.channels * (spans + taps * panel)
            blocks.append(CubeBlock(block, panel, count * -(-shape.features // panel), loaded))
    best = best_blocks(blocks, taps * shape.channels, shape.dtype, target)
    for rows, panel, _, _ in best:
        for vector in halvings(prod(rows) * panel, 1 << 10):
            yield CubeConvTiling(rows, panel, vector)
    for positions in halvings(32):
        yield CubeConvTiling(_position_block(outs, positions), panels[0], positions * panels[0])


def emit_conv_on_cube(
    paths: MemoryPaths, shape: ConvShape, tiling: CubeConvTiling, x: Buffer, w: Buffer, finish: Finish
) -> None:
    """As `emit_conv`; w is [groups, panels, kernel.., channels, NR]."""
    outs, block, panel = [a.out for a in shape.axes], tiling.block, tiling.panel
    n, g, p = _outer_grid(paths, shape.batch, shape.groups, shape.features, panel)
    starts = [paths.grid(ceildiv(out, size)) * size for out, size in zip(outs, block, strict=True)]
    slides = [Slide(start * a.stride - a.before, a.stride, a.kernel, a.dilation)
              for a, start in zip(shape.axes, starts, strict=True)]  # fmt: skip
    cube = _Cube(paths, shape.dtype, block, panel, shape.channels, [slides], shape.pad_value)
    counts = [extent_of(size, start, out) for size, start, out in zip(block, starts, outs, strict=True)]
    acc = paths.accumulator(shape.dtype, (*block, panel), (*counts, _columns(shape.features, panel, p)))
    read = _reader(x, n, g * shape.channels, shape.plain)
    cube.product(acc, slides, read, lambda k, c, column, extents: w.view(g, p, *k, c, column, shape=extents))
    rank = len(block)
    place = [start + axis(i) for i, start in enumerate(starts)]
    finish(acc, (n, *place, g * shape.features + p * panel + axis(rank)))


def emit_transposed_on_cube(
    paths: MemoryPaths, shape: TransposedShape, tiling: CubeConvTiling, x: Buffer, w: Buffer, finish: Finish
) -> None:
    """As `emit_transposed`, in blocks of positions of one phase."""
    every = [phases(a) for a in shape.axes]
    whole = [ceildiv(a.out, a.stride) for a in shape.axes]
    block, panel = tiling.block, tiling.panel
    n, g, p = _outer_grid(paths, shape.batch, shape.groups, shape.features, panel)
    starts = [paths.grid(ceildiv(count, size)) * size for count, size in zip(whole, block, strict=True)]
    rank = len(block)
    chosen = [c for c in combinations(*every) if all(isinstance(a.out, Expr) or a.out > q.residue for a, q in
                                                     zip(shape.axes, c, strict=True))]  # fmt: skip
    slides = [
        [Slide(start + q.offset, 1, q.count, -q.move, q.first, q.step) for start, q in zip(starts, c, strict=True)]
        for c in chosen
    ]
    cube = _Cube(paths, shape.dtype, block, panel, shape.channels, [s for s in slides if all(a.taps for a in s)])
    tile = paths.accumulator(shape.dtype, (*block, panel), (*block, panel))
    read = _reader(x, n, g * shape.channels, shape.plain)
    for phase, slide in zip(chosen, slides, strict=True):
        counts = [
            phase_extent(size, start, a, q)
            for size, start, a, q in zip(block, starts, shape.axes, phase, strict=True)
        ]
        acc = View(tile.base, tile.index, (*counts, _columns(shape.features, panel, p)))
        if all(s.taps for s in slide):
            cube.product(acc, slide, read, lambda k, c, column, extents: w.view(*k, g, p, c, column, shape=extents))
        else:
            zeros = paths.passing(accumulator_dtype(shape.dtype), (*block, panel), "UB")
            acc = View(zeros.name, acc.index, acc.shape)
            paths.builder.expands(acc, 0.0)
        out = [(start + axis(i)) * a.stride + q.residue
               for i, (start, a, q) in enumerate(zip(starts, shape.axes, phase, strict=True))]  # fmt: skip
        finish(acc, (n, *out, g * shape.features + p * panel + axis(rank)))


def _outer_grid(paths: MemoryPaths, batch: Dim, groups: int, features: int, panel: int) -> tuple[Dim, Dim, Dim]:
    return paths.grid(batch), paths.grid(groups), paths.grid(-(-features // panel))


def _columns(features: int, panel: int, p: Dim) -> Dim:
    return min(features, panel) if p == 0 else extent_of(panel, p * panel, features)


def _reader(x: Buffer, n: Dim, base: Dim, plain: bool) -> Read:
    def read(index: Sequence[Dim], channel: Dim, extents: Sequence[Dim]) -> View:
        channel = base + channel
        return x.view(*((n, channel, *index) if plain else (n, *index, channel)), shape=extents)

    return read
