"""Who is at fault: errors of each tensor alone against unavoidable rounding, and what only inherits them.

A fault is one red row. The rules are those of docs/compare.md, "One fault, one row".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from atc.comparing.rows import Difference, Row, difference
from atc.isolation import Alone

ISOLATED_LIMITS = {"f64": 1e-4, "f32": 1e-4, "f16": 1e-2, "bf16": 3e-2, "i8": 0.3}
"""Relative L2 of a tensor on the oracle's own inputs, per dtype of compute, above which its kernel is looked into."""
EXCESS = 10.0
"""How many times its rounding an isolated error must be to be a fault."""
_LARGEST = {"f16": 65504.0}


@dataclass(frozen=True)
class Isolated:
    """A tensor on the oracle's inputs, against the oracle. rounding: numpy's own distance from float64."""

    isolated: Difference
    floor: Difference | None
    wide: Difference | None
    rounding: float | None
    ranges: str
    """What its inputs hold, in words."""


def measure(alone: Alone, expected: Any, dtype: str) -> Isolated | None:
    """None where the shapes differ, which the row of the tensor says already. `dtype` is that of compute."""
    try:
        isolated = difference(alone.kernel, expected)
        floor = None if alone.floor is None else difference(alone.floor, expected)
    except ValueError:
        return None
    wide = rounding = None
    if isolated.mismatched or (isolated.rel_l2 or 0.0) > ISOLATED_LIMITS.get(dtype, 0.0):
        found = alone.wide()
        if found is not None and alone.floor is not None:
            try:
                wide, rounding = difference(found, expected), difference(alone.floor, found).rel_l2
            except ValueError:
                wide = rounding = None
    return Isolated(isolated, floor, wide, rounding, ranges(alone.inputs) if isolated.mismatched else "")


def ranges(inputs: Mapping[str, Any]) -> str:
    """'x in [-3, 1.2e+05]; w in [0, 1], 3 Inf'."""
    words = []
    for name, value in inputs.items():
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiuV" or not value.size:
            continue
        wide = value.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        text = f"{name} in [{finite.min():.3g}, {finite.max():.3g}]" if finite.size else f"{name} without finite values"
        words.append(text if finite.size == wide.size else f"{text}, {wide.size - finite.size} not finite")
    return "; ".join(words)


def judged(
    rows: Sequence[Row], alone: Mapping[str, Isolated], parents: Mapping[str, tuple[str, ...]],
    narrow: Callable[[Row], str], limits: Mapping[str, float] = ISOLATED_LIMITS,
) -> list[Row]:  # fmt: skip
    """The rows with their isolated errors, faults and what inherits from which. `narrow` gives the dtype of compute.

    1. A tensor is at fault if alone it has NaN or infinities that the oracle has not, or an error beyond the isolated
       limit of its dtype that is more than EXCESS times what rounding explains.
    2. Where rounding is not known, and of integers, what is wrong alone and fails in the run is at fault.
    3. What fails without being at fault, behind something that is, inherits.
    """
    faults: dict[str, str] = {}
    holders: set[str] = set()
    for row in rows:
        found = alone.get(row.source)
        if found is None or row.found is None or row.holder in holders:
            continue
        if (reason := _fault(row, found, narrow(row), limits)) is not None:
            faults[row.source] = reason
            holders.add(row.holder)
    causes = _causes(faults, parents)
    return [_with_verdict(row, alone.get(row.source), faults, causes, parents) for row in rows]


def _causes(faults: Mapping[str, str], parents: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """By tensor the nearest known fault before it; `parents` is in topological order."""
    causes: dict[str, str] = {}
    for name, before in parents.items():
        for parent in before:
            cause = parent if parent in faults else causes.get(parent)
            if cause is not None:
                causes.setdefault(name, cause)
    return causes


def _with_verdict(
    row: Row, found: Isolated | None, faults: Mapping[str, str], causes: Mapping[str, str],
    parents: Mapping[str, tuple[str, ...]],
) -> Row:  # fmt: skip
    if found is not None:
        row = replace(row, isolated=found.isolated, floor=found.floor)
    elif row.found is not None and not parents.get(row.source):  # an input of the model: nothing comes before it
        row = replace(row, isolated=row.found, floor=row.found)
    if row.source in faults:
        return replace(row, verdict="fail", note="; ".join(filter(None, (faults[row.source], row.note))))
    if row.verdict in ("fail", "warn") and row.source in causes:
        # Nothing tells how it would be alone where it was not run alone: then it keeps its verdict.
        verdict = row.verdict if found is None else "warn"
        return replace(row, verdict=verdict, note=f"inherited from {causes[row.source]}")
    return row


def _fault(row: Row, found: Isolated, dtype: str, limits: Mapping[str, float]) -> str | None:
    """Who is to blame for a tensor that is wrong on the oracle's inputs, None if it is not."""
    isolated = found.isolated
    limit = limits.get(dtype)
    if isolated.mismatched:
        return _blame(found, dtype, limits)
    if limit is None:
        wrong = row.verdict == "fail" and bool(isolated.max_abs)
        return _blame(found, dtype, limits) if wrong else None
    if isolated.rel_l2 is None or isolated.rel_l2 <= limit:
        return None
    if found.rounding is None:
        return _blame(found, dtype, limits) if row.verdict == "fail" else None
    return _blame(found, dtype, limits) if isolated.rel_l2 > EXCESS * found.rounding else None


def _blame(found: Isolated, dtype: str, limits: Mapping[str, float]) -> str:
    def good(one: Difference | None) -> bool:
        return one is not None and not one.mismatched and (one.rel_l2 or 0.0) <= limits.get(dtype, 0.0)

    isolated = found.isolated
    born = f"; NaN or Inf is born here, where {found.ranges}" if isolated.mismatched and found.ranges else ""
    if dtype in _LARGEST and isolated.mismatched and isolated.largest > _LARGEST[dtype]:
        return f"{dtype} overflow: values reach {isolated.largest:.3g}, {dtype} ends at {_LARGEST[dtype]:.0f}{born}"
    if found.floor is None:
        return f"at fault: the kernel or a pass before it{born}"
    if good(found.floor):
        return f"at fault: the kernel; numpy computes its graph right{born}"
    if dtype in ("f16", "bf16") and good(found.wide):
        return f"at fault: {dtype} is too narrow here; float64 is right{born}"
    return f"at fault: the graph; a pass or a folded constant changed what is computed{born}"
