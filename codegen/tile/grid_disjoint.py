"""Proves that two grid indices never touch the same element of a tensor when one of them writes it.

All accesses to the tensor are looked at together. A grid variable g is *separated* by an axis of the tensor if every
access has there the index `step*g + rest` with one common step, and the difference of any two rests, taken at two
different grid indices, is below the step. Two grid indices that touch the same element then agree in g, so g counts as
fixed when the next variable is looked at. Where the conditions around an access pin g to a value, any step will do, and
if that is the least or the largest value of g, one direction of the comparison holds by itself. The tensor is safe when
every variable is separated, or pinned to one value by the conditions around all accesses. A grid variable that programs
take apart as g//n and g%n is looked at as two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tensor_types.dims import OPERATIONS, Atom, Dim, Expr, dim, floordiv, mod, names, substitute
from tensor_types.proofs import Range, prove_le

MAX_ACCESSES = 256
"""Most different accesses to one tensor that are compared pair by pair."""


@dataclass(frozen=True)
class Access:
    """Index expressions of a view (over its axis variables too), the ranges that hold there, and if it writes."""

    index: tuple[Dim, ...]
    ranges: Mapping[str, Range]
    writes: bool


def unseparated(accesses: Sequence[Access], grid: Sequence[tuple[str, Dim]], constants: frozenset[str]) -> list[str]:
    """The grid variables in which two conflicting grid indices may differ; `constants` are the program's dims."""
    accesses, grid = _taken_apart(list(accesses), list(grid))
    open_ = [name for name, extent in grid if extent != 1 and not _pinned(accesses, name)]
    progress = True
    while open_ and progress and len(accesses) <= MAX_ACCESSES:
        progress = False
        for name in list(open_):
            fixed = constants | {g for g, _ in grid if g not in open_}
            if any(_separates(accesses, k, name, fixed) for k in range(len(accesses[0].index))):
                open_.remove(name)
                progress = True
    return open_


def _pinned(accesses: Sequence[Access], name: str) -> bool:
    ranges = {a.ranges[name] for a in accesses}
    if len(ranges) > 1:
        return False
    ((low, high),) = ranges
    # An extent that is 0 or 1, as the run decides: no two indices differ in it.
    return low == high or (low == 0 and high is not None and prove_le(high, 0, accesses[0].ranges))


def _separates(accesses: Sequence[Access], axis: int, name: str, fixed: frozenset[str]) -> bool:
    steps: set[Dim] = set()
    rests: list[Dim] = []
    for access in accesses:
        index = access.index[axis]
        origin = substitute(index, {name: 0})
        step = substitute(index, {name: 1}) - origin
        rest = index - step * dim(name)
        if _value(access, name) is not None:
            rests.append(index)
            continue
        if name in names(rest) or not names(step) <= fixed:
            return False
        steps.add(step)
        rests.append(rest)
    if len(steps) > 1:
        return False
    step = steps.pop() if steps else 1  # pinned around every access: any step will do
    for number, access in enumerate(accesses):
        if (value := _value(access, name)) is not None:
            if not prove_le(1, step, access.ranges):
                return False
            rests[number] = substitute(rests[number], {name: value}) - step * value
    kept = _extremes(accesses, rests)
    for first, rest in kept:
        for second, other in kept:
            # What is shown is that the second's index is not above the first's.
            if _is_least(second, first, name) or _is_largest(first, second, name):
                continue
            if (first.writes or second.writes) and not _closer(rest, first.ranges, other, second.ranges, step, fixed):
                return False
    return True


def _value(access: Access, name: str) -> int | None:
    """The number that conditions pin a grid variable to."""
    low, high = access.ranges[name]
    return low if isinstance(low, int) and low == high else None


def _is_least(access: Access, other: Access, name: str) -> bool:
    value, low = _value(access, name), other.ranges[name][0]
    return value is not None and isinstance(low, int) and value <= low


def _is_largest(access: Access, other: Access, name: str) -> bool:
    value, high = _value(access, name), other.ranges[name][1]
    return value is not None and isinstance(high, int) and high <= value


