"""acl.prof: times of the tasks that models run, in the files of Ascend's profiler or in a pipe."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acl._absent import absent
from acl._call import integer, integers, plain, status, text, valued, word
from acl._life_cycle import profiles_by_settings
from acl._process import contexts, handles, memory, models
from acl_runtime.device import Code, DeviceError
from acl_runtime.device.profiler import RECORD_BYTES, OpRecord
from acl_runtime.device.stamps import MARK, PUSHED, RANGE, Stamped


@dataclass(frozen=True, eq=False)
class _Config:
    devices: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Subscription:
    pipe: int


@dataclass(eq=False)
class _Stamp:
    message: str = ""


@dataclass(frozen=True, eq=False)
class _Range:
    message: str
    thread: int
    begin: int


_pushed = threading.local()
_LONGEST_MESSAGE = 127
_MOST_RANGES = 1 << 12


def _profiler() -> Any:
    if profiles_by_settings():
        raise DeviceError(Code.PROF_API_CONFLICT, "the file of acl.init asks for a profile: leave one of both out")
    return models.watch.profiler


@status(text)
def init(folder: str) -> None:
    """Begins a profile, whose files go below `folder`. 100003 if this is none, 100042 if one has begun."""
    if not os.path.isdir(folder):
        raise DeviceError(Code.INVALID_FILE, f"there is no folder {folder}")
    _profiler().open(Path(folder))


@plain(integers, integer, integer, word)
def create_config(devices: list[int], metrics: int, events: int, kinds: int) -> int:
    """What `start` and `stop` take; 0 for a device that there is not. Times of tasks are measured, whatever metrics,
    events and kinds of data are asked for."""
    if not devices or any(not 0 <= d < contexts.n_devices for d in devices):
        raise DeviceError(Code.INVALID_PARAM, f"devices {devices}: there are {contexts.n_devices}, from 0 on")
    return handles.of(_Config(tuple(dict.fromkeys(devices))))


@status(word)
def destroy_config(config: int) -> None:
    handles.remove(config, _Config)


@status(word)
def start(config: int) -> None:
    """Measures from now on. 100043 before `init`."""
    _profiler().start(handles.get(config, _Config).devices)


@status(word)
def stop(config: int) -> None:
    """Measures no more. 100043 for a device that is not profiled."""
    _profiler().stop(handles.get(config, _Config).devices)


@status()
def finalize() -> None:
    """Writes op_summary and the trace. 100043 before `init`."""
    _profiler().close()


@plain(integer, integer, integer)
def create_subscribe_config(time_info: int, metrics: int, pipe: int) -> int:
    """What `model_subscribe` takes: records go to the file descriptor `pipe`. Times are always measured."""
    if pipe < 0:
        raise DeviceError(Code.INVALID_PARAM, f"{pipe} is no file descriptor")
    return handles.of(_Subscription(pipe))


@status(word)
def destroy_subscribe_config(config: int) -> None:
    handles.remove(config, _Subscription)


@status(word, word)
def model_subscribe(model: int, config: int) -> None:
    """Writes a record of each task of the model into the pipe as it runs. 148046 if it is subscribed already."""
    models.get(model)
    _profiler().subscribe(model, handles.get(config, _Subscription).pipe)


@status(word)
def model_un_subscribe(model: int) -> None:
    _profiler().unsubscribe(model)


@plain()
def create_stamp() -> int:
    """What `mark`, `push` and `range_start` put into the profile, while one is measured."""
    return handles.of(_Stamp())


@status(word)
def destroy_stamp(stamp: int) -> None:
    handles.remove(stamp, _Stamp)


@status(word, text, integer)
def set_stamp_trace_message(stamp: int, message: str, length: int) -> None:
    """The first `length` bytes of the message stand in the profile."""
    if not 0 < length <= _LONGEST_MESSAGE:
        raise DeviceError(Code.INVALID_PARAM, f"a message of {length} bytes, 1 to {_LONGEST_MESSAGE} are allowed")
    handles.get(stamp, _Stamp).message = message.encode()[:length].decode("utf-8", "ignore")


@status(word)
def mark(stamp: int) -> None:
    """Marks a point."""
    message, now = handles.get(stamp, _Stamp).message, time.monotonic_ns()
    models.watch.profiler.stamp(Stamped(MARK, message, threading.get_native_id(), now, now))


@status(word)
def push(stamp: int) -> None:
    """Begins a range of this thread, which the next `pop` that is not for an inner one ends."""
    message = handles.get(stamp, _Stamp).message
    if not hasattr(_pushed, "ranges"):
        _pushed.ranges = []
    if len(_pushed.ranges) >= _MOST_RANGES:
        raise DeviceError(Code.STORAGE_OVER_LIMIT, f"{_MOST_RANGES} ranges of this thread have not ended")
    _pushed.ranges.append((message, time.monotonic_ns()))


@status()
def pop() -> None:
    """Ends the innermost range of this thread. 100000 if there is none."""
    if not getattr(_pushed, "ranges", None):
        raise DeviceError(Code.INVALID_PARAM, "no range of this thread was pushed")
    message, begin = _pushed.ranges.pop()
    models.watch.profiler.stamp(Stamped(PUSHED, message, threading.get_native_id(), begin, time.monotonic_ns()))


@valued(word)
def range_start(stamp: int) -> int:
    """Begins a range that any thread may end; gives its number."""
    return handles.of(_Range(handles.get(stamp, _Stamp).message, threading.get_native_id(), time.monotonic_ns()))


@status(word)
def range_stop(number: int) -> None:
    """Ends a range. 100000 for one that has ended."""
    begun = handles.remove(number, _Range)
    models.watch.profiler.stamp(Stamped(RANGE, begun.message, begun.thread, begun.begin, time.monotonic_ns()))


@valued()
def get_op_desc_size() -> int:
    """Bytes of a record."""
    return RECORD_BYTES


@valued(word, word)
def get_op_num(address: int, size: int) -> int:
    """Records in what was read from the pipe. 100000 if they are not whole."""
    if not size or size % RECORD_BYTES:
        raise DeviceError(Code.INVALID_PARAM, f"{size} bytes are no records of {RECORD_BYTES}")
    memory().check(address, size, "the records")
    return size // RECORD_BYTES


def _record(address: int, size: int, index: int) -> OpRecord:
    at = index * RECORD_BYTES
    if at + RECORD_BYTES > size:
        raise DeviceError(Code.INVALID_PARAM, f"there is no record {index} in {size} bytes")
    memory().check(address + at, RECORD_BYTES, "the record")
    return OpRecord.unpacked(memory().bytes(address + at, RECORD_BYTES).tobytes())


@plain(word, word, word)
def get_model_id(address: int, size: int, index: int) -> int:
    """Of the task of record `index`; 0 if there is none."""
    return _record(address, size, index).model


@valued(word, word, word)
def get_op_type_len(address: int, size: int, index: int) -> int:
    return len(_record(address, size, index).type)


@plain(word, word, word, word, failure="")
def get_op_type(address: int, size: int, index: int, length: int) -> str:
    """The first `length` characters of the task's type."""
    return _record(address, size, index).type[:length]


