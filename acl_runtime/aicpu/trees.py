"""Walks through decision trees: all trees and rows side by side, level by level."""

from __future__ import annotations

import numpy as np

from acl_runtime.aicpu.registry import Array, Attrs, Inputs, implementation


@implementation("Trees")
def _trees(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    x, records, thresholds, weights, roots, depths, targets = (np.asarray(i) for i in inputs)
    x = x[:, : attrs["features"]]
    missing = np.isnan(x)
    columns = np.concatenate([np.where(missing, np.inf, x), np.where(missing, -np.inf, x)], 1)
    aggregate, shift = attrs["aggregate"], attrs["shift"]
    combine = {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add)
    start = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0)
    result = np.full((len(x), attrs["results"]), start, x.dtype)
    rows = np.arange(len(x))[:, None]
    for block, depth, target in zip(roots, depths, targets, strict=True):
        at = np.broadcast_to(block, (len(x), len(block)))
        for _level in range(min(int(depth), len(records))):  # no way from a root is longer
            record = records[at]
            above = columns[rows, record & ((1 << shift) - 1)] > thresholds[at]
            at = (record >> shift) + above
        if weights.shape[1] == 1:
            result[:, target] = combine(result[:, target], combine.reduce(weights[at, 0], axis=1))
        else:
            result = combine(result, combine.reduce(weights[at], axis=1))
    return result
