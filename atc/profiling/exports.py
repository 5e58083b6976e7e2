"""Files of a profile: a table of kernels as CSV, and a trace for ui.perfetto.dev or chrome://tracing.

The trace has one lane a thread, an arrow for each dependence between tasks that ran, and a counter of live memory. It
holds the very calls that the rows sum.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

from acl_runtime.om.replace_file import replace_file
from atc.profiling.report import ProfileReport
from atc.writing import writing

_COLUMNS = ("Op Name", "OP Type", "Task Type", "Task Duration(us)", "Median Duration(us)", "Ratio(%)", "Block Dim",
            "Kernel Name", "FLOPs", "Bytes", "Bound", "Utilisation(%)", "Source Nodes")  # fmt: skip
_ARROWS = 20_000
"""A viewer shows no more arrows than this in good time."""


def write_op_summary(path: Path, report: ProfileReport, flag: str = "--csv") -> None:
    """One line a task in program order, under the column names that profilers of the field use."""
    with writing(flag), replace_file(path) as binary:
        file = io.TextIOWrapper(binary, encoding="utf-8", newline="")
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        for k in report.kernels:
            flops = "" if k.flops is None else f"{k.flops:.0f}"
            used = "" if k.utilisation is None else f"{100 * k.utilisation:.2f}"
            writer.writerow(
                [k.name, k.family, k.device, f"{k.ms * 1e3:.3f}", f"{k.median_ms * 1e3:.3f}", f"{100 * k.share:.3f}",
                 k.grid, k.kernel, flops, k.bytes, k.bound, used, ";".join(k.source_nodes)]
            )  # fmt: skip
        file.detach()  # flushed, and still the file's owner's to close


def write_trace(path: Path, report: ProfileReport, flag: str = "-o") -> None:
    """Trace events; compressed where the name ends in .gz."""
    data = json.dumps(trace(report), separators=(",", ":")).encode()
    with writing(flag), replace_file(path) as file:
        file.write(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def trace(report: ProfileReport) -> dict[str, Any]:
    """The trace as JSON values: complete events in microseconds from the first call."""
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": f"openatc {report.package}"}}
    ]
    for worker in range(report.threads):
        events.append(
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": worker, "args": {"name": f"core {worker}, stream 0"}}
        )
        events.append({"name": "thread_sort_index", "ph": "M", "pid": 0, "tid": worker, "args": {"sort_index": worker}})
    begins: dict[int, tuple[float, int]] = {}
    ends: dict[int, tuple[float, int]] = {}
    for task, worker, begin, end in report.calls.tolist():
        kernel = report.kernels[task]
        events.append(
            {"name": kernel.name, "cat": kernel.family, "ph": "X", "ts": begin / 1e3, "dur": (end - begin) / 1e3,
             "pid": 0, "tid": worker,
             "args": {"task": task, "kernel": kernel.kernel, "bound": kernel.bound, "bytes": kernel.bytes,
                      "flops": kernel.flops, "source_nodes": kernel.source_nodes}}
        )  # fmt: skip
        if task not in begins or begin < begins[task][0]:
            begins[task] = (begin, worker)
        if task not in ends or end > ends[task][0]:
            ends[task] = (end, worker)
    arrows = [(a, b) for b, before in enumerate(report.after) for a in before if a in ends and b in begins]
    for number, (source, sink) in enumerate(arrows[:_ARROWS]):
        out, in_ = ends[source], begins[sink]
        common = {"name": "needs", "cat": "dependence", "id": number, "pid": 0}
        # A flow binds to the slice around its time: it starts just before the end of one.
        events.append({**common, "ph": "s", "ts": (out[0] - 1) / 1e3, "tid": out[1]})
        events.append({**common, "ph": "f", "bp": "e", "ts": in_[0] / 1e3, "tid": in_[1]})
    for task, live in enumerate(report.memory.live):
        if task in begins:
            events.append({"name": "live arena bytes", "ph": "C", "ts": begins[task][0] / 1e3, "pid": 0,
                           "args": {"bytes": live}})  # fmt: skip
    other = {"tool": report.tool, "command": report.command, "input": report.input_digest, "host": report.host_class}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": other}
