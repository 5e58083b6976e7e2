"""Transposed convolution as one matrix product per phase: outputs s*q + r share the taps that meet the input grid.

For output s*q + r the taps t with r + before - t*dilation divisible by s read input q + (r + before - t*dilation) / s.
They are an arithmetic progression, so every phase is a convolution with stride 1 through an image-to-column view.

Where every phase has one tap, and that reads the input position of its own (windows side by side), the phases are
columns of one product: [channels] by [phases * features].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product as combinations
from math import gcd, prod

from codegen.kernels.conv_core import Finish, extent_of, panel_width
from codegen.kernels.conv_geometry import Axis, even_block
from codegen.kernels.memory_paths import accumulator_dtype
from codegen.kernels.operands import NotLowerable
from codegen.kernels.tiling import Tiling, halvings
from codegen.targets.target import Target
from codegen.tile.build import Buffer, ProgramBuilder
from codegen.tile.ir import axis
from tensor_types.dims import Dim, ceildiv, dmin
from tensor_types.dtypes import DType


@dataclass(frozen=True)
class TransposedTiling(Tiling, kind="conv_transpose", place="host"):
    """`block` output positions of one phase per axis, panels of `panel` output channels; with `together` the channels
    of all phases are one panel."""

    block: tuple[int, ...]
    panel: int
    together: bool = False


@dataclass(frozen=True)
class Phase:
    """Taps first, first + step, ... (`count` of them) read input offsets offset, offset - move, ..."""

    residue: int
    first: int
    step: int
    count: int
    offset: int
    move: int


def phases(a: Axis) -> list[Phase]:
    """The phases of an axis; one without taps has count 0."""
    s, d = a.stride, a.dilation
    step = s // gcd(s, d)
    result = []
    for r in range(s):
        taps = [t for t in range(a.kernel) if (r + a.before - t * d) % s == 0]
        first = taps[0] if taps else 0
        result.append(Phase(r, first, step, len(taps), (r + a.before - first * d) // s, step * d // s))
    return result


@dataclass(frozen=True)
class TransposedShape:
    """x[batch, axes.., groups*channels] to groups*features channels; `Axis.size` is the input's, `out` the output's."""

    batch: Dim
    axes: tuple[Axis, ...]
    groups: int
    channels: int
    features: int
    dtype: DType
    plain: bool

    @property
    def columns(self) -> int:
        """Output channels of all phases."""
        return self.features * prod(a.stride for a in self.axes)

    @property
    def is_side_by_side(self) -> bool:
        """True if every phase has one tap, which reads the input position of its own."""
        whole = all(a.out == a.stride * a.size for a in self.axes)
        return whole and all((p.first, p.count, p.offset) == (p.residue, 1, 0) for a in self.axes for p in phases(a))


def transposed_tilings(shape: TransposedShape, target: Target) -> Iterator[TransposedTiling]:
    """Tilings for a host by falling preference: a few rows at a time."""
    lanes = max(1, target.vector_bytes // max(4, shape.dtype.bytes))
    together = shape.is_side_by_side and shape.columns <= 4 * lanes
    panel = panel_width(shape.columns if together else shape.features, 4 * lanes, lanes)
    last = len(shape.axes) - 1
    for parts in halvings(48):
        most = [max(1, parts if i == last else parts // 12) for i in range(last + 1)]
        counts = [ceildiv(a.out, a.stride) for a in shape.axes]
        block = (even_block(max(n, 1), m) if isinstance(n, int) else m for n, m in zip(counts, most, strict=True))
        yield TransposedTiling(tuple(block), panel, together)


def phase_extent(block: int, start: Dim, a: Axis, phase: Phase) -> Dim:
    """Output positions of one phase in the block at `start`; the last block may have none of the later phases."""
    count, most = ceildiv(a.out - phase.residue, a.stride), ceildiv(a.out, a.stride)
    return extent_of(block, start, count) if count == most else dmin(block, count - start)


def emit_transposed(
    b: ProgramBuilder, shape: TransposedShape, x: Buffer, w: Buffer, tiling: TransposedTiling, finish: Finish
) -> None:
    """Declares the grid and emits all phases; w is [kernel.., groups, panels, channels, NR], of phases that are
    columns together [groups, 1, channels, NR]."""
    rank, panel, blocks = len(shape.axes), tiling.panel, tiling.block
    n: Dim = 0 if shape.batch == 1 else b.grid("n", shape.batch)
    g: Dim = 0 if shape.groups == 1 else b.grid("g", shape.groups)
    every = [phases(a) for a in shape.axes]
    lows = [min((p.offset - p.move * max(p.count - 1, 0) for p in ps if p.count), default=0) for ps in every]
    highs = [max((p.offset for p in ps if p.count), default=0) for ps in every]
    starts: list[Dim] = []
    for i, a in enumerate(shape.axes):
        positions = ceildiv(a.out, a.stride)
        whole = isinstance(positions, int) and positions <= blocks[i]
        starts.append(0 if whole else b.grid(f"o{i}", ceildiv(positions, blocks[i])) * blocks[i])
    aligned = all(a.out == a.stride * a.size for a in shape.axes)
    direct = aligned and not any(lows) and not any(highs)
    if not direct:
        sizes = [block + high - low for block, low, high in zip(blocks, lows, highs, strict=True)]
        tile = b.tile("padded", shape.dtype, (*sizes, shape.channels), "L1")
        window = (*sizes, shape.channels)
        at: Sequence[Dim] = [s + low + axis(i) for i, (s, low) in enumerate(zip(starts, lows, strict=True))]
        channel = g * shape.channels + axis(rank)
        index = (n, channel, *at) if shape.plain else (n, *at, channel)
        b.load(tile.whole(), x.view(*index, shape=window), pad=0)
    if tiling.together:
        if not shape.is_side_by_side or panel < shape.columns:
            raise NotLowerable(f"`{tiling}`: windows that overlap, or more than {panel} channels of all phases")
        _emit_side_by_side(b, shape, x, w, tiling, n, g, starts, finish)
        return
    panels_ = -(-shape.features // panel)
    acc = b.tile("acc", accumulator_dtype(shape.dtype), (*blocks, panel), "L0C")
    p: Dim = 0 if panels_ == 1 else b.grid("p", panels_)
    columns: Dim = panel
    if shape.features % panel:
        columns = shape.features if panels_ == 1 else dmin(panel, shape.features - panel * p)
    for chosen in combinations(*every):
        counts = [
            phase_extent(block, start, a, q)
            for block, start, a, q in zip(blocks, starts, shape.axes, chosen, strict=True)
        ]
        if any(c == 0 for c in counts):
            continue
        out = [
            (s + axis(i)) * a.stride + q.residue
            for i, (s, a, q) in enumerate(zip(starts, shape.axes, chosen, strict=True))
        ]
        target = acc.window((0,) * (rank + 1), (*counts, columns))
        taps = tuple(q.count for q in chosen)
        if 0 in taps:
            b.expands(target, 0.0)
        else:
            extents = (*counts, *taps, shape.channels)
            moved = [axis(i) + q.offset - q.move * axis(rank + i) for i, q in enumerate(chosen)]
            channel = axis(2 * rank)
            if direct:
                spatial = [s + v for s, v in zip(starts, moved, strict=True)]
                channel = g * shape.channels + channel
                source = x.view(*((n, channel, *spatial) if shape.plain else (n, *spatial, channel)), shape=extents)
            else:
                source = tile.view(*(v - low for v, low in zip(moved, lows, strict=True)), channel, shape=extents)
            kernel = [q.first + q.step * axis(i) for i, q in enumerate(chosen)]
            weight = w.view(*kernel, g, p, axis(rank), axis(rank + 1), shape=(*taps, shape.channels, columns))
            b.matmul(target, source, weight, nm=rank, nk=rank + 1)
        finish(target, (n, *out, g * shape.features + p * panel + axis(rank)))


def _emit_side_by_side(
    b: ProgramBuilder, shape: TransposedShape, x: Buffer, w: Buffer, tiling: TransposedTiling, n: Dim, g: Dim,
    starts: Sequence[Dim], finish: Finish,
) -> None:  # fmt: skip
    """One product of all phases, whose columns are stored phase by phase."""
    rank, features, columns = len(shape.axes), shape.features, shape.columns
    acc = b.tile("acc", accumulator_dtype(shape.dtype), (*tiling.block, columns), "L0C")
    counts = [extent_of(block, s, a.size) for block, s, a in zip(tiling.block, starts, shape.axes, strict=True)]
    channel = g * shape.channels + axis(rank)
    spatial = [s + axis(i) for i, s in enumerate(starts)]
    source = x.view(
        *((n, channel, *spatial) if shape.plain else (n, *spatial, channel)), shape=(*counts, shape.channels)
    )
    weight = w.view(g, 0, axis(0), axis(1), shape=(shape.channels, columns))
    b.matmul(acc.window((0,) * (rank + 1), (*counts, columns)), source, weight, nm=rank, nk=1)
    for number, residues in enumerate(combinations(*(range(a.stride) for a in shape.axes))):
        block = acc.window((*(0,) * rank, number * features), (*counts, features))
        at = [v * a.stride + r for v, a, r in zip(spatial, shape.axes, residues, strict=True)]
        finish(block, (n, *at, g * features + axis(rank)))
