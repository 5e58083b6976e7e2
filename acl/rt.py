"""acl.rt: device, contexts, streams, events, memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from acl._absent import absent
from acl._call import anything, function, integer, status, valued, word
from acl._process import contexts, handles, memory, reports, stream_in_context, stream_to_wait_for
from acl.util import owner_of
from acl_runtime.device import Code, Context, DeviceError, Event, Execution, Stream, Use, run_now, submit
from acl_runtime.device.event import elapsed_ms

_HOST = 1
_KINDS = range(6)
_FOREVER = -1

__all__ = [
    "create_context",
    "create_event",
    "create_event_ex_with_flag",
    "create_event_with_flag",
    "create_stream",
    "create_stream_with_config",
    "ctx_get_current_default_stream",
    "destroy_context",
    "destroy_event",
    "destroy_stream",
    "destroy_stream_force",
    "device_can_access_peer",
    "device_disable_peer_access",
    "device_enable_peer_access",
    "event_elapsed_time",
    "event_get_timestamp",
    "free",
    "free_host",
    "get_context",
    "get_device",
    "get_device_count",
    "get_mem_info",
    "get_primary_ctx_state",
    "get_run_mode",
    "launch_callback",
    "malloc",
    "malloc_align32",
    "malloc_cached",
    "malloc_host",
    "mem_flush",
    "mem_invalidate",
    "memcpy",
    "memcpy_async",
    "memset",
    "memset_async",
    "process_report",
    "query_event",
    "query_event_status",
    "record_event",
    "reset_device",
    "reset_device_force",
    "reset_event",
    "set_context",
    "set_device",
    "stream_get_id",
    "stream_query",
    "stream_wait_event",
    "subscribe_report",
    "synchronize_device",
    "synchronize_event",
    "synchronize_event_with_timeout",
    "synchronize_stream",
    "synchronize_stream_with_timeout",
    "unsubscribe_report",
]


# Device and contexts


@valued()
def get_run_mode() -> int:
    """1: the program runs on the host of the device."""
    return _HOST


@valued()
def get_device_count() -> int:
    return contexts.n_devices


@status(integer)
def set_device(device: int) -> None:
    """Makes the device's own context current for this thread."""
    contexts.set_device(device)


@status(integer)
def reset_device(device: int) -> None:
    """Undoes one `set_device`."""
    contexts.reset_device(device)


@status(integer)
def reset_device_force(device: int) -> None:
    """Undoes every `set_device`."""
    while contexts.references(device):
        contexts.reset_device(device)


@valued(integer, failure=lambda: (0, 0))
def get_primary_ctx_state(device: int) -> tuple[int, int]:
    """Whether `set_device` has made the device's own context; flags, which are 0."""
    return int(contexts.references(device) > 0), 0


@valued(integer, integer)
def device_can_access_peer(device: int, peer: int) -> int:
    """1 for two different devices: their memory is one address space."""
    contexts.check(device)
    contexts.check(peer)
    return int(device != peer)


@status(integer, integer)
def device_enable_peer_access(peer: int, flags: int) -> None:
    """Checks the number; copies between devices go in any case."""
    contexts.current()
    contexts.check(peer)


@status(integer)
def device_disable_peer_access(peer: int) -> None:
    """Checks the number; copies between devices go in any case."""
    contexts.current()
    contexts.check(peer)


@valued()
def get_device() -> int:
    return contexts.current().device


@valued(integer)
def create_context(device: int) -> int:
    """A context, current for this thread."""
    return handles.of(contexts.create(device))


@status(word)
def destroy_context(context: int) -> None:
    """Waits for its streams and ends them; memory stays."""
    contexts.destroy(handles.get(context, Context))
    handles.remove(context, Context)


@status(word)
def set_context(context: int) -> None:
    """Makes a context current for this thread."""
    try:
        item = handles.get(context, Context)
    except DeviceError as error:
        raise DeviceError(Code.PARAM_INVALID if context else Code.INVALID_PARAM, error.message) from None
    contexts.set_current(item)


@valued()
def get_context() -> int:
    return handles.of(contexts.current())


