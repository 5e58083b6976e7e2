"""Winograd's convolution along one axis whose taps are `dilation` apart: as many convolutions side by side.

Outputs `dilation` apart share inputs, so a tile is every so many positions, and the tiles of one run of dilation *
outputs positions begin at neighbouring ones. A block takes whole runs:

    padded [points][runs][dilation][channels of a part]
    o      [runs * outputs][dilation][panel]

and is stored by rows of `dilation` positions, of which the last ones may lie behind the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from codegen.kernels.conv_core import extent_of
from codegen.kernels.winograd_core import Winograd
from codegen.tile.ir import axis
from tensor_types.dims import Dim, ceildiv, dmin
from tensor_types.dtypes import F32


class DilatedWinograd(Winograd):
    """See the module; the convolution has one axis."""

    def _grid(self) -> tuple[list[Dim], list[Dim]]:
        a, outputs = self.axes[-1], self.schemes[-1].outputs
        self.side = a.dilation
        self.runs = max(1, self.tiling.tiles[0] // self.side)
        block = self.runs * outputs * self.side
        whole = isinstance(a.out, int) and a.out <= block
        start: Dim = 0 if whole else self.b.grid("o1", ceildiv(a.out, block)) * block
        return [start], [a.out if whole else dmin(block, a.out - start)]

    def _declare(self) -> None:
        b, panel, scheme = self.b, self.tiling.panel, self.schemes[-1]
        self.total = self.runs * self.side
        self.part = self._part()
        self.padded = b.tile("padded", self.shape.dtype, (scheme.points, self.runs, self.side, self.part))
        self.inputs = b.tile("x", F32, (scheme.points, self.total, self._row()))
        self.products = b.tile("y", F32, (scheme.points, self.total, panel), "L0C")
        self.outputs = b.tile("o", F32, (self.runs * scheme.outputs, self.side, panel))

    def _tile_rows(self) -> int:
        return 1

    def _transform_part(self, n: Dim, starts: Sequence[Dim], t: Dim, channel: Dim, count: Dim) -> None:
        scheme, side = self.schemes[-1], self.side
        window = (scheme.points, self.runs, side, count)
        at = starts[0] + side * axis(0) + side * scheme.outputs * axis(1) + axis(2) - self.axes[-1].before
        self.b.load(self.padded.window((0,) * 4, window), self.x.view(n, at, channel + axis(3), shape=window), pad=0)
        extents = window[1:]
        tile = side * axis(0) + axis(1)
        self._inputs(
            scheme, extents,
            lambda k: self.padded.view(k, axis(0), axis(1), axis(2), shape=extents),
            lambda p: self.inputs.view(p, tile, channel + axis(2), shape=extents),
        )  # fmt: skip

    def _results(self, n: Dim, starts: Sequence[Dim], counts: Sequence[Dim], columns: Dim, first: Dim) -> None:
        scheme, side = self.schemes[-1], self.side
        extents = (self.runs, side, columns)
        tile = side * axis(0) + axis(1)
        self._outputs(
            scheme, extents,
            lambda k: self.products.view(k, tile, axis(2), shape=extents),
            lambda j: self.outputs.view(scheme.outputs * axis(0) + j, axis(1), axis(2), shape=extents),
        )  # fmt: skip
        with self.b.loop("u", ceildiv(counts[0], side)) as u:
            count = extent_of(side, side * u, counts[0])
            row = self.outputs.view(u, axis(0), axis(1), shape=(count, columns))
            self.finish(row, (n, starts[0] + side * u + axis(0), first + axis(1)))
