"""Files of a profile that tools of the field read: op_summary as CSV, and a trace for ui.perfetto.dev.

For whoever has timed tasks: `atc profile` of one package, and the device's face of all that it ran.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

OP_SUMMARY = (
    "Device_id", "Model ID", "Task ID", "Stream ID", "Op Name", "OP Type", "Task Type", "Task Start Time(us)",
    "Task Duration(us)", "Task Wait Time(us)", "Block Num", "aicore_time(us)",
)  # fmt: skip
"""Columns under the names that Ascend's profiler gives them; aicore_time sums over the cores, the trace's bars too."""
_ARROWS = 20_000
"""A viewer shows no more arrows than this in good time."""


@dataclass(frozen=True)
class ProfiledTask:
    """A task that ran. kind: family of its kernel, or its operator; device: 'AI Core' or 'AI CPU'.

    calls: what its cores did, as (core, begin, end) in ns of one clock. after: positions of the tasks that had to end
    before, in the list that it stands in. args: what a viewer shows of it. live: bytes of the arena that are in use.
    """

    name: str
    kind: str
    device: str
    calls: Sequence[tuple[int, int, int]]
    grid: int = 1
    stream: int = 0
    model: int = 1
    after: Sequence[int] = ()
    args: Mapping[str, Any] = field(default_factory=dict)
    live: int | None = None

    @property
    def begin(self) -> int:
        """Of its first call, ns."""
        return min(call[1] for call in self.calls)

    @property
    def end(self) -> int:
        """Of its last call, ns."""
        return max(call[2] for call in self.calls)


def write_op_summary(
    binary: IO[bytes], tasks: Sequence[ProfiledTask], more: Sequence[tuple[str, Sequence[Any]]] = (), device: int = 0
) -> None:
    """One line a task, in their order. `more`: further columns, each a name and a value a task.

    A task that did not run (its branch was not taken) has empty times. Waiting is the time from the end of the task
    before it on the stream.
    """
    file = io.TextIOWrapper(binary, encoding="utf-8", newline="")
    writer = csv.writer(file)
    writer.writerow([*OP_SUMMARY, *(name for name, _ in more)])
    ends: dict[int, int] = {}
    for number, task in enumerate(tasks):
        times = ["", "0.000", "", "0.000"]
        if task.calls:
            waited = max(0, task.begin - ends.get(task.stream, task.begin))
            busy = sum(end - begin for _, begin, end in task.calls)
            times = [f"{n / 1e3:.3f}" for n in (task.begin, task.end - task.begin, waited, busy)]
            ends[task.stream] = task.end
        writer.writerow(
            [device, task.model, number, task.stream, task.name, task.kind,
             "AI_CORE" if task.device == "AI Core" else "AI_CPU", *times[:3], task.grid, times[3],
             *(values[number] for _, values in more)]
        )  # fmt: skip
    file.detach()  # flushed, and still its owner's to close


def trace(title: str, tasks: Sequence[ProfiledTask], about: Mapping[str, Any]) -> dict[str, Any]:
    """Trace events as JSON values, in microseconds from the first call: a lane for each core and stream, an arrow for
    each dependence between tasks that ran, a counter of live memory."""
    ran = [t for t in tasks if t.calls]
    first = min((t.begin for t in ran), default=0)
    lanes = sorted({(t.stream, core) for t in ran for core, _, _ in t.calls})
    number = {lane: n for n, lane in enumerate(lanes)}
    events: list[dict[str, Any]] = [{"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": title}}]
    for (stream, core), n in number.items():
        about_lane = {"thread_name": {"name": f"core {core}, stream {stream}"}, "thread_sort_index": {"sort_index": n}}
        events += [{"name": key, "ph": "M", "pid": 0, "tid": n, "args": args} for key, args in about_lane.items()]
    for position, task in enumerate(tasks):
        for core, begin, end in task.calls:
            times = {"ts": (begin - first) / 1e3, "dur": (end - begin) / 1e3}
            shown = {"task": position, **task.args}
            events.append({"name": task.name, "cat": task.kind, "ph": "X", **times, "pid": 0,
                           "tid": number[task.stream, core], "args": shown})  # fmt: skip
        if task.calls and task.live is not None:
            events.append({"name": "live arena bytes", "ph": "C", "ts": (task.begin - first) / 1e3, "pid": 0,
                           "args": {"bytes": task.live}})  # fmt: skip
    events += _arrows(tasks, number, first)
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": dict(about)}


def _arrows(
    tasks: Sequence[ProfiledTask], lanes: Mapping[tuple[int, int], int], first: int
) -> Iterable[dict[str, Any]]:
    pairs = [(tasks[a], task) for task in tasks for a in task.after if task.calls and tasks[a].calls]
    for number, (source, sink) in enumerate(pairs[:_ARROWS]):
        out, in_ = max(source.calls, key=lambda c: c[2]), min(sink.calls, key=lambda c: c[1])
        common = {"name": "needs", "cat": "dependence", "id": number, "pid": 0}
        # A flow binds to the slice around its time: it starts just before the end of one.
        starts, ends = (out[2] - 1 - first) / 1e3, (in_[1] - first) / 1e3
        yield {**common, "ph": "s", "ts": starts, "tid": lanes[source.stream, out[0]]}
        yield {**common, "ph": "f", "bp": "e", "ts": ends, "tid": lanes[sink.stream, in_[0]]}