@status()
def synchronize_device() -> None:
    """Waits for all streams of all contexts of this thread's device."""
    device = contexts.current().device
    try:
        contexts.synchronize_device(device)
    finally:
        _has_seen(contexts.streams(device))


# Streams


@valued()
def ctx_get_current_default_stream() -> int:
    return handles.of(contexts.current().default_stream)


@valued(word)
def stream_get_id(stream: int) -> int:
    """A number of the stream in the process, from 1 on."""
    return handles.get(stream, Stream).number if stream else contexts.current().default_stream.number


@status(word)
def destroy_stream_force(stream: int) -> None:
    """Drops the tasks that have not begun."""
    item = handles.get(stream, Stream)
    context = contexts.current()
    if item.context is not context:
        raise DeviceError(Code.STREAM_CONTEXT, "the stream belongs to another context")
    item.drop()
    context.destroy_stream(item)
    handles.remove(stream, Stream)


@valued()
def create_stream() -> int:
    return handles.of(contexts.current().create_stream())


@valued(word, word)
def create_stream_with_config(priority: int, flag: int) -> int:
    """Priority and flag make no difference here."""
    return handles.of(contexts.current().create_stream())


@status(word)
def destroy_stream(stream: int) -> None:
    """Waits for its tasks."""
    item = handles.get(stream, Stream)
    context = contexts.current()
    if item.context is not context:
        raise DeviceError(Code.STREAM_CONTEXT, "the stream belongs to another context")
    context.destroy_stream(item)
    _has_seen([item])
    handles.remove(stream, Stream)


@status(word)
def synchronize_stream(stream: int) -> None:
    """Waits for the tasks queued so far; gives the code of the first that failed."""
    _synchronize(stream_to_wait_for(stream), None)


@status(word, integer)
def synchronize_stream_with_timeout(stream: int, milliseconds: int) -> None:
    """-1: no limit. 507046 when the time is over."""
    _synchronize(stream_to_wait_for(stream), _seconds(milliseconds))


@valued(word, failure=lambda: (1,))
def stream_query(stream: int) -> int:
    """0: all tasks have ended, 1: not yet."""
    item = handles.get(stream, Stream) if stream else contexts.current().default_stream
    is_idle, checks = item.is_idle(), memory().checks
    if is_idle and checks:
        checks.synchronised(item)
    return 0 if is_idle else 1


def _synchronize(stream: Stream, timeout: float | None) -> None:
    try:
        stream.synchronize(timeout)
    except DeviceError as error:
        if error.code == Code.STREAM_SYNC_TIMEOUT:
            raise
        _has_seen([stream])
        raise
    _has_seen([stream])


def _has_seen(streams: Iterable[Stream]) -> None:
    """Tells the checks that the host has waited for streams."""
    if (checks := memory().checks) is not None:
        for stream in streams:
            checks.synchronised(stream)


# Events


@valued()
def create_event() -> int:
    contexts.current()
    return handles.of(Event())


@valued(word)
def create_event_with_flag(flag: int) -> int:
    """The flag makes no difference here."""
    contexts.current()
    return handles.of(Event())


@valued(word)
def create_event_ex_with_flag(flag: int) -> int:
    """An event that counts as complete before it is recorded."""
    contexts.current()
    return handles.of(Event(is_extended=True))


@status(word)
def destroy_event(event: int) -> None:
    handles.remove(event, Event)


@status(word, word)
def record_event(event: int, stream: int) -> None:
    """Marks the end of the tasks queued so far."""
    item, queue, checks = handles.get(event, Event), stream_in_context(stream), memory().checks
    item.record(queue, checks.recorded(queue) if checks else {})


@status(word, word)
def reset_event(event: int, stream: int) -> None:
    """Makes the event unrecorded; 507006 while it is not complete."""
    item = handles.get(event, Event)
    stream_in_context(stream)
    item.reset()


@status(word, word)
def stream_wait_event(stream: int, event: int) -> None:
    """Later tasks of the stream wait for the event."""
    item = handles.get(event, Event)
    queue, checks = stream_in_context(stream), memory().checks
    item.delay(queue)
    if checks:
        checks.follows(queue, item.clock)


