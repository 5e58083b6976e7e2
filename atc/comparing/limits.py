"""How far a tensor may be from the oracle: a table by dtype of compute, and what the user says of single tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from atc.usage import UsageError

ACCUMULATED = {
    # dtype of compute: (cosine warn, cosine fail, relative L2 warn, relative L2 fail)
    "f64": (0.99999, 0.9999, 1e-4, 1e-3),
    "f32": (0.99999, 0.9999, 1e-4, 1e-3),
    "f16": (0.999, 0.99, 1e-2, 5e-2),
    "bf16": (0.998, 0.98, 3e-2, 1e-1),
    "quantised": (0.99, 0.95, 0.1, 0.3),
}
"""Of a run; "quantised": behind an activation that was rounded to integers. Integers, booleans and indices must agree
exactly."""
ISOLATED = {"f64": 1e-4, "f32": 1e-4, "f16": 1e-2, "bf16": 3e-2, "quantised": 0.3}
"""Relative L2 of a tensor on the oracle's own inputs, above which its kernel is looked into."""


@dataclass(frozen=True)
class Limit:
    """Of one tensor. Cosines are None where cosine is no limit; isolated is the limit of the tensor alone."""

    cos_warn: float | None
    cos_fail: float | None
    l2_warn: float
    l2_fail: float
    isolated: float


@dataclass(frozen=True)
class Threshold:
    """What the user allows: relative L2 and, if given, cosine, of the tensors or kernels that the pattern matches."""

    rel_l2: float
    cosine: float | None = None
    pattern: str | None = None
    """As in file names: * and ?; None: every tensor of floats."""


@dataclass(frozen=True)
class Limits:
    """The table under the user's thresholds, of which the last that fits a tensor holds."""

    thresholds: tuple[Threshold, ...] = field(default=())

    def of(self, dtype: str, source: str = "", kernel: str = "") -> Limit | None:
        """The limit of a tensor that was computed in `dtype` ("quantised": behind such an activation); None: exact.

        A threshold stands for the limit of failure. Warnings begin, and the isolated limit lies, as far below it as in
        the table; cosine is no limit then, unless the threshold gives one.
        """
        row = ACCUMULATED.get(dtype)
        for asked in reversed(self.thresholds):
            if asked.pattern is None:
                if row is None:
                    continue  # what must be exact stays so, unless it is named
            elif not any(fnmatchcase(name, asked.pattern) for name in (source, kernel) if name):
                continue
            warn, isolated = (0.1, 0.1) if row is None else (row[2] / row[3], ISOLATED[dtype] / row[3])
            return Limit(
                asked.cosine, asked.cosine, asked.rel_l2 * warn, asked.rel_l2, asked.rel_l2 * isolated
            )  # fmt: skip
        return None if row is None else Limit(*row, ISOLATED[dtype])


def parse_thresholds(given: Sequence[str], flag: str = "--threshold") -> Limits:
    """`0.01`, `0.01,0.999` (relative L2, cosine), or `PATTERN=...` for the tensors and kernels of that name."""
    found = []
    for text in given:
        pattern, equals, numbers = text.rpartition("=")
        try:
            values = [float(n) for n in numbers.split(",")]
            if not 1 <= len(values) <= 2 or any(math.isnan(v) or v < 0 for v in values) or equals and not pattern:
                raise ValueError(numbers)
        except ValueError:
            raise UsageError(
                f"{flag} {text!r}", code="E10001", where={"flag": flag},
                remedy="write a relative L2, as 0.01, with a cosine behind a comma if wanted, as 0.01,0.999; "
                "of some tensors as 'layer*=0.05'",
            ) from None  # fmt: skip
        found.append(Threshold(values[0], values[1] if len(values) == 2 else None, pattern if equals else None))
    return Limits(tuple(found))
