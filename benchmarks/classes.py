"""Ours beside the fastest peer, by class of model and mode: what a user gains or loses by the choice."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from atc.benchmarking.contenders import CONTENDERS, OURS

CLASSES = {
    "fp32": (OURS, ("onnxruntime", "openvino")),
    "bf16": ("ours-bf16", ("openvino-bf16",)),
    "int8": (OURS, ("onnxruntime", "openvino")),
    "int8-quantising": ("ours-quantising", ("onnxruntime", "openvino")),
}
"""The contender that is ours and its peers; bf16 is a mode in which the models of fp32 run, and int8-quantising is what
OpenVINO does with weights of codes by default, where our default multiplies the numbers of the model."""
assert {name for ours, peers in CLASSES.values() for name in (ours, *peers)} <= set(CONTENDERS)


@dataclass(frozen=True)
class Standing:
    """`ratio` is the geometric mean over `cases` of our time by the fastest peer's, `worst` the largest, of a case."""

    cases: int
    ratio: float
    worst: float
    worst_case: str


def standings(cases: Iterable[dict[str, Any]]) -> dict[str, Standing]:
    """By class, over the cases in which ours and a peer have times."""
    found: dict[str, list[tuple[float, str]]] = {}
    for case in cases:
        for name, (ours, peers) in CLASSES.items():
            if (case["class"] == "int8") != name.startswith("int8"):
                continue
            records = case["contenders"]
            timed = [records[p] for p in peers if "median_ms" in records.get(p, {})]
            if timed and "median_ms" in records.get(ours, {}):
                fastest = min(timed, key=lambda record: float(record["median_ms"]))
                found.setdefault(name, []).append((_paired(records[ours], fastest), case["name"]))
    return {
        name: Standing(len(ratios), statistics.geometric_mean(r for r, _ in ratios), *max(ratios))
        for name, ratios in found.items()
    }


def _paired(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Median of the ratios of two contenders' turns in the same rounds."""
    return statistics.median(a / b for a, b in zip(one["slices_ms"], other["slices_ms"], strict=True))
