"""What an ONNX Attention node hides besides its mask, and its kernel does not, becomes part of the mask.

    nonpad_kv_seqlen   key j of batch b is seen if j < lengths[b]; then the last query stands at lengths[b] - 1. Without
                       past the kernel reads so many keys and no more, and the input stays
    windows            key j is seen from position i if i - left <= j <= i + right. Without right the kernel skips what
                       stands before the window, and the attribute stays, unless the lengths go
    a short mask       keys behind its end are hidden

The first query's position is the length of the past, or lengths[b] - queries, or 0.
"""

from __future__ import annotations

import numpy as np

from graph_opt.ir import Node, Value
from graph_opt.ir.arithmetic import Arithmetic
from graph_opt.ir.rewriter import Rewriter
from tensor_types.dims import Dim
from tensor_types.dtypes import BOOL, I64

_MASK, _PAST, _LENGTHS = 3, 4, 6


def complete_mask(rewriter: Rewriter, node: Node) -> None:
    """Leaves a node without windows and lengths where the kernel does not know them.

    Its mask, if it has one, is as long as the keys.
    """
    do = _Masks(rewriter, node)
    visible = do.visible()
    mask = node.input(_MASK)
    if mask is not None and mask.shape is not None and mask.shape[-1] != do.total:
        mask = do.padded(mask)
    if visible is not None and mask is not None:
        mask = do("And", visible, mask) if mask.dtype == BOOL else do("Where", visible, mask, do.hidden(mask))
    mask = visible if mask is None else mask
    if mask is not None:
        node.inputs.extend([None] * (_MASK + 1 - len(node.inputs)))
        node.set_input(_MASK, mask)


class _Masks(Arithmetic):
    """Steps written before the node. Q and K have 3 or 4 axes."""

    def __init__(self, rewriter: Rewriter, node: Node) -> None:
        super().__init__(rewriter, node)
        q, k, self.past, self.lengths = node.inputs[0], node.inputs[1], node.input(_PAST), node.input(_LENGTHS)
        assert q is not None and k is not None and k.shape is not None
        self.q, self.k = q, k
        fresh = k.shape[_length_axis(k)]
        self.total: Dim = fresh if self.past is None or self.past.shape is None else self.past.shape[2] + fresh

    def extent(self, value: Value, axis: int) -> Value:
        """The extent of an axis, i64[1]."""
        return self("Shape", value, start=axis, end=axis + 1)

    def keys(self) -> Value:
        """The number of keys, those of the past included, i64[1]."""
        fresh = self.extent(self.k, _length_axis(self.k))
        return fresh if self.past is None else self("Add", self.extent(self.past, 2), fresh)

    def counted(self, extent: Value) -> Value:
        """0, 1, .. up to an extent i64[1]."""
        return self("Range", 0, self("Squeeze", extent, self.constant(np.array([0]), "axis")), 1)

    def visible(self) -> Value | None:
        """bool, broadcasting to the scores, and the node loses windows and lengths; None if the kernel sees to both."""
        sides = ("left_window_size", "right_window_size")
        left, right = (int(self.node.attrs.get(side, -1)) for side in sides)  # type: ignore[call-overload]
        if right < 0 and (self.lengths is None or self.past is None):
            return None
        for side in sides:
            self.node.attrs.pop(side, None)
        queries = self.extent(self.q, _length_axis(self.q))
        columns = self.counted(self.keys())
        rows = self("Unsqueeze", self.counted(queries), self.constant(np.array([1]), "axes"))
        ends = None
        if self.lengths is not None:
            ends = self("Reshape", self.cast(self.lengths, I64), self.constant(np.array([-1, 1, 1, 1]), "column"))
            self.node.set_input(_LENGTHS, None)
        if self.past is not None:
            rows = self("Add", rows, self.extent(self.past, 2))
        elif ends is not None:
            rows = self("Add", rows, self("Sub", ends, queries))
        seen = []
        if ends is not None:
            seen.append(self("Less", columns, ends))
        if ends is not None and self.past is None and self.node.attrs.get("is_causal", 0):
            self.node.attrs["is_causal"] = 0
            seen.append(self("LessOrEqual", columns, rows))
        if left >= 0:
            seen.append(self("GreaterOrEqual", columns, self("Sub", rows, left)))
        if right >= 0:
            seen.append(self("LessOrEqual", columns, self("Add", rows, right)))
        result = seen[0]
        for other in seen[1:]:
            result = self("And", result, other)
        return result

    def hidden(self, mask: Value) -> Value:
        """What a mask says of a key that is not seen."""
        return self.rewriter.constant(np.asarray(False if mask.dtype == BOOL else -np.inf), "hidden", mask.dtype)

    def padded(self, mask: Value) -> Value:
        """The mask with its last axis as long as the keys."""
        missing = self("Sub", self.keys(), self.extent(mask, mask.rank - 1))
        none = self.constant(np.zeros(2 * mask.rank - 1, np.int64), "no_pads")
        return self("Pad", mask, self("Concat", none, missing, axis=0), self.hidden(mask))


def _length_axis(value: Value) -> int:
    """Of [B, S, H*D] or [B, H, S, D]."""
    return 1 if value.rank == 3 else 2
