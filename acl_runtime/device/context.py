"""Contexts of the devices, and which of them each thread works in."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable

from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.stream import Stream


class Context:
    """Owns streams. Memory does not go with it: it is freed by its address only."""

    def __init__(self, device: int, is_primary: bool) -> None:
        self.device = device
        self.is_primary = is_primary
        self.is_alive = True
        self._lock = threading.Lock()
        self._streams: set[Stream] = set()
        self._default: Stream | None = None

    @property
    def default_stream(self) -> Stream:
        with self._lock:
            if self._default is None:
                self._default = Stream(self)
                self._streams.add(self._default)
            return self._default

    def create_stream(self) -> Stream:
        with self._lock:
            stream = Stream(self)
            self._streams.add(stream)
            return stream

    def destroy_stream(self, stream: Stream) -> None:
        """Waits for its tasks."""
        stream.close()
        with self._lock:
            self._streams.discard(stream)

    def streams(self) -> list[Stream]:
        with self._lock:
            return list(self._streams)

    def synchronize(self) -> None:
        """Waits for all of its streams; raises the first failure found."""
        failure = None
        for stream in self.streams():
            try:
                stream.synchronize()
            except DeviceError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def destroy(self) -> None:
        self.is_alive = False
        with self._lock:
            streams, self._streams = self._streams, set()
        for stream in streams:
            stream.close()


class Contexts:
    """The contexts of all devices. A primary one lives as long as `set_device` calls are not all undone.

    `count` tells how many devices there are; it is asked at the first use.
    """

    def __init__(self, count: Callable[[], int] = lambda: 1) -> None:
        self._count = functools.cache(count)
        self._lock = threading.Lock()
        self._thread = threading.local()
        self._primary: dict[int, Context] = {}
        self._references: Counter[int] = Counter()
        self._alive: set[Context] = set()

    @property
    def n_devices(self) -> int:
        return self._count()

    def check(self, device: int) -> None:
        """INVALID_DEVICEID for a number that is no device."""
        if not 0 <= device < self.n_devices:
            raise DeviceError(Code.INVALID_DEVICEID, f"there is no device {device}, only {self.n_devices} from 0 on")

    def set_device(self, device: int) -> None:
        """Makes the primary context current, and makes it if need be."""
        self.check(device)
        with self._lock:
            primary = self._primary.get(device)
            if primary is None:
                primary = self._primary[device] = Context(device, is_primary=True)
                self._alive.add(primary)
            self._references[device] += 1
            self._thread.current = primary

    def references(self, device: int) -> int:
        """The `set_device` calls that are not undone. INVALID_DEVICEID."""
        self.check(device)
        return self._references[device]

    def reset_device(self, device: int) -> None:
        """Undoes one `set_device`; the last one ends the primary context. INVALID_DEVICEID if there is none."""
        self.check(device)
        with self._lock:
            if not self._references[device]:
                raise DeviceError(Code.INVALID_DEVICEID, f"device {device} is not set")
            self._references[device] -= 1
            if self._references[device]:
                return
            primary = self._primary.pop(device)
            self._alive.discard(primary)
        primary.destroy()

    def create(self, device: int) -> Context:
        """A new context, current for this thread."""
        self.check(device)
        context = Context(device, is_primary=False)
        with self._lock:
            self._alive.add(context)
        self._thread.current = context
        return context

    def destroy(self, context: Context) -> None:
        """Ends a context and its streams. CONTEXT_NULL for the primary one, which `reset_device` ends."""
        if context.is_primary:
            raise DeviceError(Code.CONTEXT_NULL, "the context of set_device ends with reset_device")
        with self._lock:
            self._alive.discard(context)
        context.destroy()

    def set_current(self, context: Context) -> None:
        if not context.is_alive:
            raise DeviceError(Code.CONTEXT_NULL, "the context was destroyed")
        self._thread.current = context

    def current(self) -> Context:
        """The context of this thread. CONTEXT_NULL if it has none, or one that was destroyed."""
        context: Context | None = getattr(self._thread, "current", None)
        if context is None or not context.is_alive:
            raise DeviceError(Code.CONTEXT_NULL, "this thread has no context: call set_device or set_context in it")
        return context

    def streams(self, device: int) -> list[Stream]:
        """Those of all contexts of a device."""
        with self._lock:
            contexts = [c for c in self._alive if c.device == device]
        return [stream for context in contexts for stream in context.streams()]

    def synchronize_device(self, device: int) -> None:
        """Waits for all streams of a device; raises the first failure found."""
        with self._lock:
            contexts = [c for c in self._alive if c.device == device]
        failure = None
        for context in contexts:
            try:
                context.synchronize()
            except DeviceError as error:
                failure = failure or error
        if failure is not None:
            raise failure
