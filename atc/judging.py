"""Who is at fault: errors of each tensor alone against unavoidable rounding, and what only inherits them.

A fault is one red row. The rules are those of docs/compare.md, "One fault, one row".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from atc.comparing.limits import Limit, Limits
from atc.comparing.rows import Comparison, Difference, Isolated, Measured, Row, difference, verdict_of

EXCESS = 10.0
"""How many times its rounding an isolated error must be to be a fault."""
_GROWTH = 4
"""How much worse than its inputs a tensor of a quantised model may be before it is at fault itself."""
_LARGEST = {"f16": 65504.0}
AT_FAULT = "at fault: the plan"
"""How the note of an output begins that memory shared by tensors has changed."""
_GROWS = "alone it is right: differences from rounding grow here"
_LIMITS = Limits()


def measure(
    inputs: Mapping[str, Any], kernel: Any, floor: Any, wide: Callable[[], Any], expected: Any, limit: Limit | None
) -> Isolated | None:
    """What a kernel made of the oracle's `inputs`, numpy's `floor` in the same dtypes and, where it matters, `wide` in
    float64, against the oracle. None where the shapes differ, which the row of the tensor says already."""
    try:
        isolated = difference(kernel, expected)
        near = isolated if floor is kernel else None if floor is None else difference(floor, expected)
    except ValueError:
        return None
    far = rounding = None
    if isolated.mismatched or (isolated.rel_l2 or 0.0) > (limit.isolated if limit else 0.0):
        found = wide()
        if found is not None and floor is not None:
            try:
                far, rounding = difference(found, expected), difference(floor, found).rel_l2
            except ValueError:
                far = rounding = None
    return Isolated(isolated, near, far, rounding, ranges(inputs) if isolated.mismatched else "")


def is_near(found: Difference, limit: Limit | None) -> bool:
    """Whether an error is within the isolated limit; None: there must be no error."""
    return not found.mismatched and (found.rel_l2 or 0.0) <= (limit.isolated if limit else 0.0)


def is_off(found: Difference, limit: Limit) -> bool:
    """Whether finite numbers alone are further from the oracle's than rounding explains, in size or in direction."""
    turned = None not in (found.cosine, limit.cos_warn) and found.cosine < limit.cos_warn  # type: ignore[operator]
    return not found.mismatched and (turned or not is_near(found, limit))


def acquits(exact: np.ndarray, kernel: Any, expected: Any, limit: Limit) -> bool:
    """Whether the model's own operators in float64 give what the kernel gives, and not what the oracle has."""
    try:
        ours, theirs = difference(kernel, exact), difference(expected, exact)
    except ValueError:
        return False
    return is_near(ours, limit) and not is_near(theirs, limit)


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


def judge(measured: Sequence[Measured], limits: Limits = _LIMITS) -> Comparison:
    """The verdict on one input, or on several, of which each tensor shows the worst."""
    found = [_judge_one(m, limits) for m in measured]
    comparison = found[0] if len(found) == 1 else _worst(measured, found)
    return replace(comparison, passing=_passing(comparison, limits))


def _judge_one(measured: Measured, limits: Limits) -> Comparison:
    """1. A tensor is at fault if alone it has NaN or infinities that the oracle has not, or an error beyond its
       isolated limit that is more than EXCESS times what rounding explains.
    2. Where rounding is not known, and of integers, what is wrong alone and fails in the run is at fault.
    3. What fails without being at fault, behind something that is, inherits.
    4. What fails with no fault before it and is right alone only makes more of differences that rounding explains.
    5. An output of the model keeps its own verdict, and fails where its row does.
    """
    rows = [_by_numbers(row, limits) for row in measured.rows]
    faults: dict[str, str] = {}
    holders: set[str] = set()
    for row in rows:
        if row.alone is None or row.found is None or row.holder in holders:
            continue
        if (reason := _fault(row, row.alone, _limit(row, limits))) is not None:
            faults[row.source] = reason
            holders.add(row.holder)
    causes = _causes(faults, measured.parents)
    rows = [_with_cause(row, faults, causes, measured.parents) for row in rows]
    rows = _inherited(rows, measured.parents)
    by_name = {r.source: r for r in rows}
    outputs = [_with_reason(_by_numbers(o, limits), by_name.get(o.source)) for o in measured.outputs]
    return Comparison(rows, outputs, measured.top1, notes=measured.notes, parents=measured.parents)