@valued(word, word, word)
def get_op_name_len(address: int, size: int, index: int) -> int:
    return len(_record(address, size, index).name)


@plain(word, word, word, word, failure="")
def get_op_name(address: int, size: int, index: int, length: int) -> str:
    """The first `length` characters of the task's name."""
    return _record(address, size, index).name[:length]


@plain(word, word, word)
def get_op_start(address: int, size: int, index: int) -> int:
    """Begin of the task, ns of a monotonic clock."""
    return _record(address, size, index).begin


@plain(word, word, word)
def get_op_end(address: int, size: int, index: int) -> int:
    """End of the task, ns of the same clock."""
    return _record(address, size, index).end


@plain(word, word, word)
def get_op_duration(address: int, size: int, index: int) -> int:
    """What its cores were busy together, ns."""
    return _record(address, size, index).duration


globals().update(absent(__name__))
__all__ = [
    "create_config", "create_stamp", "create_subscribe_config", "destroy_config", "destroy_stamp",
    "destroy_subscribe_config", "finalize", "get_model_id", "get_op_desc_size", "get_op_duration", "get_op_end",
    "get_op_name", "get_op_name_len", "get_op_num", "get_op_start", "get_op_type", "get_op_type_len", "init", "mark",
    "model_subscribe", "model_un_subscribe", "pop", "push", "range_start", "range_stop", "set_stamp_trace_message",
    "start", "stop",
    *sorted(absent(__name__)),
]  # fmt: skip
