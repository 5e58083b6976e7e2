"""RotaryEmbedding (Su et al. 2021) in terms of slices, products and a Concat, as the ONNX operator defines it.

    a, b = the halves of the rotated channels, or their even and odd ones (interleaved)
    y = Concat(a * cos - b * sin, a * sin + b * cos, the channels that are not rotated)

Rows of the caches are gathered once for all layers that use the same positions; the rest is one piecewise kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.arithmetic import Arithmetic
from graph_opt.ir.rewriter import Rewriter
from tensor_types.dims import Dim


@dataclass(frozen=True)
class ExpandRotary:
    """See the module.

    1. Head size and number of heads are static.
    2. There is one row of angles for each position of the input, or one for all: their extents are its own or 1.
    """

    name: ClassVar[str] = "expand-rotary"

    def apply(self, graph: Graph) -> bool:
        rewriter = Rewriter(graph)
        return any([_expand(rewriter, n) for n in list(graph.nodes) if n.op == "RotaryEmbedding"])


def _expand(rewriter: Rewriter, node: Node) -> bool:
    x, cos, sin = node.inputs[:3]
    heads = int(node.attrs.get("num_heads", 0))  # type: ignore[call-overload]
    if x is None or x.shape is None or any(v is None or v.shape is None for v in (cos, sin)):
        return False
    if not isinstance(x.shape[-1], int) or x.rank not in (3, 4) or (x.rank == 3 and not heads):
        return False
    places = (x.shape[0], x.shape[1] if x.rank == 3 else x.shape[2])
    if any(not _fits(cache, node.input(3), places) for cache in (cos, sin)):
        return False
    size = x.shape[-1] // heads if x.rank == 3 else x.shape[-1]
    width = int(node.attrs.get("rotary_embedding_dim", 0)) or size  # type: ignore[call-overload]
    write = _Writer(rewriter, node)
    flat = x.rank == 3
    if flat:
        x = write.grouped(x, 0, 0, heads, size)
    # Angles are the same for all heads: axis 2 of [B, S, H, D], axis 1 of [B, H, S, D].
    angles = [write.angles(index, width // 2, 2 if flat else 1) for index in (1, 2)]
    rotated = write.interleaved if node.attrs.get("interleaved", 0) else write.halves
    y = rotated(x, *angles, size, width)
    write.finish(write.grouped(y, 0, 0, heads * size) if flat else y)
    return True


def _fits(cache: Value | None, positions: Value | None, places: tuple[Dim, Dim]) -> bool:
    """True if rows of the cache, all of them or those at the positions, are one for each place."""
    rows = cache if positions is None else positions
    rank = 3 if positions is None else 2
    if cache is None or cache.shape is None or rows is None or rows.shape is None:
        return False
    if cache.rank != (rank if positions is None else 2) or rows.rank != rank:
        return False
    return all(n in (1, place) for n, place in zip(rows.shape, places, strict=False))


class _Writer(Arithmetic):
    """The steps of the expansion, written before the node."""

    def vector(self, *numbers: int) -> Value:
        return self.constant(np.array(numbers, np.int64), "parameters")

    def grouped(self, x: Value, *shape: int) -> Value:
        """The value in another shape; 0 keeps an extent."""
        return self("Reshape", x, self.vector(*shape))

    def slice(self, x: Value, start: int, end: int, axis: int) -> Value:
        """Positions start .. end-1 of an axis; all of them are the value itself."""
        assert x.shape is not None
        if (start, end) == (0, x.shape[axis]):
            return x
        return self("Slice", x, self.vector(start), self.vector(end), self.vector(axis))

    def angles(self, index: int, width: int, heads_axis: int) -> Value:
        """Cosines or sines [B, S, width] of input `index`, with an axis for the heads."""
        cache, positions = self.node.inputs[index], self.node.input(3)
        assert cache is not None
        rows = cache if positions is None else self("Gather", cache, positions, axis=0)
        return self("Unsqueeze", self.slice(rows, 0, width, 2), self.vector(heads_axis))

    def turned(self, a: Value, b: Value, cos: Value, sin: Value) -> tuple[Value, Value]:
        """The pairs (a, b) turned by their angles."""
        first = self("Sub", self("Mul", a, cos), self("Mul", b, sin))
        return first, self("Add", self("Mul", a, sin), self("Mul", b, cos))

    def halves(self, x: Value, cos: Value, sin: Value, size: int, width: int) -> Value:
        half = width // 2
        parts = self.turned(self.slice(x, 0, half, 3), self.slice(x, half, width, 3), cos, sin)
        rest = [self.slice(x, width, size, 3)] if width < size else []
        return self("Concat", *parts, *rest, axis=3)

    def interleaved(self, x: Value, cos: Value, sin: Value, size: int, width: int) -> Value:
        """Channels are pairs: [.., size] as [.., size/2, 2]. An odd rest is joined behind the pairs."""
        odd = size % 2
        channels = self.slice(x, 0, width, 3) if odd else x
        pairs = self.grouped(channels, 0, 0, 0, (width if odd else size) // 2, 2)
        first = self.slice(pairs, 0, width // 2, 3)
        cos, sin = (self("Unsqueeze", angle, self.vector(4)) for angle in (cos, sin))
        y = self("Concat", *self.turned(self.slice(first, 0, 1, 4), self.slice(first, 1, 2, 4), cos, sin), axis=4)
        if not odd and width < size:
            y = self("Concat", y, self.slice(pairs, width // 2, size // 2, 3), axis=3)
        y = self.grouped(y, 0, 0, 0, width if odd else size)
        return self("Concat", y, self.slice(x, width, size, 3), axis=3) if odd else y
