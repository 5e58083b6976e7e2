"""The figures of a benchmark: minimum, maximum, mean, median and 99th percentile, printed and written as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

_RULE = "-----------------Performance Summary------------------"


def figures(times: Sequence[float]) -> dict[str, float | int]:
    """Of milliseconds."""
    values = np.asarray(times or [0.0])
    return {
        "min": float(values.min()), "max": float(values.max()), "mean": float(values.mean()),
        "median": float(np.median(values)), "percentile(99%)": float(np.percentile(values, 99)), "count": len(times),
    }  # fmt: skip


def line(name: str, found: dict[str, float | int]) -> str:
    """One row of the summary."""
    words = ", ".join(f"{k} = {v}" for k, v in found.items() if k != "count")
    return f"{name} (ms): {words}"


class Summary:
    """What a benchmark measured."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.compute: list[float] = []
        self.h2d: list[float] = []
        self.d2h: list[float] = []
        self.files: dict[int, dict[str, list[str]]] = {}

    @property
    def throughput(self) -> float:
        """Items a second: a batch in the mean time of an execution."""
        mean = figures(self.compute)["mean"]
        return 1000 * self.batch / mean if mean else 0.0

    def lines(self, all_figures: bool) -> list[str]:
        compute = figures(self.compute)
        rows = [_RULE]
        if all_figures:
            rows.append(line("H2D_latency", figures(self.h2d)))
        rows.append(line("NPU_compute_time", compute))
        if all_figures:
            rows.append(line("D2H_latency", figures(self.d2h)))
        rows.append(
            f"throughput 1000*batchsize.mean({self.batch})/NPU_compute_time.mean({compute['mean']}): {self.throughput}"
        )
        rows.append("-" * len(_RULE))
        return rows

    def write(self, path: Path, arguments: dict[str, Any]) -> None:
        """Writes the JSON file, whole or not at all."""
        record = {
            "filesinfo": self.files,
            "args": arguments,
            "NPU_compute_time": figures(self.compute),
            "H2D_latency": figures(self.h2d),
            "D2H_latency": figures(self.d2h),
            "npu_compute_time_list": self.compute,
            "throughput": self.throughput,
            "pid": os.getpid(),
        }
        part = path.with_name(f".{path.name}.part")
        part.write_text(json.dumps(record, indent=2))
        part.replace(path)
