"""Writes Einsum of one or two operands as sums, transposes and a product.

    ij->j            ReduceSum, Transpose
    bij,bjk->bik     MatMul, whatever the order of the labels; several labels of one kind become one axis
    bi,bj->bij       Mul, when nothing is summed
    bij,bij->b       ReduceSum(Mul), when every label that is left is in both operands

Rules
1. Operands are floats, an operand names a label once, and a label has one extent.
2. An axis that stands for several labels has an extent that a Reshape can say with numbers, 0 and one -1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir import Value
from graph_opt.ir.patterns import Declined, Match, any_value, op, optional
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.rules import Rule, RulePass
from graph_opt.simplify.shape_targets import reshape_target
from tensor_types.dims import Dim, product


def labels_of(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The labels of every operand's axes and of the result's; axes of an ellipsis are digits, 0 for the last one."""
    equation = re.sub(r"\s", "", equation)
    left, arrow, right = equation.partition("->")
    dots = [rank - len(term.replace("...", "")) for term, rank in zip(left.split(","), ranks, strict=True)]

    def spelled(term: str, count: int) -> str:
        return term.replace("...", "".join(str(i) for i in reversed(range(count))))

    if not arrow:
        once = sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1)
        right = "..." * ("..." in left) + "".join(once)
    terms = [spelled(term, count) for term, count in zip(left.split(","), dots, strict=True)]
    return terms, spelled(right, max(dots))


@dataclass
class _Writer:
    """Inserts the operators before the Einsum."""

    rewriter: Rewriter
    match: Match

    def insert(self, operator: str, *inputs: Value, **attrs: int | tuple[int, ...]) -> Value:
        return self.match.insert(self.rewriter, operator, inputs, attrs)

    def ints(self, numbers: Sequence[int]) -> Value:
        return self.rewriter.constant(np.array(numbers, np.int64), f"{self.match.root.name}/numbers")

    def summed(self, x: Value, axes: Sequence[int]) -> Value:
        return self.insert("ReduceSum", x, self.ints(axes), keepdims=0) if axes else x

    def ordered(self, x: Value, labels: str, wanted: str) -> Value:
        """x, whose axes are `labels`, with the axes `wanted`: the others are summed."""
        x = self.summed(x, [i for i, c in enumerate(labels) if c not in wanted])
        kept = [c for c in labels if c in wanted]
        perm = tuple(kept.index(c) for c in wanted)
        return x if perm == tuple(range(len(perm))) else self.insert("Transpose", x, perm=perm)

    def spread(self, x: Value, axes: Sequence[int]) -> Value:
        return self.insert("Unsqueeze", x, self.ints(axes)) if axes else x

    def reshaped(self, x: Value, shape: Sequence[Dim]) -> Value:
        target = reshape_target(x.shape or (), shape)
        assert target is not None
        return self.insert("Reshape", x, self.ints(target)) if tuple(shape) != x.shape else x


def _extents(operands: Sequence[Value], terms: Sequence[str]) -> dict[str, Dim] | Declined:
    found: dict[str, Dim] = {}
    for value, term in zip(operands, terms, strict=True):
        if value.shape is None or not value.dtype.is_float:
            return Declined("an operand of no known shape, or not of floats")
        if len(set(term)) < len(term):
            return Declined("a diagonal")
        for label, extent in zip(term, value.shape, strict=True):
            if found.setdefault(label, extent) != extent:
                return Declined("an axis may broadcast")
    return found


def _expand(rewriter: Rewriter, match: Match) -> Declined | None:
    operands = [match["x"], *([match["y"]] if match.get("y") else [])]
    if any(v.shape is None for v in operands):
        return Declined("an operand of unknown shape")
    terms, result = labels_of(str(match.root.attrs["equation"]), [v.rank for v in operands])
    extents = _extents(operands, terms)
    if isinstance(extents, Declined):
        return extents
    write = _Writer(rewriter, match)
    if len(operands) == 1:
        made, order = write.ordered(operands[0], terms[0], "".join(c for c in terms[0] if c in result)), terms[0]
    else:
        x, y = terms
        both = [c for c in x if c in y]
        batch, inner = ("".join(c for c in both if (c in result) == kept) for kept in (True, False))
        left, right = ("".join(c for c in term if c in result and c not in both) for term in terms)
        order = batch + left + right
        if inner and (left or right):
            outer, rows_, inner_, columns_ = ([extents[c] for c in part] for part in (batch, left, inner, right))
            # Without a batch a product takes any number of axes on its left as they are.
            merged_rows = [product(rows_)] if batch or not left else rows_
            merged = [
                [*outer, *merged_rows, product(inner_)],
                [*outer, product(inner_), product(columns_)],
                [*outer, *merged_rows, product(columns_)],
            ]
            apart = [outer + rows_ + inner_, outer + inner_ + columns_, outer + rows_ + columns_]
            ways = [(apart[0], merged[0]), (apart[1], merged[1]), (merged[2], apart[2])]
            if any(reshape_target(*way) is None for way in ways):
                return Declined("several run-time extents in one axis")
            rows = write.reshaped(write.ordered(operands[0], x, batch + left + inner), merged[0])
            columns = write.reshaped(write.ordered(operands[1], y, batch + inner + right), merged[1])
            made = write.reshaped(write.insert("MatMul", rows, columns), apart[2])
        else:
            first, second = (
                write.ordered(v, term, batch + own + inner)
                for v, term, own in zip(operands, terms, (left, right), strict=True)
            )
            at = len(batch)
            first = write.spread(first, [at + len(left) + i for i in range(len(right))])
            second = write.spread(second, [at + i for i in range(len(left))])
            made = write.summed(write.insert("Mul", first, second), [at + i for i in range(len(inner))])
    order = "".join(c for c in order if c in result)
    if order == result:
        match.become(rewriter, "Identity", [made])
    else:
        match.become(rewriter, "Transpose", [made], {"perm": tuple(order.index(c) for c in result)})
    return None


@dataclass(frozen=True)
class ExpandEinsum(RulePass):
    """See the module."""

    name: ClassVar[str] = "expand-einsum"
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("einsum", op("Einsum", any_value("x"), optional(any_value("y"))), _expand),
    )  # fmt: skip
    near: ClassVar[int] = 1