def _limit(row: Row, limits: Limits) -> Limit | None:
    return limits.of(row.compute_dtype, row.source, row.kernel)


def _by_numbers(row: Row, limits: Limits) -> Row:
    """The row with the verdict of its accumulated error, where it has none yet."""
    if row.verdict or row.found is None:
        return row
    # An integer of a quantised model is judged by its steps, if it is off by more, by the limits of such models.
    dtype = "quantised" if row.quantised and "f" not in row.dtype else row.compute_dtype
    limit = limits.of(dtype, row.source, row.kernel)
    verdict = verdict_of(row.found, row.dtype if row.quantised else row.compute_dtype, row.quantised, limit)
    if verdict == "fail" and row.narrow and "f" not in row.dtype and not row.found.mismatched:
        return replace(row, verdict="warn", note=f"a choice among values rounded to {row.narrow}")
    return replace(row, verdict=verdict)


def _causes(faults: Mapping[str, str], parents: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """By tensor the nearest known fault before it; `parents` is in topological order."""
    causes: dict[str, str] = {}
    for name, before in parents.items():
        for parent in before:
            cause = parent if parent in faults else causes.get(parent)
            if cause is not None:
                causes.setdefault(name, cause)
    return causes


def _with_cause(
    row: Row, faults: Mapping[str, str], causes: Mapping[str, str], parents: Mapping[str, tuple[str, ...]]
) -> Row:
    alone = row.alone
    if alone is None and row.found is not None and not parents.get(row.source):
        row = replace(row, alone=Isolated(row.found, row.found))  # an input of the model: nothing comes before it
    if row.source in faults:
        return replace(row, verdict="fail", note="; ".join(filter(None, (faults[row.source], row.note))))
    if row.verdict in ("fail", "warn") and row.source in causes:
        # Nothing tells how it would be alone where it was not run alone: then it keeps its verdict.
        verdict = row.verdict if alone is None else "warn"
        return replace(row, verdict=verdict, note=f"inherited from {causes[row.source]}")
    if row.verdict == "fail" and alone is not None and parents.get(row.source):
        return replace(row, verdict="warn", note="; ".join(filter(None, (_GROWS, row.note))))
    return row


def _fault(row: Row, found: Isolated, limit: Limit | None) -> str | None:
    """Who is to blame for a tensor that is wrong on the oracle's inputs, None if it is not."""
    isolated = found.isolated
    if isolated.mismatched:
        return _blame(row, found, limit)
    if limit is None:
        wrong = row.verdict == "fail" and bool(isolated.max_abs)
        return _blame(row, found, limit) if wrong else None
    if isolated.rel_l2 is None or isolated.rel_l2 <= limit.isolated:
        return None
    if found.rounding is None:
        return _blame(row, found, limit) if row.verdict == "fail" else None
    return _blame(row, found, limit) if isolated.rel_l2 > EXCESS * found.rounding else None


def _blame(row: Row, found: Isolated, limit: Limit | None) -> str:
    def good(one: Difference | None) -> bool:
        return one is not None and is_near(one, limit)

    isolated, dtype = found.isolated, row.compute_dtype
    born = f"; NaN or Inf is born here, where {found.ranges}" if isolated.mismatched and found.ranges else ""
    if dtype in _LARGEST and isolated.largest > _LARGEST[dtype]:  # infinite, or cut off there
        return f"{dtype} overflow: values reach {isolated.largest:.3g}, {dtype} ends at {_LARGEST[dtype]:.0f}{born}"
    if found.floor is None:
        return f"at fault: the kernel or a pass before it{born}"
    if good(found.floor):
        return f"at fault: the kernel; numpy computes its graph right{born}"
    if dtype in ("f16", "bf16") and good(found.wide):
        return f"at fault: {dtype} is too narrow here; float64 is right{born}"
    return f"at fault: the graph; a pass or a folded constant changed what is computed{born}"


def _with_reason(output: Row, row: Row | None) -> Row:
    """An output of the model keeps its own verdict; why it has it is what its row says."""
    if row is None:
        return output
    verdict = "fail" if row.verdict == "fail" else output.verdict
    note = output.note if output.note.startswith(AT_FAULT) else row.note
    return replace(output, verdict=verdict, note=note, alone=row.alone)


def _inherited(rows: list[Row], parents: Mapping[str, tuple[str, ...]]) -> list[Row]:
    """Interior tensors of quantised models that fail only because what they are computed from differs already: warn.

    A flipped rounding grows from layer to layer without any kernel being wrong. A tensor that is much worse than all
    it is computed from still fails, and so does an output of the model.
    """
    # A zero point dilutes relative errors, so integers do not count.
    floats = (r for r in rows if r.found is not None and not r.found.mismatched and "f" in r.dtype)
    errors = {r.source: r.found.rel_l2 for r in floats if r.found is not None and r.found.rel_l2 is not None}

    def nearest(name: str, seen: set[str]) -> float:
        worst = 0.0
        for parent in parents.get(name, ()):
            if parent in errors:
                worst = max(worst, errors[parent])
            elif parent not in seen:
                seen.add(parent)
                worst = max(worst, nearest(parent, seen))
        return worst

    def judged(row: Row) -> Row:
        if row.verdict != "fail" or row.found is None or row.found.mismatched or not row.quantised:
            return row
        if row.note.startswith("at fault") or (row.found.rel_l2 or 0.0) > _GROWTH * nearest(row.source, set()):
            return row
        return replace(row, verdict="warn", note="inherited from roundings before it")

    return [judged(row) for row in rows]


_RANK = {"pass": 0, "warn": 1, "unknown": 2, "fail": 3}


def _worst(measured: Sequence[Measured], found: Sequence[Comparison]) -> Comparison:
    """One row a tensor: that of the sample with the worst verdict and error; the mean error of all beside it."""

    def worst(rows: Sequence[Row]) -> Row:
        errors = [r.found.rel_l2 for r in rows if r.found is not None and r.found.rel_l2 is not None]
        order = [(_RANK[r.verdict], _error(r)) for r in rows]
        at = max(range(len(rows)), key=lambda n: order[n])
        mean = float(np.mean(errors)) if errors else None
        return replace(rows[at], sample=measured[at].sample, mean=mean)

    rows = [worst(same) for same in zip(*(f.rows for f in found), strict=True)]
    outputs = [worst(same) for same in zip(*(f.outputs for f in found), strict=True)]
    names = list(dict.fromkeys(name for m in measured for name in m.top1))
    top1 = {name: float(np.mean([m.top1[name] for m in measured if name in m.top1])) for name in names}
    notes = tuple(dict.fromkeys(note for m in measured for note in m.notes))
    return Comparison(rows, outputs, top1, tuple(m.sample for m in measured), notes=notes,
                      parents=measured[0].parents)  # fmt: skip


def _error(row: Row) -> float:
    if row.found is None:
        return 0.0
    return float("inf") if row.found.mismatched else row.found.rel_l2 or 0.0


def _passing(found: Comparison, limits: Limits) -> float | None:
    """The least relative L2 as --threshold that lets all pass that fails now; None if none does, or numbers do not say.

    What a pattern of the user's is about, and integers, no threshold without a pattern changes.
    """
    least = 0.0
    failing = [r for r in (*found.rows, *found.outputs) if r.verdict == "fail"]
    for row in failing:
        limit = Limits().of(row.compute_dtype)
        if row.found is None or row.found.mismatched or row.found.rel_l2 is None or limit is None:
            return None
        least = max(least, row.found.rel_l2)
        if row.alone is not None:
            if row.alone.isolated.mismatched:
                return None
            least = max(least, (row.alone.isolated.rel_l2 or 0.0) * limit.l2_fail / limit.isolated)
    if not failing or any(t.pattern is not None for t in limits.thresholds):
        return None
    return float(f"{least * 1.01:.2g}") if float(f"{least * 1.01:.2g}") > least else float(f"{least * 1.1:.2g}")
