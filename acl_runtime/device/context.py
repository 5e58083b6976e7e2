"""Contexts of the one device, and which of them each thread works in."""

from __future__ import annotations

import threading

from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.stream import Stream

N_DEVICES = 1


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
    """The device's contexts. The primary one lives as long as `set_device` calls are not all undone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = threading.local()
        self._primary: Context | None = None
        self._references = 0
        self._alive: set[Context] = set()

    def set_device(self, device: int) -> None:
        """Makes the primary context current, and makes it if need be."""
        _check(device)
        with self._lock:
            if self._primary is None:
                self._primary = Context(device, is_primary=True)
                self._alive.add(self._primary)
            self._references += 1
            self._thread.current = self._primary

    def references(self, device: int) -> int:
        """The `set_device` calls that are not undone. INVALID_DEVICEID."""
        _check(device)
        return self._references

    def reset_device(self, device: int) -> None:
        """Undoes one `set_device`; the last one ends the primary context. INVALID_DEVICEID if there is none."""
        _check(device)
        with self._lock:
            if not self._references:
                raise DeviceError(Code.INVALID_DEVICEID, f"device {device} is not set")
            self._references -= 1
            if self._references:
                return
            primary, self._primary = self._primary, None
            assert primary is not None
            self._alive.discard(primary)
        primary.destroy()

    def create(self, device: int) -> Context:
        """A new context, current for this thread."""
        _check(device)
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

    def streams(self) -> list[Stream]:
        """Those of all contexts."""
        with self._lock:
            contexts = list(self._alive)
        return [stream for context in contexts for stream in context.streams()]

    def synchronize_device(self) -> None:
        """Waits for all streams of all contexts; raises the first failure found."""
        with self._lock:
            contexts = list(self._alive)
        failure = None
        for context in contexts:
            try:
                context.synchronize()
            except DeviceError as error:
                failure = failure or error
        if failure is not None:
            raise failure


def _check(device: int) -> None:
    if not 0 <= device < N_DEVICES:
        raise DeviceError(Code.INVALID_DEVICEID, f"there is no device {device}")
