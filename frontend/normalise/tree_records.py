"""Decision trees in one form for AI CPU and kernels, whatever comparisons and layout a model has.

A record goes to its left child if column <= threshold, else to the one behind it. A leaf is its own left child and its
threshold is infinite, so that a walk may go on there. Columns are the features with NaN as +inf (a missing value goes
right) and, from `features` on, the features with NaN as -inf (it goes left). Children of one record are neighbours; a
subtree with several parents has its top record repeated.

    x < t   is x <= (the number before t)          x > t, x >= t, x != t   are those with their children exchanged
    x == t  is x <= t, then x > (the number before t); a set of members is a chain of these
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

Child: TypeAlias = "int | Decision"
"""A decision, or its number from 0 up; a leaf by -1 - its number."""


@dataclass
class Decision:
    """One comparison of a model; `members` are those of the mode MEMBER."""

    feature: int
    mode: str
    threshold: float
    missing_is_true: bool
    true: Child
    false: Child
    members: Sequence[float] = ()


@dataclass
class Records:
    """Arrays in the making. `leaf` counts the leaf of a record, -1 for a decision."""

    features: int
    dtype: type
    columns: list[int] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    leaf: list[int] = field(default_factory=list)

    def _slot(self) -> int:
        self.columns.append(0)
        self.thresholds.append(np.inf)
        self.left.append(len(self.left))
        self.leaf.append(-1)
        return len(self.left) - 1

    def tree(self, root: Child, decisions: Sequence[Decision]) -> tuple[int, int]:
        """Adds a tree; its root's record and the most decisions on a way to a leaf. ValueError if it is no tree."""
        first = self._slot()
        pending: list[tuple[int, Child, int]] = [(first, root, 0)]
        deepest, limit = 0, sum(2 + 2 * len(d.members) for d in decisions)
        while pending:
            slot, what, depth = pending.pop()
            deepest = max(deepest, depth)
            if depth > limit:
                raise ValueError("a tree whose decisions lead back to themselves")
            if isinstance(what, int) and what < 0:
                self.leaf[slot] = -1 - what
                continue
            asked = decisions[what] if isinstance(what, int) else what
            column, threshold, children = self._plain(asked)
            self.columns[slot], self.thresholds[slot] = column, threshold
            self.left[slot] = self._slot()
            self._slot()
            pending += [(self.left[slot] + k, child, depth + 1) for k, child in enumerate(children)]
        return first, deepest

    def _plain(self, d: Decision) -> tuple[int, float, tuple[Child, Child]]:
        """A decision as column, threshold, and the children for column <= threshold and above it."""
        before = float(np.nextafter(self.dtype(d.threshold), self.dtype(-np.inf)))
        low, high = d.feature, d.feature + self.features  # a missing value goes right, or left
        if d.mode in ("LEQ", "LT"):
            return (high if d.missing_is_true else low), d.threshold if d.mode == "LEQ" else before, (d.true, d.false)
        if d.mode in ("GT", "GTE"):
            return (low if d.missing_is_true else high), d.threshold if d.mode == "GT" else before, (d.false, d.true)
        if d.mode == "NEQ":  # NaN differs from every number
            return self._plain(Decision(d.feature, "EQ", d.threshold, False, d.false, d.true))
        if d.mode == "EQ":
            upper = Decision(d.feature, "GT", before, d.missing_is_true, d.true, d.false)
            return (high if d.missing_is_true else low), d.threshold, (upper, d.false)
        if d.mode != "MEMBER":
            raise ValueError(f"the comparison {d.mode} is not known")
        if not d.members:
            return (high if d.missing_is_true else low), -np.inf, (d.false, d.false)
        first, *rest = d.members
        others: Child = d.false
        for value in reversed(rest):
            others = _either(d, value, others)
        return self._plain(_either(d, first, others))


def _either(d: Decision, value: float, others: Child) -> Decision:
    return Decision(d.feature, "EQ", value, d.missing_is_true, d.true, others)