@valued(word, failure=lambda: (1,))
def query_event(event: int) -> int:
    """0: complete, 1: not yet."""
    return 0 if _is_complete(handles.get(event, Event)) else 1


@valued(word)
def query_event_status(event: int) -> int:
    """1: complete, 0: not yet."""
    return 1 if _is_complete(handles.get(event, Event)) else 0


@status(word)
def synchronize_event(event: int) -> None:
    _wait_for(handles.get(event, Event), None)


@status(word, integer)
def synchronize_event_with_timeout(event: int, milliseconds: int) -> None:
    """-1: no limit. 507047 when the time is over."""
    _wait_for(handles.get(event, Event), _seconds(milliseconds))


def _is_complete(event: Event) -> bool:
    done, checks = event.is_complete(), memory().checks
    if done and checks:
        checks.follows(None, event.clock)
    return done


def _wait_for(event: Event, timeout: float | None) -> None:
    event.synchronize(timeout)
    if (checks := memory().checks) is not None:
        checks.follows(None, event.clock)


@valued(word, word, failure=lambda: (0.0,))
def event_elapsed_time(start: int, end: int) -> float:
    """Milliseconds between two events."""
    return elapsed_ms(handles.get(start, Event), handles.get(end, Event))


@valued(word)
def event_get_timestamp(event: int) -> int:
    """Microseconds of a clock that only goes forward."""
    return handles.get(event, Event).time_ns // 1000


# Memory


@valued(word, integer)
def malloc(size: int, policy: int) -> int:
    """Device memory at a multiple of 64, of undefined content; the policy makes no difference here."""
    return _malloc(size)


@valued(word, integer)
def malloc_align32(size: int, policy: int) -> int:
    """The same as `malloc`, whose blocks are aligned further."""
    return _malloc(size)


@valued(word, integer)
def malloc_cached(size: int, policy: int) -> int:
    """The same as `malloc`: what is written is seen at once."""
    return _malloc(size)


@status(word, word)
def mem_flush(address: int, size: int) -> None:
    """Checks the range; there is no cache to flush."""
    memory().check(address, size, "memory")


@status(word, word)
def mem_invalidate(address: int, size: int) -> None:
    """Checks the range; there is no cache to invalidate."""
    memory().check(address, size, "memory")


def _malloc(size: int) -> int:
    if not size:
        raise DeviceError(Code.INVALID_PARAM, "0 bytes asked for")
    return memory().device.allocate(size, "rt.malloc", contexts.current()).address


@status(word)
def free(address: int) -> None:
    """Frees device memory; streams are not waited for, and what they still use stays for them alone."""
    if not address:
        raise DeviceError(Code.INVALID_PARAM, "the address is null")
    memory().device.free(address)


@valued(word)
def malloc_host(size: int) -> int:
    """Pinned host memory."""
    if not size:
        raise DeviceError(Code.INVALID_PARAM, "0 bytes asked for")
    return memory().pinned.allocate(size, "rt.malloc_host").address


@status(word)
def free_host(address: int) -> None:
    if not address:
        raise DeviceError(Code.INVALID_PARAM, "the address is null")
    memory().pinned.free(address)


@status(word, word, word, word, integer)
def memcpy(target: int, target_size: int, source: int, count: int, kind: int) -> None:
    """Copies. What the pointers are decides, not what `kind` says of them."""
    if _copies(target, target_size, source, count, kind):
        books = memory()
        books.check(target, count, "target")
        books.check(source, count, "source")
        uses = [Use(target, count, True, "target"), Use(source, count, False, "source")]
        run_now(books, Execution(uses, lambda: books.move(target, source, count)))


@status(word, word, word, word, integer, word)
def memcpy_async(target: int, target_size: int, source: int, count: int, kind: int, stream: int) -> None:
    """Copies at the stream's turn. Plain host memory is read now, and written at the turn: objects whose address
    `acl.util` gave are kept until then. 207000 from host to host."""
    queue = stream_in_context(stream)
    if not _copies(target, target_size, source, count, kind):
        return
    books = memory()
    if target not in books.device and source not in books.device:
        raise DeviceError(Code.FEATURE_NOT_SUPPORT, "a stream does not copy from host to host")
    books.check(target, count, "target")
    uses = [Use(target, count, True, "target"), Use(source, count, False, "source")]
    # The caller may drop Python objects as soon as this call is over.
    target_object = owner_of(target, count)
    staged = None if books.space(source) is not None else books.bytes(source, count)

    def copy(kept: object = target_object) -> None:
        books.move(target, source if staged is None else staged.ctypes.data, count)

    submit(books, queue, Execution(uses if staged is None else uses[:1], copy))


