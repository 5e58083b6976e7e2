"""What the functions of `acl` share in a process: the device's books, and the handles."""

from __future__ import annotations

import atexit
import functools
import os

from acl._handles import Handles
from acl_runtime.device import Code, Context, Contexts, DeviceError, Memory, ModelTable, Reports, Stream
from acl_runtime.device.stream import stop_workers
from tensor_types.errors import EnvironmentProblem

handles = Handles()


def n_devices() -> int:
    """OPENATC_DEVICES, 1 to 16; else one. EnvironmentProblem if it is another text."""
    asked = os.environ.get("OPENATC_DEVICES") or "1"
    if not (asked.isdecimal() and 1 <= int(asked) <= _MOST_DEVICES):
        raise EnvironmentProblem(
            f"OPENATC_DEVICES is {asked!r}, which is no number of devices",
            remedy=f"use a number from 1 to {_MOST_DEVICES}",
        )
    return int(asked)


_MOST_DEVICES = 16
contexts = Contexts(n_devices)
models = ModelTable()
reports = Reports()


@functools.cache
def memory() -> Memory:
    """The memory; its addresses are reserved at the first use."""
    return Memory(soc_name(), os.environ.get("ACL_SIM_CHECK") == "1", contexts.n_devices)


def soc_name() -> str:
    """OPENATC_SOC_VERSION, else the chip that models are converted for by default."""
    return os.environ.get("OPENATC_SOC_VERSION") or "Ascend910B2"


def threads() -> int:
    """Threads that a model runs on: OPENATC_THREADS, else the cores that this process may use, 64 at most.

    EnvironmentProblem if OPENATC_THREADS is not a positive number.
    """
    asked = os.environ.get("OPENATC_THREADS")
    if asked:
        if not (asked.isdecimal() and int(asked)):
            raise EnvironmentProblem(
                f"OPENATC_THREADS is {asked!r}, which is no number of threads", remedy="use a number from 1 to 64"
            )
        return min(int(asked), 64)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, 64)


def stream_in_context(handle: int) -> Stream:
    """The stream of a handle, 0 for the default one, for a call that queues. STREAM_CONTEXT if it is another's."""
    context = contexts.current()
    stream = handles.get(handle, Stream) if handle else context.default_stream
    if stream.context is not context:
        raise DeviceError(Code.STREAM_CONTEXT, "the stream belongs to another context")
    return stream


def stream_to_wait_for(handle: int) -> Stream:
    """The stream of a handle, 0 for the default one; its context becomes the thread's."""
    if not handle:
        return contexts.current().default_stream
    stream = handles.get(handle, Stream)
    context = stream.context
    assert isinstance(context, Context)
    if not context.is_alive:
        raise DeviceError(Code.STREAM_CONTEXT, "the context of the stream was destroyed")
    contexts.set_current(context)
    return stream


atexit.register(stop_workers)
