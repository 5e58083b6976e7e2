"""Stamps: what a program marks in its own profile, as points and ranges beside the tasks of the device."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MARK, RANGE, PUSHED = "marker", "start/end", "push/pop"
_COLUMNS = ("pid", "tid", "category", "event_type", "payload_type", "payload_value", "Start_time(us)", "End_time(us)",
            "message_type", "message")  # fmt: skip
_PROCESS = 1


@dataclass(frozen=True)
class Stamped:
    """A point or a range; times in ns of the clock of the tasks."""

    kind: str
    message: str
    thread: int
    begin: int
    end: int


def table_of(stamps: Sequence[Stamped]) -> bytes:
    """The CSV file msprof_tx, by begin."""
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(_COLUMNS)
    for s in sorted(stamps, key=lambda s: s.begin):
        rows.writerow([os.getpid(), s.thread, "", s.kind, 0, 0, s.begin / 1e3, s.end / 1e3, 0, s.message])
    return text.getvalue().encode()


def events_of(stamps: Sequence[Stamped], first: int) -> list[dict[str, Any]]:
    """Trace events in microseconds from `first`, a lane for each thread."""
    lanes = {thread: n for n, thread in enumerate(dict.fromkeys(s.thread for s in stamps))}
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": _PROCESS, "tid": 0, "args": {"name": "stamps of the program"}}
    ]
    for s in stamps:
        place = {"pid": _PROCESS, "tid": lanes[s.thread], "ts": (s.begin - first) / 1e3}
        about = {"name": s.message, "cat": s.kind, **place}
        events.append(
            {**about, "ph": "i", "s": "t"} if s.kind == MARK else {**about, "ph": "X", "dur": (s.end - s.begin) / 1e3}
        )
    return events
