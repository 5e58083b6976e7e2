"""What two extents of a model must be to each other, as a run finds out, and in words what is wrong where they are not.

Extents are dims over the named dims of the model; the words show expressions with the sizes that they have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tensor_types.dims import Dim, evaluate, names

Relation = Literal["equal", "broadcast", "window", "multiple"]
"""equal: the same; broadcast: the same, or one of them 1; window: the left is no less than the right, the reach of a
window that slides along it; multiple: the left is a multiple of the right, a positive number."""

RELATIONS: tuple[Relation, ...] = ("equal", "broadcast", "window", "multiple")


def holds(relation: Relation, left: int, right: int) -> bool:
    """Whether two extents are to each other as they must be."""
    if relation == "window":
        return left >= right
    if relation == "multiple":
        return right > 0 and left % right == 0
    return left == right or relation == "broadcast" and 1 in (left, right)


def broken(relation: Relation, left: Dim, right: Dim, sizes: Mapping[str, int]) -> tuple[str, str]:
    """(what is wrong, what to do) where two extents are not to each other as they must be."""
    a, b = evaluate(left, sizes), evaluate(right, sizes)
    if relation == "window":
        known = ", ".join(f"{n} = {sizes[n]}" for n in sorted(names(left)))
        whose = "" if str(left) in sizes else f"{left}, with "
        free = " or ".join(sorted(names(left)))
        return f"a window of {b} does not fit an extent of {a} ({whose}{known})", f"give inputs with a larger {free}"
    if relation == "multiple":
        free = " or ".join(sorted(names(left)))
        return f"{_shown(left, a, sizes)} is no multiple of {b}", f"give inputs of another {free}"
    text = f"the input shapes do not fit together: {_shown(left, a, sizes)} and {_shown(right, b, sizes)}"
    free = ", ".join(sorted(names(left) | names(right)))
    other = " or one of them is 1" if relation == "broadcast" else ""
    return text, f"give inputs for which both extents are equal{other} ({free})"


def _shown(extent: Dim, value: int, sizes: Mapping[str, int]) -> str:
    """An extent as `h = 3`, `2*h + 1 = 7 (h = 3)`, or a number."""
    inside = sorted(names(extent))
    if not inside:
        return str(value)
    known = "" if str(extent) in sizes else f" ({', '.join(f'{n} = {sizes[n]}' for n in inside)})"
    return f"{extent} = {value}{known}"