def _extremes(accesses: Sequence[Access], rests: Sequence[Dim]) -> list[tuple[Access, Dim]]:
    """Accesses with their rests; of rests that differ by a constant, under equal ranges, the least and the largest of
    those that write and of all: no other pair lies further apart."""
    groups: dict[object, list[tuple[int, int]]] = {}
    for number, (access, rest) in enumerate(zip(accesses, rests, strict=True)):
        constant = rest if isinstance(rest, int) else next((f for m, f in rest.terms if not m), 0)
        groups.setdefault((rest - constant, frozenset(access.ranges.items())), []).append((constant, number))
    kept: set[int] = set()
    for group in groups.values():
        writing = [member for member in group if accesses[member[1]].writes]
        for some in (group, writing):
            kept.update(pick(some)[1] for pick in (min, max) if some)
    return [(accesses[number], rests[number]) for number in sorted(kept)]


def _closer(
    rest: Dim, ranges: Mapping[str, Range], other: Dim, others: Mapping[str, Range], step: Dim, fixed: frozenset[str]
) -> bool:
    """True if rest - other < step, the two taken at different grid indices."""
    renamed: dict[str, Dim] = {n: dim(f"{n}..2") for n in others if n not in fixed}
    merged: dict[str, Range] = dict(ranges)
    for name, (low, high) in others.items():
        if name in renamed:
            end = None if high is None else substitute(high, renamed)
            merged[f"{name}..2"] = (substitute(low, renamed), end)
    return prove_le(rest - substitute(other, renamed) + 1, step, merged)


def _taken_apart(accesses: list[Access], grid: list[tuple[str, Dim]]) -> tuple[list[Access], list[tuple[str, Dim]]]:
    """The accesses with every g//n and g%n replaced by new grid variables g..q and g..r, as long as there are any."""
    done: list[tuple[str, Dim]] = []
    while grid:
        name, extent = grid.pop(0)
        divisors = {atom.args[1] for a in accesses for i in a.index for atom in _atoms(i) if _divides(atom, name)}
        unit = min(divisors, key=lambda d: (isinstance(d, Expr), d if isinstance(d, int) else 0), default=None)
        plain = isinstance(unit, int) or (isinstance(unit, Expr) and unit.is_name)
        if not plain or unit is None or len(name) > 64 or any(d != unit and mod(d, unit) != 0 for d in divisors):
            done.append((name, extent))
            continue
        quotient, remainder = f"{name}..q", f"{name}..r"
        bounds: dict[str, Range] = {quotient: (0, floordiv(extent - 1, unit)), remainder: (0, unit - 1)}
        accesses = [
            Access(
                tuple(_divided(i, name, unit) for i in a.index),
                {
                    n: (_divided(low, name, unit), None if high is None else _divided(high, name, unit))
                    for n, (low, high) in a.ranges.items()
                    if n != name
                }
                | bounds,
                a.writes,
            )
            for a in accesses
        ]
        grid[:0] = [(quotient, floordiv(extent - 1, unit) + 1), (remainder, unit)]
    return accesses, done


def _atoms(value: Dim) -> Iterator[Atom]:
    if isinstance(value, Expr):
        for monomial, _ in value.terms:
            for atom in monomial:
                yield atom
                for arg in atom.args:
                    yield from _atoms(arg)


def _divides(atom: Atom, name: str) -> bool:
    return atom.kind in ("floordiv", "mod") and atom.args[0] == dim(name)


def _divided(value: Dim, name: str, unit: Dim) -> Dim:
    """The value with name = unit*quotient + remainder put in."""
    quotient, remainder = dim(f"{name}..q"), dim(f"{name}..r")

    def atom_value(atom: Atom) -> Dim:
        if _divides(atom, name):
            ratio = floordiv(atom.args[1], unit)
            return floordiv(quotient, ratio) if atom.kind == "floordiv" else unit * mod(quotient, ratio) + remainder
        if atom.kind == "dim":
            return unit * quotient + remainder if atom.name == name else dim(atom.name)
        return OPERATIONS[atom.kind](*(_divided(arg, name, unit) for arg in atom.args))

    if isinstance(value, int):
        return value
    total: Dim = 0
    for monomial, factor in value.terms:
        part: Dim = factor
        for atom in monomial:
            part = part * atom_value(atom)
        total = total + part
    return total
