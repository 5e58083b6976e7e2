"""Bounds under which the machine's 64-bit arithmetic gives the integers that the verifier reasons about.

Native code adds, subtracts and multiplies modulo 2^64, so a polynomial whose value fits 64 bits comes out exact,
whatever happened on the way. What must fit is therefore every value that is compared, divided, taken the minimum or
maximum of, or used as an extent or index. For each such value `magnitude` gives an expression of the program's dims
that bounds it and grows with every dim. Their sum is `Bounds.size`: where it is at most LARGEST, all of them are exact,
with room for the small additions (a block less one, a distance to an end) that the code generator makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensor_types.dims import Dim, Expr, ceildiv
from tensor_types.effort import spend

LARGEST = 1 << 60
"""Most that `Bounds.size` may be, for a program's dims as they are bound."""


@dataclass(frozen=True)
class Bounds:
    """What has to be asked when a program's dims are bound: both are expressions of them that grow with each.

    size: bounds every index, extent, condition and part of one; above LARGEST the machine may compute another number.
    work: bounds the scalar operations of one launch.
    """

    size: Dim = 0
    work: Dim = 0


def magnitude(value: Dim, bounds: Mapping[str, Dim], divided: bool = False) -> Dim:
    """An expression that |value| does not exceed, made of the `bounds` of its names by +, * (and `//` if `divided`).

    1. A sum is bounded by the sum of its terms, a product by the product of its factors.
    2. floor(a / b) is bounded by |a|, as b >= 1; for an int b by ceil(|a| / b).
    3. a mod b lies below b; the minimum and the maximum of values do not exceed their sum.
    """
    if isinstance(value, int):
        return abs(value)
    total: Dim = 0
    spend(len(value.terms))
    for monomial, factor in value.terms:
        part: Dim = abs(factor)
        for atom in monomial:
            if atom.kind == "dim":
                part = part * bounds[atom.name]
            elif atom.kind == "floordiv":
                divisor = atom.args[1]
                bound = magnitude(atom.args[0], bounds, divided)
                part = part * (ceildiv(bound, divisor) if divided and isinstance(divisor, int) else bound)
            elif atom.kind == "mod":
                part = part * magnitude(atom.args[1], bounds, divided)
            else:
                args: Dim = 0
                for arg in atom.args:
                    args = args + magnitude(arg, bounds, divided)
                part = part * args
        total = total + part
    return total


def parts(value: Dim) -> list[Dim]:
    """The value, and every operand of a division, remainder, minimum or maximum inside it."""
    found: list[Dim] = [value]
    spend(1)
    if isinstance(value, Expr):
        for monomial, _ in value.terms:
            for atom in monomial:
                for arg in atom.args:
                    found += parts(arg)
    return found


def trips(extent: Dim, bounds: Mapping[str, Dim]) -> Dim:
    """An upper bound of an extent, which is known to be >= 0: closer than its magnitude."""
    if isinstance(extent, int):
        return max(extent, 0)
    if extent.is_name and extent.terms[0][0][0].kind == "min":
        # The least of several values is at most any of them; a number is the best that can be said.
        args = extent.terms[0][0][0].args
        return trips(next((a for a in args if isinstance(a, int)), args[0]), bounds)
    if extent.is_name and extent.terms[0][0][0].kind == "floordiv":
        top, divisor = extent.terms[0][0][0].args
        return ceildiv(trips(top, bounds), divisor) if isinstance(divisor, int) else trips(top, bounds)
    spend(len(extent.terms))
    total: Dim = 0
    for monomial, factor in extent.terms:
        # m - 64*b is at most m: names are never negative.
        if factor > 0 and len(monomial) == 1 and monomial[0].kind in ("min", "floordiv"):
            total = total + factor * trips(Expr(((monomial, 1),)), bounds)
        elif factor > 0 or any(a.kind != "dim" for a in monomial) or not monomial:
            term = Expr(((monomial, abs(factor)),)) if monomial else factor
            total = total + (term if isinstance(term, int) else magnitude(term, bounds, divided=True))
    return total
