"""Statistics of contenders that took turns: spread of each, and pairwise ratios with a confidence interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

_CONFIDENCE = 0.95
_UNSTABLE = 0.1
"""A standard deviation above this part of the mean is worth a word."""


@dataclass(frozen=True)
class Spread:
    """Milliseconds of a contender's turns, each the median of the runs in it."""

    mean: float
    std: float
    median: float
    least: float
    most: float
    turns: int

    @property
    def is_unstable(self) -> bool:
        return self.std > _UNSTABLE * self.mean


@dataclass(frozen=True)
class Paired:
    """Time over the reference's in the same round: the median, and where it lies with 95 % confidence.

    The interval is that of order statistics, so no shape of the distribution is assumed; None with too few rounds.
    """

    ratio: float
    low: float | None
    high: float | None

    @property
    def word(self) -> str:
        """'faster', 'slower' or 'no difference that counts'."""
        if self.low is None or self.high is None:
            return "too few turns to say"
        return "faster" if self.high < 1 else "slower" if self.low > 1 else "no difference that counts"


def spread(milliseconds: Sequence[float]) -> Spread:
    """Of one turn at least."""
    deviation = statistics.stdev(milliseconds) if len(milliseconds) > 1 else 0.0
    return Spread(statistics.fmean(milliseconds), deviation, statistics.median(milliseconds), min(milliseconds),
                  max(milliseconds), len(milliseconds))  # fmt: skip


def paired(own: Sequence[float], reference: Sequence[float]) -> Paired:
    """Of as many turns on both sides."""
    ratios = sorted(a / b for a, b in zip(own, reference, strict=True))
    rank = _rank(len(ratios))
    low, high = (None, None) if rank is None else (ratios[rank], ratios[-1 - rank])
    return Paired(statistics.median(ratios), low, high)


def _rank(count: int) -> int | None:
    """The largest k for which the k-th smallest and k-th largest of so many enclose the median with confidence."""
    tail, best = 0.0, None
    for k in range(count // 2):
        tail += math.comb(count, k) / 2**count
        if 2 * tail > 1 - _CONFIDENCE:
            break
        best = k
    return best


def as_record(times: Spread, against: Paired | None) -> dict[str, Any]:
    """For machines, in ms."""
    pair = {} if against is None else {**asdict(against), "word": against.word}
    return {**{f"{k}_ms" if k != "turns" else k: v for k, v in asdict(times).items()}, **pair}
