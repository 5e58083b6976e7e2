"""Winograd's convolution: products of transformed input tiles, several outputs of each axis at once.

A block of the output is cut into tiles of `outputs` positions. Each input tile of outputs + taps - 1 positions an axis
is transformed to as many points, by sums alone; for each point one matrix product runs over the channels of all tiles;
sums of these are the outputs, from which bias and epilogue go on as in `conv_core`. F(4x4, 3x3) multiplies 36 numbers
where the sum over the window multiplies 144.

f16 and bf16 numbers are converted as they are read; everything on the way is f32.

Where things lie, for tiles T = T0 * T1 of a block:

    padded [positions of a row of tiles, axis 0][of the block, axis 1][channels of a part]
    x [points][T][channels]   transformed input, stays in L2
    y [points][T][panel]      products of one panel of output channels
    o [positions][positions][panel]

The weight lies packed as [panel][points0][points1][channels][NR]; it is transformed once, when it is packed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

from codegen.kernels.conv_core import ConvShape, Finish, extent_of, panel_width
from codegen.kernels.conv_geometry import Axis, even_block
from codegen.kernels.memory_paths import accumulator_dtype
from codegen.kernels.operands import NotLowerable
from codegen.kernels.tiling import Tiling, halvings
from codegen.targets.target import Target
from codegen.tile.build import Buffer, ProgramBuilder
from codegen.tile.ir import View, axis
from tensor_types.cook_toom import Scheme, cook_toom
from tensor_types.dims import Dim, ceildiv, dmin
from tensor_types.dtypes import F32
from tensor_types.formats import Format, Permute, Split, Transformed

_PART = 32
"""Channels that are transformed together: what a row of tiles needs of them stays in L1."""
_SKEW = 16
"""Further elements of a row of x, so that rows of many channels do not fall on the same sets of a cache."""

_OUTPUTS = {1: 1, 2: 5, 3: 4, 4: 5, 5: 4, 6: 3, 7: 2}
"""Outputs of a tile by taps of the window: 6 points where these save half of the products, 8 for longer windows."""
_TILES, _TILES_OF_A_LINE = 16, 32
"""Tiles of a block: rows enough that weights from L3 keep up, few enough that their points stay in L2."""
_MOST_DILATION = 128
"""A block has as many tiles at least: more of them leave L2."""
_USUAL = (32, 64)
"""Output rows and columns where they are known at run time only."""
_PARALLEL = 4
"""Grid indices that are wanted at least."""
_FEATURES_OF_A_PART = 128
"""Output channels over which the transform of the input is worth repeating."""
_CYCLES_OF_A_POINT = 3
"""For each axis, of the sums that make a vector of points, and of those that a vector of products goes into: with loads
and stores, measured on Zen 3 at 32 to 256 channels."""
_PRODUCTS = 1.2
"""Time of products of a few rows by that of the peak."""
_GAIN = 0.95
"""Share of the direct time below which the estimate is believed. Measured on Zen 3 for 3x3 kernels: the times cross at
8 channels and 28 x 28 positions, at 16 channels and 10 x 10; weights of 512 channels cost more than 7 x 7 positions
gain."""

Source = Callable[[int], View]


@dataclass(frozen=True)
class WinogradTiling(Tiling, kind="winograd", place="host"):
    """`outputs` of a tile along each axis and `tiles` of a block; `panel` output channels NR, `split` parts of the
    panels in the grid."""

    kept = frozenset(("outputs",))
    outputs: tuple[int, ...]
    tiles: tuple[int, ...]
    panel: int
    split: int


def winograd_tilings(shape: ConvShape, target: Target) -> Iterator[WinogradTiling]:
    """Tilings for a host by falling preference; none where there is no scheme."""
    if not is_possible(shape, target):
        return
    preferred = _preferred(shape, target)
    for tiles in halvings(max(preferred.tiles)):
        yield replace(preferred, tiles=tuple(min(n, tiles) for n in preferred.tiles))


def is_possible(shape: ConvShape, target: Target) -> bool:
    """True if there is a scheme for the convolution."""
    if target.explicit_memory or shape.plain or shape.groups > 1 or len(shape.axes) > 2:
        return False
    if accumulator_dtype(shape.dtype) != F32:
        return False
    if any(a.stride > 1 or a.kernel not in _OUTPUTS for a in shape.axes) or max(shape.kernel) == 1:
        return False
    if all(a.dilation == 1 for a in shape.axes):
        return True
    return len(shape.axes) == 1 and shape.axes[0].dilation <= _MOST_DILATION


def _usual_outputs(shape: ConvShape) -> list[int]:
    return [
        max(a.out, 1) if isinstance(a.out, int) else d
        for a, d in zip(shape.axes, _USUAL[2 - len(shape.axes) :], strict=True)
    ]


def _preferred(shape: ConvShape, target: Target) -> WinogradTiling:
    lanes = target.vector_bytes // F32.bytes
    outputs = tuple(_OUTPUTS[a.kernel] for a in shape.axes)
    totals = [
        -(-n // (m * a.dilation)) * a.dilation
        for n, m, a in zip(_usual_outputs(shape), outputs, shape.axes, strict=True)
    ]
    most = _TILES if len(totals) == 2 else _TILES_OF_A_LINE
    tiles = [1] * len(totals)
    for i in reversed(range(len(totals))):
        tiles[i] = even_block(totals[i], max(1, most // prod(tiles[i + 1 :])))
    if shape.axes[-1].dilation > 1:
        tiles = [most]
    blocks = prod(-(-n // size) for n, size in zip(totals, tiles, strict=True))
    blocks *= shape.batch if isinstance(shape.batch, int) else 1
    panel = panel_width(shape.features, 2 * lanes, lanes)
    # Every part of the panels transforms the input for itself.
    split = min(-(-_PARALLEL // max(blocks, 1)), max(1, shape.features // _FEATURES_OF_A_PART))
    return WinogradTiling(outputs, tuple(tiles), panel, split)


def is_faster(shape: ConvShape, target: Target) -> bool:
    """True if there is a scheme and the estimate promises a gain over the sum over the window."""
    if not is_possible(shape, target):
        return False
    tiling = _preferred(shape, target)
    lanes = target.vector_bytes // F32.bytes
    rate = target.cube.rate(F32)
    direct_rate = target.cube.rate(shape.dtype) or rate
    usual = _usual_outputs(shape)
    positions = shape.batch if isinstance(shape.batch, int) else 1
    runs = (n * a.dilation for n, a in zip(tiling.outputs, shape.axes, strict=True))
    tiles = prod(-(-n // r) * a.dilation for n, r, a in zip(usual, runs, shape.axes, strict=True)) * positions
    positions *= prod(usual)
    axes = sum(kernel > 1 for kernel in shape.kernel)
    points, taps = prod(s.points for s in schemes(shape, tiling)), prod(shape.kernel)
    features = -(-shape.features // lanes) * lanes
    channels = -(-shape.channels // lanes) * lanes
    weights = shape.channels * features / target.ddr_read
    direct = max(positions * taps * shape.channels * features / direct_rate, taps * weights * shape.dtype.bytes)
    sums = tiles * points * (channels * tiling.split + features) // lanes * axes * _CYCLES_OF_A_POINT
    products = max(tiles * points * shape.channels * features / rate * _PRODUCTS, points * weights * F32.bytes)
    return sums + products < _GAIN * direct


def schemes(shape: ConvShape, tiling: WinogradTiling) -> tuple[Scheme, ...]:
    """The scheme of each axis. NotLowerable if an axis has none of so many outputs."""
    try:
        return tuple(cook_toom(m, a.kernel) for m, a in zip(tiling.outputs, shape.axes, strict=True))
    except ValueError as error:
        raise NotLowerable(f"`{tiling}`: there is no {error}") from error


def transformed_packing(shape: ConvShape, tiling: WinogradTiling) -> tuple[tuple[int, ...], Format]:
    """(permute, packing) of the ONNX weight [M, C, kernel..] to [panel][points..][C][NR]."""
    rank = len(shape.axes)
    order = Permute((rank + 1, *range(rank + 1), rank + 2))
    # Last, so that few numbers are moved and the many that come of them already lie in their order.
    steps = (Transformed(i + 1, m) for i, m in enumerate(tiling.outputs))
    return (*range(2, rank + 2), 1, 0), Format((Split(rank + 1, tiling.panel), order, *steps))


def transformed_shape(shape: ConvShape, tiling: WinogradTiling) -> tuple[int, ...]:
    """Shape of the packed weight."""
    points = (s.points for s in schemes(shape, tiling))
    return (-(-shape.features // tiling.panel), *points, shape.channels, tiling.panel)


class Winograd:
    """Emits one convolution: `emit` declares the grid and emits every block; `finish` consumes and stores the results
    of each panel. x is [batch, axes.., channels], channels-last; one or two axes with stride 1 and no dilation."""

    def __init__(
        self, b: ProgramBuilder, shape: ConvShape, tiling: WinogradTiling, x: Buffer, w: Buffer, finish: Finish
    ) -> None:
        self.b, self.shape, self.tiling, self.x, self.w, self.finish = b, shape, tiling, x, w, finish
        self.rank = len(shape.axes)
        one = cook_toom(1, 1)
        lone = (Axis(1, 1, 1, 1, 1, 0, 0),) if self.rank == 1 else ()
        self.axes = (*lone, *shape.axes)
        """Two of them: a convolution of one axis has one of a single position before."""
        self.schemes = (*([one] if lone else []), *schemes(shape, tiling))
        self.tiles = (*([1] if lone else []), *tiling.tiles)
        self.points = prod(s.points for s in self.schemes)
        self.sums = 0

    def emit(self) -> None:
        b, shape, tiling = self.b, self.shape, self.tiling
        n: Dim = 0 if shape.batch == 1 else b.grid("n", shape.batch)
        starts, counts = self._grid()
        panels = -(-shape.features // tiling.panel)
        per_part = -(-panels // tiling.split)
        parts = -(-panels // per_part)
        first: Dim = 0 if parts == 1 else b.grid("p", parts) * per_part
        self._declare()
        self._transform_input(n, starts)
        if per_part == 1:
            self._panel(first, panels, n, starts, counts)
            return
        extent = per_part if panels % per_part == 0 else dmin(per_part, panels - first)
        with b.loop("q", extent) as q:
            self._panel(first + q, panels, n, starts, counts)

    def _grid(self) -> tuple[list[Dim], list[Dim]]:
        """Declares the grid of the positions: first output and number of outputs of a block along each axis."""
        b = self.b
        starts: list[Dim] = []
        counts: list[Dim] = []
        for i, (a, s, tiles) in enumerate(zip(self.axes, self.schemes, self.tiles, strict=True)):
            block = tiles * s.outputs
            whole = isinstance(a.out, int) and a.out <= block
            start: Dim = 0 if whole else b.grid(f"o{i}", ceildiv(a.out, block)) * block
            starts.append(start)
            counts.append(a.out if whole else extent_of(block, start, a.out))
        return starts, counts

    def _tile_rows(self) -> int:
        """Rows of tiles that are transformed one after the other."""
        return self.tiles[0]

    def _part(self) -> int:
        return min(self.shape.channels, _PART)

    def _row(self) -> int:
        """Elements from one tile of x to the next."""
        return self.shape.channels + _SKEW

    def _declare(self) -> None:
        b, panel = self.b, self.tiling.panel
        (_, across), (t0, t1) = self.schemes, self.tiles
        self.total = t0 * t1
        self.part = self._part()
        self.width = t1 * across.outputs + across.taps - 1
        self.padded = b.tile("padded", self.shape.dtype, (self.schemes[0].points, self.width, self.part))
        self.columns = b.tile("columns", F32, (self.schemes[0].points, self.width, self.part))
        self.inputs = b.tile("x", F32, (self.points, self.total, self._row()))
        self.products = b.tile("y", F32, (self.points, self.total, panel), "L0C")
        down, across = self.schemes
        self.rows = b.tile("rows", F32, (down.outputs, across.points, t1, panel))
        self.outputs = b.tile("o", F32, (t0 * down.outputs, t1 * across.outputs, panel))

    # Input
    def _transform_input(self, n: Dim, starts: Sequence[Dim]) -> None:
        channels, part = self.shape.channels, self.part
        with self.b.loop("t", self._tile_rows()) as t:
            if part == channels:
                self._transform_part(n, starts, t, 0, channels)
            else:
                with self.b.loop("c", -(-channels // part)) as c:
                    self._transform_part(n, starts, t, c * part, extent_of(part, c * part, channels))

    def _transform_part(self, n: Dim, starts: Sequence[Dim], t: Dim, channel: Dim, count: Dim) -> None:
        b = self.b
        (down, across), (_, t1), width = self.schemes, self.tiles, self.width
        row = starts[0] + t * down.outputs - self.axes[0].before
        column = starts[1] - self.axes[1].before
        window = (down.points, width, count)
        spatial = (row + axis(0), column + axis(1))[2 - self.rank :]
        source = self.x.view(n, *spatial, channel + axis(2), shape=window)
        b.load(self.padded.window((0, 0, 0), window), source, pad=0)
        columns = self.columns
        if down.points == 1:
            columns = self.padded
        else:
            self._inputs(
                down, (width, count),
                lambda k: self.padded.view(k, axis(0), axis(1), shape=(width, count)),
                lambda p: self.columns.view(p, axis(0), axis(1), shape=(width, count)),
            )  # fmt: skip
        extents = (down.points, count)
        with b.loop("s", t1) as s:
            self._inputs(
                across, extents,
                lambda k: columns.view(axis(0), across.outputs * s + k, axis(1), shape=extents),
                lambda q: self.inputs.view(across.points * axis(0) + q, t * t1 + s, channel + axis(1), shape=extents),
            )  # fmt: skip

    # Products and outputs
    def _panel(self, p: Dim, panels: int, n: Dim, starts: Sequence[Dim], counts: Sequence[Dim]) -> None:
        b, shape, panel = self.b, self.shape, self.tiling.panel
        columns: Dim = panel
        if shape.features % panel:
            columns = shape.features if panels == 1 else dmin(panel, shape.features - panel * p)
        down, across = self.schemes
        with b.loop("i", down.points) as i, b.loop("j", across.points) as j:
            at = across.points * i + j
            block = self.products.view(at, axis(0), axis(1), shape=(self.total, columns))
            source = self.inputs.view(at, axis(0), axis(1), shape=(self.total, shape.channels))
            point = (i, j)[2 - self.rank :]
            weight = self.w.view(p, *point, axis(0), axis(1), shape=(shape.channels, columns))
            b.matmul(block, source, weight, nm=1, nk=1)
        self._results(n, starts, counts, columns, p * panel)

    def _results(self, n: Dim, starts: Sequence[Dim], counts: Sequence[Dim], columns: Dim, first: Dim) -> None:
        """From the products of a panel, whose first output channel is `first`, to what `finish` takes."""
        with self.b.loop("u", self.tiles[0]) as t:
            self._transform_output(t, columns)
        kept = counts[2 - self.rank :]
        inner = tuple(axis(i) for i in range(self.rank + 1))
        place = (0,) * (2 - self.rank)
        result = self.outputs.view(*place, *inner, shape=(*kept, columns))
        channel = first + axis(self.rank)
        positions = (s + axis(i) for i, s in enumerate(starts[2 - self.rank :]))
        self.finish(result, (n, *positions, channel))

    def _transform_output(self, t: Dim, columns: Dim) -> None:
        (down, across), (_, t1) = self.schemes, self.tiles
        wide = (across.points, t1, columns)

        def product(k: int) -> View:
            return self.products.view(across.points * k + axis(0), t * t1 + axis(1), axis(2), shape=wide)

        if down.points > 1:
            self._outputs(down, wide, product,
                          lambda i: self.rows.view(i, axis(0), axis(1), axis(2), shape=wide))  # fmt: skip
        extents = (down.outputs, columns)
        with self.b.loop("v", t1) as v:

            def row(k: int) -> View:
                if down.points == 1:
                    return self.products.view(k + axis(0), t * t1 + v, axis(1), shape=extents)
                return self.rows.view(axis(0), k, v, axis(1), shape=extents)

            self._outputs(
                across, extents, row,
                lambda j: self.outputs.view(
                    down.outputs * t + axis(0), across.outputs * v + j, axis(1), shape=extents),
            )  # fmt: skip

    # Sums
    def _inputs(self, scheme: Scheme, extents: Sequence[Dim], source: Source, result: Source) -> None:
        """result(p) = sum over k of B[p][k] source(k); points of opposite sign share their sums over even and odd k."""
        last = self.part
        if scheme.points == 1:
            self.b.mov(result(0), source(0))
            return
        source = self._converted(scheme.points, extents, source)
        for p in (0, scheme.points - 1):
            self._sum(result(p), [(c, source(k)) for k, c in enumerate(scheme.inputs[p])], last)
        for p in scheme.pairs:
            terms = list(enumerate(scheme.inputs[p]))
            even = self._sum(self._fresh(extents, last), [(c, source(k)) for k, c in terms if k % 2 == 0], last)
            odd = [(c, source(k)) for k, c in terms if k % 2]
            factor = min(abs(c) for c, _ in odd if c)
            part = self._sum(self._fresh(extents, last), [(c / factor, v) for c, v in odd], last)
            self._sum(result(p), [(Fraction(1), even), (factor, part)], last)
            self._sum(result(p + 1), [(Fraction(1), even), (-factor, part)], last)

    def _converted(self, count: int, extents: Sequence[Dim], source: Source) -> Source:
        """The sources as f32."""
        if source(0).base != self.padded.name or self.padded.dtype == F32:
            return source
        wide = [self._fresh(extents, self.part) for _ in range(count)]
        for k, view in enumerate(wide):
            self.b.cvt(view, source(k))
        return wide.__getitem__

    def _outputs(self, scheme: Scheme, extents: Sequence[Dim], source: Source, result: Source) -> None:
        """result(i) = sum over p of A[i][p] source(p); points of opposite sign enter as their sum or difference."""
        last = self.tiling.panel
        if scheme.points == 1:
            self.b.mov(result(0), source(0))
            return
        halves = []
        for p in scheme.pairs:
            both = [self._fresh(extents, last), self._fresh(extents, last)]
            for sign, half in zip((1, -1), both, strict=True):
                self._sum(half, [(Fraction(1), source(p)), (Fraction(sign), source(p + 1))], last)
            halves.append((p, both))
        for i, row in enumerate(scheme.sums):
            ends = [(row[p], source(p)) for p in (0, scheme.points - 1)]
            self._sum(result(i), [*ends, *((row[p], both[i % 2]) for p, both in halves)], last)

    def _fresh(self, extents: Sequence[Dim], last: int) -> View:
        """A sum on the way; it stays in registers. `last` bounds the innermost extent."""
        self.sums += 1
        sizes = [n for n in extents[:-1] if isinstance(n, int)]
        tile = self.b.tile(f"s{self.sums}", F32, (*sizes, last))
        return tile.window((0,) * len(extents), extents)

    def _sum(self, result: View, terms: Sequence[tuple[Fraction, View]], last: int) -> View:
        """result = sum of factor * view over the terms; gives the result."""
        b = self.b
        terms = sorted(((c, v) for c, v in terms if c), key=lambda term: term[0] != 1)
        (factor, held), *others = terms
        if factor != 1 or not others:
            into = self._fresh(result.shape, last) if others else result
            b.mul(into, held, float(factor))
            held = into
        for number, (c, view) in enumerate(others, 1):
            into = result if number == len(others) else self._fresh(result.shape, last)
            if abs(c) == 1:
                (b.add if c == 1 else b.sub)(into, held, view)
            else:
                b.fma(into, view, float(c), held)
            held = into
        return held
