"""Implicit GEMM: one matrix product per block of output positions and panel of output channels.

Activations lie channels-last, x[N, spatial.., C], or plain with few channels; the weight is packed
[group][panel][kernel.., C/group][NR] (plain activations: [C/group, kernel..]; with channels together: [kernel..,
C/group/together][NR][together]; plain ones with taps of a row together: [C, kernel.., taps/2][NR][2]). The product's a
is an image-to-column view of the input itself, or, where windows leave the input, of a padded copy of the input block
that stays in L2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from codegen.kernels.conv_geometry import Axis, even_block
from codegen.kernels.memory_paths import accumulator_dtype
from codegen.kernels.tiling import Tiling
from codegen.targets.matmul_tiling import recommend_tiling
from codegen.targets.target import Target
from codegen.tile.build import Buffer, ProgramBuilder
from codegen.tile.ir import View, axis
from tensor_types.dims import Dim, ceildiv, dmin, product
from tensor_types.dtypes import DType
from tensor_types.formats import Format, Permute, Split, panels

_PARALLEL = 8
"""Grid indices that are wanted at least, so that a few cores share the work evenly."""
_FEW_PANELS = 8
"""So many of the widest panels, which their width does not divide, become one."""
_COLUMNS = 48
_ROWS = 8
"""Output columns and rows of a block where they are known at run time only."""

Finish = Callable[[View, tuple[Dim, ...]], None]
"""Takes the accumulator block and the physical index of its elements, batch first and channel last."""


@dataclass(frozen=True)
class ConvShape:
    """A convolution of x[batch, axes.., groups*channels] to groups*features channels."""

    batch: Dim
    axes: tuple[Axis, ...]
    groups: int
    channels: int
    features: int
    dtype: DType
    plain: bool
    """x is [batch, channels, axes..]."""
    pad_value: int = 0
    """What lies outside of the input."""
    together: int = 1
    """Numbers of a column that lie together, channels, or of plain activations taps of the last axis: hosts multiply
    bytes four at a time, and bf16 in pairs."""
    weight_zero: int = 0
    """A number of the weight's dtype that stands for 0 there."""

    def with_even_rows(self) -> ConvShape:
        """As a product of pairs of taps: an odd kernel gets one more tap along the last axis, whose weight is zero."""
        *others, last = self.axes
        kernel = last.kernel + last.kernel % 2
        wide = replace(last, kernel=kernel)
        excess = wide.span(last.out) - last.before - last.size
        after = max(excess, 0) if isinstance(excess, int) else last.after + kernel - last.kernel
        return replace(self, axes=(*others, replace(wide, after=after)), together=2)

    @property
    def is_pixelwise(self) -> bool:
        """True if every output position reads one input position: a matrix product over all positions."""
        return all(a.is_identity for a in self.axes)

    @property
    def kernel(self) -> tuple[int, ...]:
        return tuple(a.kernel for a in self.axes)

    def input_shape(self) -> tuple[Dim, ...]:
        """Physical shape of x."""
        spatial = tuple(a.size for a in self.axes)
        channels = self.groups * self.channels
        return (self.batch, channels, *spatial) if self.plain else (self.batch, *spatial, channels)


@dataclass(frozen=True)
class ConvTiling(Tiling, kind="conv", place="host"):
    """`block` output positions per axis, `panel` output channels NR; `split` parts of the panels in the grid."""

    block: tuple[int, ...]
    panel: int
    split: int


