"""Files of a profile: a table of kernels as CSV, and a trace for ui.perfetto.dev or chrome://tracing.

Both hold the very calls that the rows sum.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acl_runtime import profile_files
from acl_runtime.om.replace_file import replace_file
from acl_runtime.profile_files import ProfiledTask
from atc.profiling.report import ProfileReport
from atc.writing import writing


def profiled_tasks(report: ProfileReport) -> list[ProfiledTask]:
    """The rows as tasks with their calls; times count from the first call."""
    calls: list[list[tuple[int, int, int]]] = [[] for _ in report.kernels]
    for task, worker, begin, end in report.calls.tolist():
        calls[task].append((worker, begin, end))
    live = report.memory.live
    return [
        ProfiledTask(
            k.name, k.family, k.device, calls[n], k.grid, after=report.after[n], live=live[n],
            args={"kernel": k.kernel, "bound": k.bound, "bytes": k.bytes, "flops": k.flops,
                  "source_nodes": k.source_nodes},
        )
        for n, k in enumerate(report.kernels)
    ]  # fmt: skip


def write_op_summary(path: Path, report: ProfileReport, flag: str = "--csv") -> None:
    """One line a task in program order, under the column names that profilers of the field use, and ours behind."""
    kernels = report.kernels
    more: list[tuple[str, Sequence[Any]]] = [
        ("Median Duration(us)", [f"{k.median_ms * 1e3:.3f}" for k in kernels]),
        ("Ratio(%)", [f"{100 * k.share:.3f}" for k in kernels]),
        ("Kernel Name", [k.kernel for k in kernels]),
        ("FLOPs", ["" if k.flops is None else f"{k.flops:.0f}" for k in kernels]),
        ("Bytes", [k.bytes for k in kernels]),
        ("Bound", [k.bound for k in kernels]),
        ("Utilisation(%)", ["" if k.utilisation is None else f"{100 * k.utilisation:.2f}" for k in kernels]),
        ("Source Nodes", [";".join(k.source_nodes) for k in kernels]),
    ]
    with writing(flag), replace_file(path) as binary:
        profile_files.write_op_summary(binary, profiled_tasks(report), more)


def write_trace(path: Path, report: ProfileReport, flag: str = "-o") -> None:
    """Trace events; compressed where the name ends in .gz."""
    data = json.dumps(trace(report), separators=(",", ":")).encode()
    with writing(flag), replace_file(path) as file:
        file.write(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def trace(report: ProfileReport) -> dict[str, Any]:
    """The trace as JSON values: complete events in microseconds from the first call."""
    about = {"tool": report.tool, "command": report.command, "input": report.input_digest, "host": report.host_class}
    return profile_files.trace(f"openatc {report.package}", profiled_tasks(report), about)
