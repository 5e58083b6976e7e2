"""Channels: what a caller opens before it gives tasks to the units."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from acl._call import status, word
from acl._process import contexts, handles, memory, stream_in_context
from acl.media._fields import accessors, life
from acl_runtime.device import Code, DeviceError, Use, in_flight
from acl_runtime.device.media import Channel, Picture

_made = {
    **life(__name__, "dvpp_{}_channel_desc", Channel),
    **accessors(__name__, "dvpp_{}_channel_desc", Channel, ("mode",)),
}
globals().update(_made)

__all__ = [*_made, "dvpp_create_channel", "dvpp_destroy_channel"]


@status(word)
def dvpp_create_channel(channel: int) -> None:
    """Opens a channel; INVALID_PARAM if it is open."""
    contexts.current()
    item = handles.get(channel, Channel)
    if item.is_open:
        raise DeviceError(Code.INVALID_PARAM, "the channel is open already")
    item.is_open = True


@status(word)
def dvpp_destroy_channel(channel: int) -> None:
    """Closes a channel; INVALID_PARAM if it is not open. Tasks that are queued still run."""
    item = handles.get(channel, Channel)
    if not item.is_open:
        raise DeviceError(Code.INVALID_PARAM, "the channel is not open")
    item.is_open = False


def submit(channel: int, stream: int, uses: Sequence[Use], results: list[Picture], work: Callable[[], None]) -> None:
    """Queues work of a unit, which keeps its memory. A failure stands in `ret_code` of the pictures and ends the
    stream's tasks."""
    if not handles.get(channel, Channel).is_open:
        raise DeviceError(Code.INVALID_PARAM, "the channel is not open: call dvpp_create_channel")
    queue = stream_in_context(stream)

    def run() -> None:
        try:
            work()
            code = 0
        except DeviceError as error:
            code = int(error.code)
            raise
        finally:
            for picture in results:
                picture.ret_code = code

    in_flight.submit(memory(), queue, in_flight.Execution(uses, run))


def bytes_of(address: int, nbytes: int) -> np.ndarray:
    """The bytes of a range that a task holds, whether it is freed by now or not."""
    return memory().device.view(address, nbytes)


def check_device(address: int, nbytes: int, what: str) -> None:
    """INVALID_PARAM unless the bytes are in one live block of device memory, as `dvpp_malloc` gives it."""
    if address not in memory().device:
        raise DeviceError(Code.INVALID_PARAM, f"{what}: {address:#x} is no device memory: use dvpp_malloc")
    try:
        memory().check(address, nbytes, what)
    except DeviceError as error:
        raise DeviceError(Code.INVALID_PARAM, error.message) from None