def panel_width(features: int, widest: int, lanes: int) -> int:
    """Channels of a panel, in whole vectors: all of them where they are few, else at most `widest`, two vectors at
    least and dividing the features if some width does.

    A panel of one vector loads as much as it multiplies and takes 1.2 to 1.6 times as long (40 to 120 channels, Zen 3);
    within a wider one, register tiles of two vectors leave one of a single vector at the end.
    """
    whole = -(-features // lanes) * lanes
    if features <= widest or lanes == widest:
        return min(whole, widest)
    for width in range(widest, lanes, -lanes):
        if width * 2 >= widest and features % width == 0:
            return width
    return whole if features <= _FEW_PANELS * widest else widest


def conv_tilings(shape: ConvShape, target: Target) -> Iterator[ConvTiling]:
    """Tilings for a host by falling preference: smaller blocks where a padded copy or the sums do not fit."""
    tiling = _preferred(shape, target.vector_bytes, target.registers, target.l2_bytes)
    yield tiling
    while max(tiling.block) > 1:
        longest = tiling.block.index(max(tiling.block))
        block = tuple(-(-size // 2) if i == longest else size for i, size in enumerate(tiling.block))
        tiling = ConvTiling(block, tiling.panel, tiling.split)
        yield tiling


def _preferred(shape: ConvShape, vector_bytes: int, registers: int, l2_bytes: int) -> ConvTiling:
    """Input blocks that stay in L2, panels as the matmul table recommends."""
    size = 4 if shape.dtype.bytes < 8 else 8
    lanes = max(1, vector_bytes // size)
    taps = product(shape.kernel)
    assert isinstance(taps, int)
    usual = [a.out if isinstance(a.out, int) else _COLUMNS for a in shape.axes]
    positions = 1
    for extent in usual:
        positions *= max(extent, 1)
    k = taps * shape.channels // (4 if shape.dtype.is_integer else 1)
    kind = "gemm" if shape.is_pixelwise else "conv"
    tiling = recommend_tiling(
        max(positions, 1), k, shape.features, kind, vector_bytes=vector_bytes, registers=registers, l2_bytes=l2_bytes,
        element_bytes=size, width=max(usual[-1], 1), row_bytes=0,
    )  # fmt: skip
    panel = panel_width(shape.features, tiling.panel, lanes)
    block = _block(shape, usual, tiling.block_rows if shape.is_pixelwise else None, l2_bytes)
    panels_ = -(-shape.features // panel)
    blocks = 1
    for extent, size_ in zip(usual, block, strict=True):
        blocks *= -(-extent // size_)
    blocks *= shape.groups * (shape.batch if isinstance(shape.batch, int) else 1)
    split = min(panels_, max(1, -(-_PARALLEL // blocks)))
    return ConvTiling(block, panel, split)


def _block(shape: ConvShape, usual: Sequence[int], rows: int | None, l2_bytes: int) -> tuple[int, ...]:
    if rows is not None:
        # Enough rows for full register tiles, few enough that the cores find work.
        extent = usual[-1]
        most = min(rows, max(96, -(-extent // 4)), 384)
        known = isinstance(shape.axes[-1].out, int)
        return (*(1 for _ in usual[:-1]), even_block(extent, most) if known else 96)
    # Weights that do not stay in L2 are streamed once for each block: then the panels are split, not the rows.
    taps = product(shape.kernel)
    assert isinstance(taps, int)
    heavy = taps * shape.channels * shape.features * shape.dtype.bytes > l2_bytes
    budget = l2_bytes // 4 // (shape.dtype.bytes * shape.channels)
    block = [1] * len(usual)
    gaps = any(a.padded for a in shape.axes)  # a padded copy of the input block holds them
    reads = [a.reads(1, gaps) for a in shape.axes]
    # Inner axes first: whole rows, then as many rows as the budget allows.
    for i in reversed(range(len(usual))):
        a = shape.axes[i]
        others = 1
        for j, positions in enumerate(reads):
            others *= positions if j != i else 1
        most = a.outputs_within(budget // others, gaps)
        if not isinstance(a.out, int):
            block[i] = min(most, _COLUMNS if i == len(usual) - 1 else _ROWS)
        else:
            parts = 1 if i or heavy else 4
            block[i] = even_block(max(a.out, 1), min(most, -(-max(a.out, 1) // parts)))
        reads[i] = a.reads(block[i], gaps)
    return tuple(block)


def weight_packing(
    shape: ConvShape, panel: int, rank: int
) -> tuple[tuple[int, ...], tuple[int, ...] | None, Format]:
    """(permute, reshape, packing) of the ONNX weight [M, C/group, kernel..] of `rank` axes to [group][panel][K][NR]."""
    spatial = tuple(range(2, rank))
    permute = (1, *spatial, 0) if shape.plain else (*spatial, 1, 0)
    taps = product(shape.kernel)
    assert isinstance(taps, int)
    k = taps * shape.channels
    if shape.plain and shape.together > 1:
        # The kernel may have a tap less than the shape: splitting its axis adds a zero.
        order = Permute((rank, *range(rank - 1), rank + 1, rank - 1))
        return permute, None, Format((Split(rank - 2, 2), Split(rank, panel), order))
    if shape.groups == 1:
        return permute, (k, shape.features), panels(panel, 2, shape.together)
    steps = (Permute((1, 0, 2)), *panels(panel, 3, shape.together).steps)
    return permute, (k, shape.groups, shape.features), Format(steps)


def weight_shape(shape: ConvShape, panel: int) -> tuple[int, ...]:
    """Shape of the packed weight's parameter: group, panel, k axes, NR."""
    panels_ = -(-shape.features // panel)
    if shape.together > 1:
        return (shape.groups, panels_, *_grouped(shape), panel, shape.together)
    k = (shape.channels, *shape.kernel) if shape.plain else (*shape.kernel, shape.channels)
    return (shape.groups, panels_, *k, panel)


def _grouped(shape: ConvShape) -> tuple[int, ...]:
    """The k axes of numbers that lie together, without the innermost one, which has them."""
    if shape.plain:
        return (shape.channels, *shape.kernel[:-1], shape.kernel[-1] // shape.together)
    return (*shape.kernel, shape.channels // shape.together)


def extent_of(block: int, start: Dim, total: Dim) -> Dim:
    """Elements of a block at `start` of `total`."""
    return block if isinstance(total, int) and total % block == 0 else dmin(block, total - start)


def emit_conv(
    b: ProgramBuilder, shape: ConvShape, tiling: ConvTiling, x: Buffer, w: Buffer, finish: Finish,
    outside: View | None = None,
) -> None:  # fmt: skip
    """Declares the grid and emits the product of every block; `finish` consumes and stores each accumulator.

    `outside`: one element, of bytes, that what lies outside of the input counts as, in place of `pad_value`.
    """
    axes = shape.axes
    rank = len(axes)
    n: Dim = 0 if shape.batch == 1 else b.grid("n", shape.batch)
    g: Dim = 0 if shape.groups == 1 else b.grid("g", shape.groups)
    starts: list[Dim] = []
    counts: list[Dim] = []
    for i, a in enumerate(axes):
        block = tiling.block[i]
        if isinstance(a.out, int) and a.out <= block:
            starts.append(0)
            counts.append(a.out)
            continue
        start = b.grid(f"o{i}", ceildiv(a.out, block)) * block
        starts.append(start)
        counts.append(extent_of(block, start, a.out))
    panels_ = -(-shape.features // tiling.panel)
    per_part = -(-panels_ // tiling.split)
    parts = -(-panels_ // per_part)
    first: Dim = 0 if parts == 1 else b.grid("p", parts) * per_part

    source = _input_block(b, shape, tiling, x, n, g, starts, counts, outside)
    acc = b.tile("acc", accumulator_dtype(shape.dtype), (*tiling.block, tiling.panel), "L0C")
    excess = _excess(b, shape, tiling, source, w.dtype, counts) if shape.weight_zero else None

    def panel(p: Dim) -> None:
        columns: Dim = tiling.panel
        if shape.features % tiling.panel:
            columns = shape.features if panels_ == 1 else dmin(tiling.panel, shape.features - tiling.panel * p)
        block = acc.window((0,) * (rank + 1), (*counts, columns))
        if shape.together > 1:
            inner = (*(axis(i) for i in range(rank + 1)), axis(rank + 2), axis(rank + 1))
            weight = w.view(g, p, *inner, shape=(*w.shape[2:-2], shape.together, columns))
        else:
            weight = w.view(g, p, *(axis(i) for i in range(rank + 2)), shape=(*w.shape[2:-1], columns))
        b.matmul(block, source, weight, nm=rank, nk=len(weight.shape) - 1)
        channel = g * shape.features + p * tiling.panel + axis(rank)
        if excess is not None:
            b.sub(block, block, View(excess.name, (*map(axis, range(rank)), 0), block.shape))
        finish(block, (n, *(s + axis(i) for i, s in enumerate(starts)), channel))

    if per_part == 1:
        panel(first)
        return
    extent = per_part if panels_ % per_part == 0 else dmin(per_part, panels_ - first)
    with b.loop("q", extent) as q:
        panel(first + q)


def _excess(
    b: ProgramBuilder, shape: ConvShape, tiling: ConvTiling, source: View, dtype: DType, counts: Sequence[Dim]
) -> Buffer:
    """The sums of every window times the weight's zero, one for all channels: a product with a column of it."""
    rank = len(shape.axes)
    sums = b.tile("excess", accumulator_dtype(shape.dtype), (*tiling.block, 1), "L0C")
    taps = [int(e) for e in source.shape[rank:]]  # type: ignore[arg-type]
    column = b.tile("zeros", dtype, (*taps[:-1], 1, taps[-1]), "L1")
    b.expands(column.whole(), shape.weight_zero)
    last = len(taps)
    weight = column.view(*map(axis, range(last - 1)), axis(last), axis(last - 1), shape=(*taps, 1))
    b.matmul(sums.window((0,) * (rank + 1), (*counts, 1)), source, weight, nm=rank, nk=last)
    return sums


def _load_block(
    b: ProgramBuilder, shape: ConvShape, block: View, tile: Buffer, view: View, outside: View | None
) -> None:
    """The input block with its surroundings."""
    if outside is None:
        b.load(block, view, pad=shape.pad_value)
        return
    # Read with two numbers around it, the block differs where it lies outside: by all bits.
    ones = b.tile("surroundings", shape.dtype, tile.shape, "L1").view(*block.index, shape=block.shape)
    b.load(block, view, pad=0)
    b.load(ones, view, pad=255 if shape.dtype.kind == "uint" else -1)
    b.instr("TXOR", ones, ones, block)
    b.instr("TAND", ones, ones, View(outside.base, (0,), block.shape))
    b.instr("TOR", block, block, ones)


def _input_block(
    b: ProgramBuilder, shape: ConvShape, tiling: ConvTiling, x: Buffer, n: Dim, g: Dim,
    starts: Sequence[Dim], counts: Sequence[Dim], outside: View | None,
) -> View:  # fmt: skip
    """The product's a: axes of the output block, then k axes, over the input or a padded copy of its block."""
    axes = shape.axes
    rank = len(axes)
    origin = [s * a.stride - a.before for s, a in zip(starts, axes, strict=True)]
    spans = [a.span(c) for a, c in zip(axes, counts, strict=True)]
    first = 1 if shape.plain else 0
    """Where the kernel axes stand among the k axes."""
    taps = [axis(i) * a.stride + axis(rank + first + i) * a.dilation for i, a in enumerate(axes)]
    channel = axis(rank) if shape.plain else axis(2 * rank)
    k_extents = (shape.channels, *shape.kernel) if shape.plain else (*shape.kernel, shape.channels)
    if shape.together > 1:
        k_extents = (*_grouped(shape), shape.together)
        if shape.plain:
            taps[-1] += axis(2 * rank) * (shape.together - 1) + axis(2 * rank + 1)
        else:
            channel = shape.together * channel + axis(2 * rank + 1)
    extents = (*counts, *k_extents)
    base = g * shape.channels
    if not any(a.padded for a in axes):
        spatial = [o + t for o, t in zip(origin, taps, strict=True)]
        index = (n, base + channel, *spatial) if shape.plain else (n, *spatial, base + channel)
        return x.view(*index, shape=extents)
    sizes = [int(a.span(s)) for a, s in zip(axes, tiling.block, strict=True)]  # type: ignore[arg-type]
    if shape.plain:
        t = b.tile("padded", shape.dtype, (shape.channels, *sizes), "L1")
        block = t.window((0,) * (rank + 1), (shape.channels, *spans))
        spatial = [o + axis(i + 1) for i, o in enumerate(origin)]
        _load_block(b, shape, block, t, x.view(n, base + axis(0), *spatial, shape=block.shape), outside)
        return t.view(channel, *taps, shape=extents)
    t = b.tile("padded", shape.dtype, (*sizes, shape.channels), "L1")
    block = t.window((0,) * (rank + 1), (*spans, shape.channels))
    spatial = [o + axis(i) for i, o in enumerate(origin)]
    _load_block(b, shape, block, t, x.view(n, *spatial, base + axis(rank), shape=block.shape), outside)
    return t.view(*taps, channel, shape=extents)