@status(word, word, integer, word)
def memset(address: int, size: int, value: int, count: int) -> None:
    """Sets bytes."""
    if _sets(address, size, count):
        books = memory()
        books.check(address, count, "target")
        run_now(books, Execution([Use(address, count, True, "target")], lambda: books.set(address, value & 255, count)))


@status(word, word, integer, word, word)
def memset_async(address: int, size: int, value: int, count: int, stream: int) -> None:
    """Sets bytes at the stream's turn."""
    queue = stream_in_context(stream)
    if _sets(address, size, count):
        books = memory()
        books.check(address, count, "target")

        def fill(kept: object = owner_of(address, count)) -> None:  # noqa: B008 (kept from now on)
            books.set(address, value & 255, count)

        submit(books, queue, Execution([Use(address, count, True, "target")], fill))


@valued(integer, failure=lambda: (0, 0))
def get_mem_info(attribute: int) -> tuple[int, int]:
    """Free and total bytes of this thread's device, the same for every attribute."""
    number = contexts.current().device
    device = memory().device
    return device.capacity - device.used_of(number), device.capacity


def _copies(target: int, target_size: int, source: int, count: int, kind: int) -> bool:
    """Checks the arguments of a copy; False if there is nothing to do."""
    if not count:
        return False
    if not target or not source:
        raise DeviceError(Code.INVALID_PARAM, "an address is null")
    if kind not in _KINDS:
        raise DeviceError(Code.INVALID_PARAM, f"there is no copy of kind {kind}")
    if target_size < count:
        raise DeviceError(Code.PARAM_INVALID, f"{count} bytes do not go into {target_size}")
    return target != source


def _sets(address: int, size: int, count: int) -> bool:
    if not count:
        return False
    if not address:
        raise DeviceError(Code.INVALID_PARAM, "the address is null")
    if size < count:
        raise DeviceError(Code.PARAM_INVALID, f"{count} bytes do not go into {size}")
    return True


# Callbacks


@status(word, word)
def subscribe_report(thread: int, stream: int) -> None:
    """Makes a thread the one that calls the callbacks of a stream, in `process_report`."""
    reports.subscribe(thread, stream_in_context(stream))


@status(word, word)
def unsubscribe_report(thread: int, stream: int) -> None:
    """Ends that; callbacks that were not called are dropped."""
    reports.unsubscribe(thread, handles.get(stream, Stream) if stream else contexts.current().default_stream)


@status(function, anything, integer, word)
def launch_callback(callback: Any, argument: Any, block: int, stream: int) -> None:
    """Calls `callback(argument)` at the stream's turn; with `block` 1 the stream waits until it has returned."""
    if block not in (0, 1):
        raise DeviceError(Code.INVALID_PARAM, f"block is {block}, not 0 or 1")
    queue, checks = stream_in_context(stream), memory().checks
    clock = checks.recorded(queue) if checks else {}

    def call() -> None:
        if checks:
            checks.follows(None, clock)  # the stream has come so far
        callback(argument)

    reports.launch(call, queue, bool(block))


@status(integer)
def process_report(milliseconds: int) -> None:
    """Calls one callback on this thread, or gives 507012 when the time is over. -1: no limit."""
    if not milliseconds or milliseconds < _FOREVER:
        raise DeviceError(Code.INVALID_PARAM, f"a time of {milliseconds} ms")
    reports.process(None if milliseconds == _FOREVER else milliseconds / 1000)


def _seconds(milliseconds: int) -> float | None:
    if not milliseconds or milliseconds < _FOREVER:
        raise DeviceError(Code.PARAM_INVALID, f"a time of {milliseconds} ms")
    return None if milliseconds == _FOREVER else milliseconds / 1000


globals().update(absent(__name__))
