"""A comparison as one HTML page that needs no network: verdict, error along depth, rows, spread of the chosen row."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from acl_runtime.om.replace_file import replace_file
from atc import __version__
from atc.comparing.details import EDGES
from atc.comparing.rows import STATES, Comparison, Row
from atc.html_data import embedded
from atc.writing import writing


@dataclass(frozen=True)
class Titles:
    """What was compared with what, and how."""

    model: str
    package: str
    tool: str
    command: str


def write_page(path: Path, found: Comparison, model: Path, package: Path | None, flag: str = "--html") -> None:
    """The page, whole or not at all."""
    command = " ".join(["atc", *sys.argv[1:]])
    titles = Titles(str(model), str(package or "converted on the way"), f"openatc {__version__}", command)
    with writing(flag), replace_file(path) as file:
        file.write(page(found, titles).encode())


def page(found: Comparison, titles: Titles) -> str:
    """HTML; every name in it is escaped, and data cannot end the script that holds it."""
    loader = Environment(loader=PackageLoader("atc.comparing"), autoescape=True, undefined=StrictUndefined)
    counts = {s: sum(r.state == s for r in found.rows) for s in STATES}
    first = next(
        (r for r in (*found.rows, *found.outputs) if r.source == found.first_bad and r.verdict == "fail"), None
    )
    outputs = {r.source for r in found.outputs}
    data = {"rows": [_row(r, r.source in outputs) for r in found.rows], "edges": EDGES.tolist()}
    return loader.get_template("page.html").render(
        found=found, titles=titles, counts=counts, first=first, data=embedded(data)
    )


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
    return {**words, **found, "output": is_output, "worst": worst, "spread": [] if detail is None else detail.spread}
