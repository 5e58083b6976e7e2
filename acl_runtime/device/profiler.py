"""Profiles of a program: the tasks of every execution while it is on, as op_summary and trace.

    FOLDER/PROF_<number>_<time>_<process>/mindstudio_profiler_output/op_summary_<time>.csv, msprof_<time>.json,
        with stamps of the program msprof_tx_<time>.csv

Subscribers get the tasks of one model as records in a pipe while it runs.
"""

from __future__ import annotations

import itertools
import json
import os
import struct
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.stamps import Stamped, events_of, table_of
from acl_runtime.om.replace_file import replace_file
from acl_runtime.profile import TaskTime
from acl_runtime.profile_files import ProfiledTask, trace, write_op_summary

_MOST_TASKS = 1 << 20
_numbers = itertools.count(1)


_RECORD = struct.Struct("<IIIIQQQ96s384s")
RECORD_BYTES = _RECORD.size


class OpRecord(NamedTuple):
    """A task as a subscriber reads it; times in ns."""

    model: int
    type: str
    name: str
    begin: int
    end: int
    duration: int

    def packed(self) -> bytes:
        """`RECORD_BYTES` for every task; a name that is too long is cut."""
        type_, name = self.type.encode()[:95], self.name.encode()[:383]
        return _RECORD.pack(self.model, len(type_), len(name), 0, self.begin, self.end, self.duration, type_, name)

    @classmethod
    def unpacked(cls, data: bytes) -> OpRecord:
        model, type_len, name_len, _, begin, end, duration, type_, name = _RECORD.unpack(data)
        return cls(model, type_[:type_len].decode("utf-8", "replace"), name[:name_len].decode("utf-8", "replace"),
                   begin, end, duration)  # fmt: skip


class Profiler:
    """The profile of a process. `is_on` tells executions whether to measure; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._devices: set[int] = set()
        self._tasks: dict[int, list[ProfiledTask]] = {}
        self._subscribers: dict[int, int] = {}
        self._stamps: list[Stamped] = []
        self.is_on = False

    @property
    def is_open(self) -> bool:
        return self._folder is not None

    def open(self, folder: Path) -> None:
        """PROF_ALREADY_RUN if it is."""
        with self._lock:
            if self._folder is not None:
                raise DeviceError(Code.PROF_ALREADY_RUN, f"a profile goes to {self._folder} already")
            self._folder, self._tasks, self._stamps = folder, {}, []

    def start(self, devices: Sequence[int]) -> None:
        """PROF_NOT_RUN if it was not opened, PROF_ALREADY_RUN for a device that is profiled."""
        with self._lock:
            if self._folder is None:
                raise DeviceError(Code.PROF_NOT_RUN, "prof.init was not called")
            if again := self._devices & {*devices}:
                raise DeviceError(Code.PROF_ALREADY_RUN, f"device {min(again)} is profiled already")
            self._devices |= {*devices}
            self._switch()

    def stop(self, devices: Sequence[int]) -> None:
        """PROF_NOT_RUN for a device that is not profiled."""
        with self._lock:
            if missing := {*devices} - self._devices:
                raise DeviceError(Code.PROF_NOT_RUN, f"device {min(missing)} is not profiled")
            self._devices -= {*devices}
            self._switch()

    def close(self) -> Path | None:
        """Writes the files and ends; the folder of them, None without a task. PROF_NOT_RUN, WRITE_FILE."""
        with self._lock:
            if self._folder is None:
                raise DeviceError(Code.PROF_NOT_RUN, "prof.init was not called")
            folder, tasks, stamps = self._folder, self._tasks, self._stamps
            self._folder, self._tasks, self._devices, self._stamps = None, {}, set(), []
            self._switch()
        return _write(folder, tasks, stamps) if stamps or any(tasks.values()) else None

    def stamp(self, stamped: Stamped) -> None:
        """Keeps what a program marked, while a device is profiled."""
        with self._lock:
            if self._devices and len(self._stamps) < _MOST_TASKS:
                self._stamps.append(stamped)

    def subscribe(self, model: int, pipe: int) -> None:
        """Writes records of the model's tasks to a file descriptor from now on. PROF_REPEAT_SUBSCRIBE."""
        with self._lock:
            if model in self._subscribers:
                raise DeviceError(Code.PROF_REPEAT_SUBSCRIBE, f"model {model} is subscribed already")
            self._subscribers[model] = pipe
            self._switch()

    def unsubscribe(self, model: int) -> None:
        """PROF_NOT_RUN if it was not subscribed."""
        with self._lock:
            if self._subscribers.pop(model, None) is None:
                raise DeviceError(Code.PROF_NOT_RUN, f"model {model} is not subscribed")
            self._switch()

    def wants(self, model: int, device: int) -> bool:
        """Whether an execution is to be measured."""
        return self.is_on and (device in self._devices or model in self._subscribers)

    def add(self, model: int, device: int, stream: int, rows: Sequence[TaskTime], calls: np.ndarray) -> None:
        """The tasks of an execution with their calls. WRITE_FILE if a subscriber has gone."""
        order = np.argsort(calls["task"], kind="stable")
        bounds = np.searchsorted(calls["task"][order], np.arange(len(rows) + 1))
        tasks = []
        for number, row in enumerate(rows):
            own = calls[order[bounds[number] : bounds[number + 1]]]
            times = [tuple(int(v) for v in call) for call in own[["worker", "begin", "end"]].tolist()]
            if times:
                tasks.append(ProfiledTask(row.node, row.family, row.device, times, row.grid, stream, model))  # type: ignore[arg-type]
        with self._lock:
            held = self._tasks.setdefault(device, [])
            if device in self._devices and len(held) + len(tasks) <= _MOST_TASKS:
                held += tasks
            pipe = self._subscribers.get(model)
        if pipe is None:
            return
        records = (OpRecord(model, t.kind, t.name, t.begin, t.end, sum(e - b for _, b, e in t.calls)) for t in tasks)
        data = memoryview(b"".join(record.packed() for record in records))
        try:
            while data:
                data = data[os.write(pipe, data) :]
        except OSError as error:
            raise DeviceError(Code.WRITE_FILE, f"the subscriber of model {model} has gone: {error.strerror}") from error

    def _switch(self) -> None:
        self.is_on = bool(self._devices or self._subscribers)


def _write(folder: Path, tasks: dict[int, list[ProfiledTask]], stamps: Sequence[Stamped]) -> Path:
    now = time.strftime("%Y%m%d%H%M%S")
    made = folder / f"PROF_{next(_numbers):06d}_{now}_{os.getpid()}" / "mindstudio_profiler_output"
    try:
        made.mkdir(parents=True)
        if stamps:
            with replace_file(made / f"msprof_tx_{now}.csv") as file:
                file.write(table_of(stamps))
        for device, ran in sorted(tasks.items()) or [(0, [])]:
            ran.sort(key=lambda task: task.begin)
            suffix = f"{now}_{device}" if device else now
            with replace_file(made / f"op_summary_{suffix}.csv") as file:
                write_op_summary(file, ran, device=device)
            with replace_file(made / f"msprof_{suffix}.json") as file:
                whole = trace(f"device {device}", ran, {})
                if stamps:
                    whole["traceEvents"] += events_of(stamps, ran[0].begin if ran else stamps[0].begin)
                file.write(json.dumps(whole, separators=(",", ":")).encode())
    except OSError as error:
        raise DeviceError(Code.WRITE_FILE, f"cannot write a profile into {folder}: {error.strerror}") from error
    return made
