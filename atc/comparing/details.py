"""What a tensor's difference looks like beyond its metrics: where it is worst, how errors spread, msit's metrics.

The metrics under msit's names follow its formulas, blind spots included (tensors as f32, no error where golden is 0,
Kullback-Leibler of min-max scaled values), so that its users can hold the numbers against theirs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

EDGES = np.arange(-10, 2.5, 0.5)
"""Bounds of the histogram: log10 of |error| over the root mean square of golden."""
_TINY = 2.220446049250313e-16
_F16_MAX = 65504.0


@dataclass(frozen=True)
class Detail:
    """shape: of the tensor; worst: index of the largest error, with both values there.

    spread: elements by EDGES, below the first bound (exact ones too) first, beyond the last one last.
    msit: metrics by msit's column names; NaN where its formula gives none.
    """

    shape: tuple[int, ...]
    worst: tuple[int, ...]
    ours: float
    theirs: float
    spread: tuple[int, ...]
    overflow: str
    msit: dict[str, float | str]


def detail_of(device: Any, golden: Any, dtype: str) -> Detail | None:
    """None for what is no numeric tensor or has no elements. Both have one shape; `dtype` is the package's."""
    x, y = np.asarray(device), np.asarray(golden)
    if x.shape != y.shape or not x.size or x.dtype.kind in "OUSc" or y.dtype.kind in "OUSc":
        return None
    wide_x, wide_y = x.astype(np.float64).ravel(), y.astype(np.float64).ravel()
    with np.errstate(all="ignore"):
        error = np.abs(wide_x - wide_y)
        ranked = np.where(np.isnan(error), np.where(np.isnan(wide_x) & np.isnan(wide_y), 0.0, np.inf), error)
        at = int(np.argmax(ranked))
        finite = wide_y[np.isfinite(wide_y)]
        rms = math.sqrt(float(np.mean(finite * finite))) if finite.size else 0.0
        scaled = np.log10(ranked / (rms or 1.0))
        bins = np.searchsorted(EDGES, np.where(ranked == 0, -np.inf, scaled), side="right")
        spread = np.bincount(bins, minlength=len(EDGES) + 1)
        msit = _msit(wide_x.astype(np.float32), wide_y.astype(np.float32))
    has_nan = bool(np.isnan(wide_x).any())
    overflow = "NaN" if has_nan else "YES" if dtype == "f16" and float(np.abs(wide_x).max()) >= _F16_MAX else "NO"
    worst = tuple(int(i) for i in np.unravel_index(at, x.shape))
    return Detail(x.shape, worst, float(wide_x[at]), float(wide_y[at]), tuple(spread.tolist()), overflow, msit)


def _msit(x: np.ndarray, y: np.ndarray) -> dict[str, float | str]:
    error = x - y
    relative = np.where(np.abs(y) > _TINY, np.abs(x / np.where(y == 0, 1, y) - 1), 0)
    norms = [float(np.sqrt(np.sum(v * v))) for v in (x, y)]
    if max(norms) <= _TINY:
        cosine = 1.0
    else:
        cosine = float(np.sum(x / norms[0] * (y / norms[1]))) if min(norms) > _TINY else math.nan
    euclidean = float(np.sqrt(np.sum(error * error) / np.sum(y * y))) if norms[1] > _TINY else 0.0
    return {
        "CosineSimilarity": cosine,
        "MaxAbsoluteError": float(np.max(np.abs(error))),
        "AccumulatedRelativeError": float(np.sum(relative)),
        "RelativeEuclideanDistance": euclidean,
        "KullbackLeiblerDivergence": _divergence(x, y),
        "StandardDeviation": ",".join(f"({float(v.mean()):.3f};{float(v.std()):.3f})" for v in (x, y)),
        "MeanAbsoluteError": float(np.mean(np.abs(error))),
        "RootMeanSquareError": float(np.sqrt(np.mean(error * error))),
        "MaxRelativeError": float(np.max(relative)),
        "MeanRelativeError": float(np.mean(relative)),
    }


def _divergence(x: np.ndarray, y: np.ndarray) -> float:
    shares = []
    for values in (x, y):
        low, high = float(values.min()), float(values.max())
        if not math.isfinite(high - low) or high == low:
            return math.nan
        scaled = np.maximum((values - low) / (high - low), _TINY)
        shares.append(scaled / np.sum(scaled))
    return float(np.sum(shares[0] * np.log(shares[0] / shares[1])))
