"""--check_report: what the check of a model found, in the form of ATC's check_result.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from acl_runtime.om.replace_file import replace_file
from atc.writing import check_file, writing
from graph_opt.ir import Graph


def write_check_report(path: Path, graph: Graph, missing: Sequence[Any]) -> None:
    """Every operator with its verdict; `missing` are the rows of `frontend.unsupported`. PackageError if it cannot be
    written."""
    causes = {row.node: {"code": "E16002", "message": f"{row.why}; {row.remedy}"} for row in missing}
    record = check_record(graph, causes)
    check_file(path, "--check_report")
    with writing("--check_report", path), replace_file(path) as file:
        file.write(json.dumps(record, indent=4).encode())


def check_record(graph: Graph, causes: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The report: counts, and name, type, result and cause of each operator."""
    rows = []
    for node in graph.nodes:
        cause = causes.get(node.name)
        row: dict[str, Any] = {"name": node.name, "type": node.op, "result": "failed" if cause else "success"}
        rows.append({**row, "cause": [cause]} if cause else row)
    failed = sum("cause" in row for row in rows)
    return {
        "name": graph.name, "result": "failed" if failed else "success", "total": len(rows),
        "pass": len(rows) - failed, "fail": failed, "op": rows,
    }  # fmt: skip
