"""`ACL_SIM_CHECK=1`: mistakes that a board would answer with a wrong result now and then are reported every time.

1. Work in flight uses memory that was freed before the stream had passed the work.
2. A range goes beyond the bytes that were asked for, though not beyond what the block takes.
3. Two streams, or a stream and the host, use the same bytes, one of them writes, and neither an event nor a
   synchronisation stands between. Every stream has a vector clock; order is that of submission, so what is found does
   not depend on how fast streams are.
4. Blocks are left at `finalize`.

A finding is a DeviceError of the task, so the code of the next synchronisation; its text names the lines of the
program that allocated and freed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.in_flight import Hold, Use
from acl_runtime.device.stream import Stream

HOST = 0
"""The host's place among streams, whose numbers start at 1."""
_OWN = ("acl", "acl_runtime", "aclruntime", "ais_bench")


@dataclass(frozen=True)
class _Access:
    use: Use
    stream: int
    number: int
    site: str


class Checks:
    """What is known of accesses and of their order. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clocks: dict[int, dict[int, int]] = {HOST: {}}
        self._accesses: dict[int, list[_Access]] = {}

    def watched(self, task: Callable[[], None], hold: Hold, stream: Stream | None) -> Callable[[], None]:
        """The task with checks around it. `stream` is None for the host's own."""
        site = program_line()
        found = self._access(hold, HOST if stream is None else stream.number, site)
        blocks = list(hold.blocks)

        def require_live() -> None:
            for _, block, use in blocks:
                if block.is_freed:
                    raise DeviceError(
                        Code.PARAM_INVALID,
                        f"{_verb(use)} of {use.what} at {use.address:#x} ({site}): {block.owner} gave the block at "
                        f"{block.site}, it was freed at {block.freed_site} before the stream had passed the work",
                    )

        def run() -> None:
            if found is not None:
                raise DeviceError(Code.PARAM_INVALID, found)
            require_live()
            task()
            require_live()

        return run

    def recorded(self, stream: Stream) -> dict[int, int]:
        """The clock of an event that is recorded now."""
        with self._lock:
            return dict(self._clock(stream.number))

    def follows(self, stream: Stream | None, clock: Mapping[int, int]) -> None:
        """What is submitted to the stream from now on, or done by the host, comes after `clock`."""
        with self._lock:
            _merge(self._clock(HOST if stream is None else stream.number), clock)

    def synchronised(self, stream: Stream) -> None:
        """The host has waited for the stream."""
        with self._lock:
            _merge(self._clock(HOST), self._clock(stream.number))

    def forget(self, address: int) -> None:
        """The block there is gone."""
        with self._lock:
            self._accesses.pop(address, None)

    def _clock(self, number: int) -> dict[int, int]:
        return self._clocks.setdefault(number, {number: 0})

    def _access(self, hold: Hold, stream: int, site: str) -> str | None:
        """Notes the uses of a task; tells of the first that races with one before."""
        found = None
        with self._lock:
            clock = self._clock(stream)
            if stream != HOST:
                _merge(clock, self._clocks[HOST])  # what the host has seen came before it submits
            clock[stream] = number = clock.get(stream, 0) + 1
            for _, block, use in hold.blocks:
                kept = []
                for old in self._accesses.get(block.address, ()):
                    if old.stream == stream or clock.get(old.stream, 0) >= old.number:
                        # What comes later and touches as much stands for it.
                        if not (_covers(use, old.use) and (use.writes or not old.use.writes)):
                            kept.append(old)
                        continue
                    kept.append(old)
                    if found is None and (use.writes or old.use.writes) and _overlap(use, old.use):
                        found = (
                            f"{_verb(use)} of {use.what} at {use.address:#x} ({_who(stream)}, {site}) and "
                            f"{_verb(old.use)} of {old.use.what} ({_who(old.stream)}, {old.site}) are in no order: put "
                            f"an event or a synchronisation between them. {block.owner} gave the block at {block.site}"
                        )
                kept.append(_Access(use, stream, number, site))
                self._accesses[block.address] = kept[-_MOST:]
        return found


_MOST = 64


def _merge(clock: dict[int, int], other: Mapping[int, int]) -> None:
    for number, count in other.items():
        if clock.get(number, 0) < count:
            clock[number] = count


def _overlap(a: Use, b: Use) -> bool:
    return a.address < b.address + b.nbytes and b.address < a.address + a.nbytes


def _covers(a: Use, b: Use) -> bool:
    return a.address <= b.address and b.address + b.nbytes <= a.address + a.nbytes


def _verb(use: Use) -> str:
    return "a write" if use.writes else "a read"


def _who(stream: int) -> str:
    return f"stream {stream}" if stream else "the host"


def program_line() -> str:
    """File and line of the program that called into these packages."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OWN:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
