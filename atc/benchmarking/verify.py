"""Are a contender's outputs those of onnxruntime?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Limits:
    cosine: float
    relative_l2: float


EXACT = Limits(cosine=0.99999, relative_l2=1e-4)
REDUCED = Limits(cosine=0.999, relative_l2=0.05)
# One step of a rounding that falls the other way moves the rest of a quantised network; an output of one element has
# no direction, so its size is bounded too, loosely.
QUANTISED = Limits(cosine=0.999, relative_l2=0.2)


_STEPS = 8
"""Roundings of an output of 16 bits: what two exact enough ways through a deep model differ by."""


@dataclass(frozen=True)
class Difference:
    """Of one output, against the reference; `problem` is empty when it is within the limits."""

    output: str
    cosine: float
    relative_l2: float
    max_abs: float
    problem: str

    def record(self) -> dict[str, Any]:
        return asdict(self)


def difference(name: str, expected: np.ndarray, actual: np.ndarray | None, limits: Limits) -> Difference:
    """Integers and booleans must be equal, floats within `limits`; an infinity or NaN must stand at the same place.

    A tensor of few bits is within the limits of an exact one where it differs by some of its own roundings.
    """
    if actual is None:
        return Difference(name, 0.0, float("inf"), float("inf"), "missing")
    if actual.shape != expected.shape:
        problem = f"shape {list(actual.shape)} instead of {list(expected.shape)}"
        return Difference(name, 0.0, float("inf"), float("inf"), problem)
    if not np.issubdtype(expected.dtype, np.floating):
        equal = bool(np.array_equal(expected, actual))
        return Difference(name, float(equal), 0.0 if equal else float("inf"), 0.0, "" if equal else "values differ")
    finite = np.isfinite(expected)
    if not np.array_equal(expected[~finite], actual[~finite], equal_nan=True) or not np.isfinite(actual[finite]).all():
        return Difference(name, 0.0, float("inf"), float("inf"), "NaN or infinity at other places")
    a, b = expected[finite].astype(np.float64).ravel(), actual[finite].astype(np.float64).ravel()
    norm_a, norm_b, distance = np.linalg.norm(a), np.linalg.norm(b), np.linalg.norm(a - b)
    if norm_a == 0 or norm_b == 0:
        cosine, relative = float(norm_a == norm_b), 0.0 if distance == 0 else float("inf")
    else:
        cosine, relative = float(a @ b / (norm_a * norm_b)), float(distance / norm_a)
    good = cosine >= limits.cosine and relative <= max(limits.relative_l2, _STEPS * np.finfo(expected.dtype).eps / 2)
    problem = "" if good else f"cosine {cosine:.7f}, relative L2 {relative:.2e}"
    return Difference(name, cosine, relative, float(np.abs(a - b).max(initial=0.0)), problem)


def differences(expected: dict[str, np.ndarray], actual: dict[str, np.ndarray], limits: Limits) -> list[Difference]:
    return [difference(name, array, actual.get(name), limits) for name, array in expected.items()]
