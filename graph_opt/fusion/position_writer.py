"""Arithmetic on positions: what rules need that write operators about positions as arithmetic on counted axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graph_opt.ir import Value
from graph_opt.ir.core import AttrValue
from graph_opt.ir.patterns import Match
from graph_opt.ir.rewriter import Rewriter
from tensor_types.dtypes import I64

NOWHERE = np.iinfo(np.int64).max
"""An index that no axis has."""


class Writer:
    """Inserts operators before the matched one."""

    def __init__(self, rewriter: Rewriter, match: Match) -> None:
        self.rewriter, self.match = rewriter, match
        self.name = match.root.name or match.root.output.name

    def __call__(self, operator: str, *inputs: Value, **attrs: AttrValue) -> Value:
        return self.match.insert(self.rewriter, operator, inputs, attrs)

    def number(self, value: int | Sequence[int], word: str = "number") -> Value:
        return self.rewriter.constant(np.array(value, np.int64), f"{self.name}/{word}")

    def extent(self, x: Value, axis: int) -> Value:
        """The extent of an axis as i64 []."""
        size = (x.shape or ())[axis]
        if isinstance(size, int):
            return self.number(size)
        rank = len(x.shape or ())
        return self("Squeeze", self("Shape", x, start=axis % rank, end=axis % rank + 1))

    def positions(self, x: Value, axis: int) -> Value:
        """0, 1, 2 ... along an axis of x, i64 [extent]."""
        return self("Range", self.number(0), self.extent(x, axis), self.number(1))

    def as_i64(self, x: Value) -> Value:
        return x if x.dtype == I64 else self("Cast", x, to=I64.onnx)

    def diagonals(self, x: Value) -> Value:
        """column - row for the last two axes of x, i64 [rows, columns]."""
        rows = self("Unsqueeze", self.positions(x, -2), self.number([1]))
        return self("Sub", self.positions(x, -1), rows)

    def wrapped(self, index: Value, extent: Value) -> Value:
        """The index, counted from the end where it is negative."""
        return self("Where", self("Less", index, self.number(0)), self("Add", index, extent), index)
