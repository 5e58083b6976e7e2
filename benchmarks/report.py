"""The figures as a table, and what a reader must know beside them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from atc.benchmarking.contenders import REFERENCE
from benchmarks.classes import standings

REASON_LENGTH = 300  # on the terminal; the JSON has all of it


def geometric_means(cases: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Per contender, over the cases it finished: how many, and the geometric mean of the median ratios."""
    ratios: dict[str, list[float]] = {}
    for case in cases:
        for label, record in case["contenders"].items():
            if "ratio_median" in record:
                ratios.setdefault(label, []).append(record["ratio_median"])
    return {label: {"cases": len(found), "ratio": statistics.geometric_mean(found)} for label, found in ratios.items()}


def table(title: str) -> Table:
    columns = [
        "case",
        "contender",
        "min ms",
        "median ms",
        f"time / {REFERENCE}",
        "10th pct",
        "GFLOP/s",
        "% of peak",
        "machine GFLOP/s",
    ]
    result = Table(title=title)
    for number, column in enumerate(columns):
        result.add_column(column, justify="left" if number < 2 else "right", no_wrap=number < 2)
    return result


def add_case(result: Table, case: dict[str, Any], peak: float | None) -> None:
    """Rows of a case; `peak` is what the threads can do, in GFLOP/s."""
    rates = case["machine_gflops"]
    speed = f"{rates['median']:.0f} ({rates['min']:.0f}-{rates['max']:.0f})" if "median" in rates else "-"
    for number, (label, record) in enumerate(case["contenders"].items()):
        name = case["name"] if number == 0 else ""
        if "ratio_median" not in record:
            result.add_row(name, label, record["state"], "", "", "", "", "", "")
            continue
        rate = f"{record['gflops']:.0f}" if "gflops" in record else ""
        result.add_row(
            name,
            label,
            f"{record['min_ms']:.3f}",
            f"{record['median_ms']:.3f}",
            f"{record['ratio_median']:.3f}",
            f"{record['ratio_p10']:.3f}",
            rate,
            f"{100 * record['gflops'] / peak:.0f}" if "gflops" in record and peak else "",
            speed if number == 0 else "",
        )
    result.add_section()


def show(title: str, cases: list[dict[str, Any]], console: Console, peak: float | None = None) -> None:
    """The table, the geometric means, and the reason of everything that has no figure."""
    result = table(title)
    for case in cases:
        add_case(result, case, peak)
    console.print(result)
    for label, mean in geometric_means(cases).items():
        if label != REFERENCE:
            console.print(f"{label}: geometric mean {mean['ratio']:.3f} over {mean['cases']} cases", highlight=False)
    for name, standing in standings(cases).items():
        console.print(
            f"{name}: ours / fastest peer {standing.ratio:.3f} over {standing.cases} cases, "
            f"worst {standing.worst_case} {standing.worst:.3f}", highlight=False,
        )  # fmt: skip
    reasons = {
        f"{label}, {case['name']}: {record['state']}: {' '.join(record.get('reason', '').split())[:REASON_LENGTH]}"
        for case in cases
        for label, record in case["contenders"].items()
        if record["state"] != "ok"
    }
    for reason in sorted(reasons):
        console.print(reason, highlight=False, markup=False)
