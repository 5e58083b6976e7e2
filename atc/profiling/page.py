"""A profile as one HTML page that needs no network: figures, advice, kernels, swimlane, roofline, memory."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from acl_runtime.om.replace_file import replace_file
from atc.html_page import render
from atc.profiling.advice import advise
from atc.profiling.report import ProfileReport
from atc.writing import writing

_MOST_CALLS = 50_000
"""More bars than this a page does not draw."""


def write_page(path: Path, report: ProfileReport, flag: str = "--html") -> None:
    """The page, whole or not at all."""
    with writing(flag), replace_file(path) as file:
        file.write(page(report).encode())


def page(report: ProfileReport) -> str:
    """HTML; every name in it is escaped, and data cannot end the script that holds it."""
    return render("profile.html", _data(report), report=report, advice=advise(report))


def _data(report: ProfileReport) -> dict[str, Any]:
    calls = report.calls[:_MOST_CALLS]
    return {
        "kernels": [asdict(k) for k in report.kernels],
        "calls": [[int(t), int(w), int(b), int(e)] for t, w, b, e in calls.tolist()],
        "threads": report.threads,
        "span": report.span_ms * 1e6,
        "peaks": asdict(report.peaks),
        "blocks": [asdict(b) for b in report.memory.blocks],
        "arena": report.memory.arena,
        "after": [list(a) for a in report.after],
    }
