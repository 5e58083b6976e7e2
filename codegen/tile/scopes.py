"""What is known of the dims at each statement of a program: their ranges, narrowed by the conditions around it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from codegen.tile.ir import For, If, Program, ReadDim, Stmt, View
from tensor_types.dims import Dim, Expr, dim, dmax, dmin, substitute
from tensor_types.proofs import Range, prove_le

Ranges = dict[str, Range]
"""Every dim that is defined at a place, in order of definition."""


def with_axes(ranges: Mapping[str, Range], view: View) -> Ranges:
    """The ranges with those of the view's axis variables."""
    return {**ranges, **{f"_{k}": (0, extent - 1) for k, extent in enumerate(view.shape)}}


def narrow(ranges: Ranges, stmt: If, holds: bool) -> None:
    """Puts into `ranges` what follows for the dims from the condition of a statement, or from its contrary."""
    left, right = stmt.left, stmt.right
    if stmt.relation == "==":
        if holds:
            _assume_le(ranges, left, right)
            _assume_le(ranges, right, left)
        else:
            _assume_not(ranges, left, right)
    elif holds:
        _assume_le(ranges, left + (stmt.relation == "<"), right)
    else:
        _assume_le(ranges, right + (stmt.relation == "<="), left)


def _assume_le(ranges: Ranges, left: Dim, right: Dim) -> None:
    """Narrows the range of the innermost dim that left <= right bounds with factor 1."""
    slack = right - left
    for name in reversed(ranges):
        rest = substitute(slack, {name: 0})
        factor = substitute(slack, {name: 1}) - rest
        if factor not in (1, -1) or slack != rest + factor * dim(name):
            continue
        low, high = ranges[name]
        if factor == 1:
            ranges[name] = (_larger(ranges, low, -rest), high)
        else:
            ranges[name] = (low, rest if high is None else _smaller(ranges, high, rest))
        return


def _smaller(ranges: Ranges, a: Dim, b: Dim) -> Dim:
    return a if prove_le(a, b, ranges) else b if prove_le(b, a, ranges) else dmin(a, b)


def _larger(ranges: Ranges, a: Dim, b: Dim) -> Dim:
    return a if prove_le(b, a, ranges) else b if prove_le(a, b, ranges) else dmax(a, b)


def _assume_not(ranges: Ranges, left: Dim, right: Dim) -> None:
    """A dim that is not at one end of its range lies beyond that end."""
    name, value = (left, right) if isinstance(left, Expr) and left.is_name else (right, left)
    if not (isinstance(name, Expr) and name.is_name and str(name) in ranges):
        return
    low, high = ranges[str(name)]
    if value == low:
        ranges[str(name)] = (low + 1, high)
    elif value == high:
        ranges[str(name)] = (low, high - 1)


def ranges_at(program: Program) -> Iterator[tuple[Stmt, Ranges]]:
    """Every statement of a verified program with the ranges that hold where it stands."""
    ranges: Ranges = {d.name: (d.low, d.high) for d in program.dims}
    ranges.update((name, (0, extent - 1)) for name, extent in program.grid)
    return _walk(program.body, ranges)


def _walk(body: tuple[Stmt, ...], outer: Ranges) -> Iterator[tuple[Stmt, Ranges]]:
    ranges = dict(outer)
    for stmt in body:
        yield stmt, ranges
        if isinstance(stmt, For):
            yield from _walk(stmt.body, {**ranges, stmt.var: (0, stmt.extent - 1)})
        elif isinstance(stmt, If):
            for arm, holds in ((stmt.then, True), (stmt.orelse, False)):
                inside = dict(ranges)
                narrow(inside, stmt, holds)
                yield from _walk(arm, inside)
        elif isinstance(stmt, ReadDim):
            ranges = {**ranges, stmt.var: (stmt.low, stmt.high)}
