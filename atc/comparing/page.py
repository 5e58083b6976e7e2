"""A comparison as one HTML page that needs no network: verdict, error along depth, rows, spread of the chosen row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acl_runtime.om.replace_file import replace_file
from atc.comparing.details import EDGES
from atc.comparing.rows import STATES, Comparison, Row
from atc.html_page import render
from atc.writing import writing


def write_page(path: Path, found: Comparison, about: Mapping[str, str], flag: str = "--html") -> None:
    """The page, whole or not at all. `about`: model, package, against, command and inputs."""
    with writing(flag), replace_file(path) as file:
        file.write(page(found, about).encode())


def page(found: Comparison, about: Mapping[str, str]) -> str:
    """HTML; every name in it is escaped, and data cannot end the script that holds it."""
    counts = {s: sum(r.state == s for r in found.rows) for s in STATES}
    outputs = {r.source for r in found.outputs}
    rows = [{**_row(r, r.source in outputs), "parents": list(found.parents.get(r.source, ()))} for r in found.rows]
    data = {"rows": rows, "edges": EDGES.tolist(), "against": about["against"]}
    return render("compare.html", data, found=found, about=about, counts=counts, first=found.first_bad_row)


def _row(row: Row, is_output: bool) -> dict[str, Any]:
    """A row as JSON values; what is no number is left out, because JSON has no NaN."""
    record = row.as_dict()
    detail = row.detail
    numbers = {k: record[k] for k in ("cosine", "rel_l2", "max_abs")}
    for name, pair in (("isolated", record["isolated"]), ("floor", record["floor"])):
        numbers[name] = None if pair is None else pair["rel_l2"]
    found = {k: v if v is None or math.isfinite(v) else None for k, v in numbers.items()}
    words = {k: record[k] for k in ("source", "kernel", "dtype", "state", "verdict", "note")}
    worst = None if detail is None else {
        "at": list(detail.worst), "shape": list(detail.shape), "ours": repr(detail.ours), "theirs": repr(detail.theirs),
    }  # fmt: skip
    several = {"mean": row.mean, "sample": row.sample}
    spread = [] if detail is None else detail.spread
    return {**words, **found, **several, "output": is_output, "worst": worst, "spread": spread}
