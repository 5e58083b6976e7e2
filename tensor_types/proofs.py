"""Proofs of a <= b over dimension expressions: sound, not complete.

>>> from tensor_types.dims import dim
>>> prove_le(dim("m"), 7, {"m": (0, 7)})
True
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TypeAlias

from tensor_types.dims import OPERATIONS, Atom, Dim, Monomial, make, mod, named, names, terms
from tensor_types.effort import TooMuchWork, effort, exhausted, spend

_PROOF_STEPS = 200_000
"""Most steps of one proof; one that needs more counts as not found."""

Range: TypeAlias = tuple[Dim, Dim | None]
"""Inclusive lowest and highest value of a dim; either may be an expression of other dims, None is unbounded."""
_Ends: TypeAlias = tuple[int | None, int | None]


def prove_le(a: Dim, b: Dim, ranges: Mapping[str, Range]) -> bool:
    """True only if a <= b for all dims in their ranges (a dim without a range is >= 0)."""
    return Proofs(ranges).le(a, b)


def settle(value: Dim, ranges: Mapping[str, Range]) -> Dim:
    """The value with every minimum and maximum, inner ones first, that the ranges decide replaced by what it is.

    >>> from tensor_types.dims import dim, dmin
    >>> str(settle(dmin(1, dim("n")) + dim("n"), {"n": (1, None)}))
    'n + 1'
    """
    total: Dim = 0
    for monomial, factor in terms(value):
        part: Dim = factor
        for atom in monomial:
            part = part * (named(atom) if atom.kind == "dim" else _settled(atom, ranges))
        total = total + part
    return total


def _settled(atom: Atom, ranges: Mapping[str, Range]) -> Dim:
    args = [settle(a, ranges) for a in atom.args]
    if atom.kind in ("min", "max"):
        for least in args:
            pairs = [(least, a) if atom.kind == "min" else (a, least) for a in args]
            if all(prove_le(a, b, ranges) for a, b in pairs):
                return least
    return OPERATIONS[atom.kind](*args)


class Proofs:
    """Proofs under ranges that do not change: what is found out of them is found out once."""

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self._ranges = ranges
        self._known_bounds: dict[tuple[Atom, int], _Ends] = {}

    def le(self, a: Dim, b: Dim) -> bool:
        """True only if a <= b for all dims in their ranges (a dim without a range is >= 0)."""
        if isinstance(a, int) and isinstance(b, int):
            return a <= b
        try:
            with effort(_PROOF_STEPS):
                return self._nonneg(b - a, 24, [2000])
        except TooMuchWork:
            if exhausted():
                raise  # not this proof alone, but all that the caller allows
            return False

    @cached_property
    def _depends(self) -> frozenset[str]:
        """The names that an end of a range depends on."""
        ends = (end for pair in self._ranges.values() for end in pair if end is not None)
        return frozenset().union(*map(names, ends))

    def _bounds_of(self, atom: Atom, depth: int) -> _Ends:
        key = (atom, depth)
        found = self._known_bounds.get(key)
        if found is None:
            found = self._known_bounds[key] = self._atom_bounds(atom, depth)
        return found

    def _low_high(self, value: Dim, depth: int) -> _Ends:
        """Constant bounds by interval arithmetic; None is unbounded."""
        spend(1)
        low: int | None = 0
        high: int | None = 0
        for monomial, factor in terms(value):
            lo: int | None = 1
            hi: int | None = 1
            for atom in monomial:
                alo, ahi = self._bounds_of(atom, depth)
                if lo == hi == 1:
                    lo, hi = alo, ahi  # one end may be known without the other
                elif lo is not None and alo is not None and lo >= 0 and alo >= 0:
                    lo, hi = lo * alo, None if hi is None or ahi is None else hi * ahi
                elif None not in (lo, hi, alo, ahi):
                    corners = [x * y for x in (lo, hi) for y in (alo, ahi)]  # type: ignore[operator]
                    lo, hi = min(corners), max(corners)
                else:
                    lo = hi = None
            if factor < 0:
                lo, hi = hi, lo
            low = None if low is None or lo is None else low + factor * lo
            high = None if high is None or hi is None else high + factor * hi
        return low, high

    def _atom_bounds(self, atom: Atom, depth: int) -> _Ends:
        if depth <= 0:
            return None, None
        if atom.kind == "dim":
            first, last = self._ranges.get(atom.name, (0, None))
            low = self._low_high(first, depth - 1)[0]
            return low, None if last is None else self._low_high(last, depth - 1)[1]
        bounds = [self._low_high(a, depth - 1) for a in atom.args]
        lows, highs = [b[0] for b in bounds], [b[1] for b in bounds]
        if atom.kind == "min":
            known = [h for h in highs if h is not None]
            return (None if None in lows else min(lows)), (min(known) if known else None)  # type: ignore[type-var]
        if atom.kind == "max":
            known = [v for v in lows if v is not None]
            return (max(known) if known else None), (None if None in highs else max(highs))  # type: ignore[type-var]
        divisor = atom.args[1]
        if atom.kind == "mod":
            top = highs[1]
            inner = highs[0] if lows[0] is not None and lows[0] >= 0 else None
            tops = [t for t in (None if top is None else top - 1, inner) if t is not None]
            return 0, min(tops) if tops else None
        if isinstance(divisor, int):
            return (
                None if lows[0] is None else lows[0] // divisor,
                None if highs[0] is None else highs[0] // divisor,
            )
        if lows[0] is not None and lows[0] >= 0:
            return 0, highs[0]
        return None, None

    def _nonneg(self, value: Dim, depth: int, steps: list[int]) -> bool:
        """value >= 0 for all dims in their ranges; `steps` counts down over the whole proof, which may branch."""
        low = self._low_high(value, 6)[0]
        if low is not None and low >= 0:
            return True
        steps[0] -= 1
        if depth <= 0 or steps[0] < 0 or isinstance(value, int) or len(value.terms) > 1024:
            return False
        ranges, depends = self._ranges, self._depends
        linear = {m[0]: f for m, f in value.terms if len(m) == 1}
        seen_elsewhere = {a for m, _ in value.terms if len(m) > 1 for a in m}
        # The extreme of a linear expression lies at an end of a dim's range. Dims that no other range depends on go
        # first: nothing is lost with them, and an end may cancel a min or max as a whole.
        inside = {n for m, _ in value.terms for a in m if a.kind != "dim" for n in a.names}
        movable = [a for a in linear if a.kind == "dim" and a.name in ranges and a.name not in inside]
        movable = sorted((a for a in movable if a not in seen_elsewhere), key=lambda a: (a.name in depends, a.name))
        for atom in movable:
            end = ranges[atom.name][linear[atom] < 0]
            if end is not None and atom.name not in depends:
                return self._nonneg(_replace(value, atom, end), depth - 1, steps)
        # -k*min(x, y) >= -k*x, so either bound suffices; +k*min(x, y) needs both. max is the mirror image. Those that
        # need both go first: which bound suffices may differ from one to the other.
        extremes = {
            atom: (factor < 0) == (atom.kind == "min")
            for atom, factor in linear.items()
            if atom.kind in ("min", "max") and atom not in seen_elsewhere
        }
        if extremes:
            atom = min(extremes, key=extremes.__getitem__)
            trials = (self._nonneg(_replace(value, atom, arg), depth - 1, steps) for arg in atom.args)
            return any(trials) if extremes[atom] else all(trials)
        for atom, factor in linear.items():
            if atom.kind == "floordiv" and atom not in seen_elsewhere and factor in (1, -1):
                # Both are equivalences: x//y <= r iff x <= r*y + y - 1, and -r <= x//y iff -r*y <= x.
                x, y = atom.args
                rest = _replace(value, atom, 0)
                exact = rest * y + x if factor > 0 else rest * y + y - 1 - x
                if self._nonneg(exact, depth - 1, steps):
                    return True
            if atom.kind == "floordiv" and isinstance(atom.args[1], int) and atom not in seen_elsewhere:
                divisor = atom.args[1]
                if factor % divisor:
                    return self._nonneg(value * divisor, depth - 1, steps)
                exact = named(atom) * factor
                return self._nonneg(
                    value - exact + (atom.args[0] - mod(atom.args[0], divisor)) * (factor // divisor),
                    depth - 1,
                    steps,
                )
        for atom in movable:
            end = ranges[atom.name][linear[atom] < 0]
            if end is not None and not (isinstance(end, int) and isinstance(ranges[atom.name][0], int)):
                return self._nonneg(_replace(value, atom, end), depth - 1, steps)
        # A product of a loop variable and another non-negative dim is monotone in the variable as well.
        for monomial, factor in value.terms:
            for atom in monomial:
                if len(monomial) < 2 or atom.kind != "dim" or atom.name not in ranges or atom.name in inside:
                    continue
                first, last = ranges[atom.name]
                group = [(m, f) for m, f in value.terms if atom in m]
                if any(m.count(atom) != 1 or (f < 0) != (factor < 0) for m, f in group):
                    continue
                end = first if factor > 0 else last
                if end is not None and all(
                    self._known_nonneg(make({tuple(x for x in m if x != atom): 1})) for m, _ in group
                ):
                    return self._nonneg(_replace(value, atom, end), depth - 1, steps)
        # Last, a remainder by its own bounds: what it shares with the rest of the value is lost.
        for atom, factor in linear.items():
            if atom.kind == "mod" and atom not in seen_elsewhere:
                end = 0 if factor > 0 else atom.args[1] - 1
                return self._nonneg(_replace(value, atom, end), depth - 1, steps)
        return False

    def _known_nonneg(self, value: Dim) -> bool:
        low = self._low_high(value, 6)[0]
        return low is not None and low >= 0


def _replace(value: Dim, old: Atom, new: Dim) -> Dim:
    """The value with every top-level occurrence of an atom replaced."""
    total: Dim = 0
    kept: dict[Monomial, int] = {}
    for monomial, factor in terms(value):
        if old not in monomial:
            kept[monomial] = factor
            continue
        part: Dim = factor
        for atom in monomial:
            part = part * (new if atom == old else named(atom))
        total = total + part
    return make(kept) + total
