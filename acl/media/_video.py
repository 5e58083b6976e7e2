"""VDEC and VENC: channels that decode or encode video and call back on a thread of the program.

A channel has a queue of its own; what is sent is copied at once, and every frame that comes out is given with the
oldest description that was sent for one.
"""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, cast

import numpy as np

from acl._call import Function, anything, function, status, word
from acl._process import contexts, handles, memory, reports
from acl.media._channels import bytes_of, check_device
from acl.media._fields import accessors, life
from acl_runtime.device import Code, DeviceError, Stream
from acl_runtime.device.media import DecoderChannel, DecoderFrame, EncoderChannel, EncoderFrame, Picture, StreamData
from acl_runtime.device.media.video import Decoder, Encoder

_DRAIN_S = 5.0
_FIELDS: dict[type, list[str]] = {
    kind: [f.name for f in fields(kind) if f.name != "callback"] for kind in (DecoderChannel, EncoderChannel)
}

_made = {
    **life(__name__, "vdec_{}_channel_desc", DecoderChannel),
    **accessors(__name__, "vdec_{}_channel_desc", DecoderChannel, _FIELDS[DecoderChannel]),
    **life(__name__, "vdec_{}_frame_config", DecoderFrame),
    **life(__name__, "venc_{}_channel_desc", EncoderChannel),
    **accessors(__name__, "venc_{}_channel_desc", EncoderChannel, _FIELDS[EncoderChannel]),
    **life(__name__, "venc_{}_frame_config", EncoderFrame),
    **accessors(__name__, "venc_{}_frame_config", EncoderFrame),
}
globals().update(_made)

__all__ = [
    *_made,
    "vdec_create_channel",
    "vdec_destroy_channel",
    "vdec_send_frame",
    "vdec_set_channel_desc_callback",
    "venc_create_channel",
    "venc_destroy_channel",
    "venc_send_frame",
    "venc_set_channel_desc_callback",
]


@dataclass(eq=False)
class _Open:
    """An open channel: its codec, its queue, and the descriptions that wait for a frame."""

    codec: Decoder | Encoder
    queue: Stream
    thread: int
    waiting: deque[Any] = field(default_factory=deque)


_open: dict[object, _Open] = {}


@status(word, function)
def vdec_set_channel_desc_callback(channel: int, callback: Callable[..., Any]) -> None:
    """Called with stream description, picture description and user data of each frame."""
    handles.get(channel, DecoderChannel).callback = callback


@status(word, function)
def venc_set_channel_desc_callback(channel: int, callback: Callable[..., Any]) -> None:
    """Called with picture description, stream description and user data of each packet."""
    handles.get(channel, EncoderChannel).callback = callback


@status(word)
def vdec_create_channel(channel: int) -> None:
    """Opens a decoder. FEATURE_NOT_SUPPORT without PyAV, INVALID_PARAM if it is open."""
    item = handles.get(channel, DecoderChannel)
    _create(item, lambda: Decoder(item.entype, item.out_pic_format))


@status(word)
def venc_create_channel(channel: int) -> None:
    """Opens an encoder. FEATURE_NOT_SUPPORT without PyAV, INVALID_PARAM if it is open or has no size."""
    item = handles.get(channel, EncoderChannel)
    _create(item, lambda: Encoder(item))


@status(word)
def vdec_destroy_channel(channel: int) -> None:
    """Waits for what was sent and for its callbacks, then closes the decoder."""
    _destroy(handles.get(channel, DecoderChannel))


@status(word)
def venc_destroy_channel(channel: int) -> None:
    """Waits for what was sent and for its callbacks, then closes the encoder."""
    _destroy(handles.get(channel, EncoderChannel))


def _create(item: DecoderChannel | EncoderChannel, make: Callable[[], Decoder | Encoder]) -> None:
    context = contexts.current()
    if item in _open:
        raise DeviceError(Code.INVALID_PARAM, "the channel is open already")
    codec = make()
    reports.subscribe(item.thread_id, item)
    _open[item] = _Open(codec, Stream(context), item.thread_id)


def _destroy(item: DecoderChannel | EncoderChannel) -> None:
    channel = _opened(item)
    del _open[item]
    channel.queue.close()
    reports.wait(item, _DRAIN_S)
    reports.unsubscribe(channel.thread, item)


def _opened(item: DecoderChannel | EncoderChannel) -> _Open:
    if item not in _open:
        raise DeviceError(Code.INVALID_PARAM, "the channel is not open")
    return _open[item]


def _needs_callback(kind: type[DecoderChannel] | type[EncoderChannel]) -> Callable[[Function], Function]:
    """For calls that raise RuntimeError, as on a device, where the channel has no callback."""

    def decorate(call: Function) -> Function:
        @functools.wraps(call)
        def checked(*arguments: Any) -> Any:
            with contextlib.suppress(DeviceError, TypeError):
                if arguments and handles.get(word(arguments[0]), kind).callback is None:
                    unit = call.__name__[:4]
                    raise RuntimeError(f"acl.media.{call.__name__}: call {unit}_set_channel_desc_callback before")
            return call(*arguments)

        return checked

    return decorate


@_needs_callback(DecoderChannel)
@status(word, word, word, word, anything)
def vdec_send_frame(channel: int, stream: int, picture: int, config: int, user: Any) -> None:
    """Decodes a packet; with `eos` gives the frames that are left. The picture gets its size when its frame is there;
    `ret_code` is not 0 where there is none."""
    item, given = handles.get(channel, DecoderChannel), handles.get(stream, StreamData)
    opened, callback = _opened(item), cast(Function, item.callback)
    target = handles.get(picture, Picture) if picture else None
    if target is None and not given.eos:
        raise DeviceError(Code.INVALID_PARAM, "the picture description is null")
    if target is not None:
        check_device(target.data, target.size, "output picture")
    data = memory().bytes(given.data, given.size).tobytes() if given.data and given.size else b""

    def give(found: np.ndarray | None) -> None:
        at, into, source, what = opened.waiting.popleft()
        into.ret_code = int(Code.INVALID_FILE) if found is None else _put_picture(found, into)
        reports.tell(lambda: callback(source, at, what), item)

    def work() -> None:
        if target is not None:
            opened.waiting.append((picture, target, stream, user))
        try:
            _each(opened.codec.decode(data), opened, give) if data else None  # type: ignore[union-attr]
        except DeviceError:
            give(None)
        if given.eos:
            _each(opened.codec.decode(None), opened, give)  # type: ignore[union-attr]
            while opened.waiting:
                give(None)

    opened.queue.submit(work)


def _each(frames: Iterator[np.ndarray], opened: _Open, give: Callable[[np.ndarray], None]) -> None:
    for found in frames:
        if opened.waiting:
            give(found)


def _put_picture(found: np.ndarray, into: Picture) -> int:
    """Writes a frame with strides of 16 and 2; gives the code."""
    height, width = len(found) * 2 // 3, found.shape[1]
    stride, rows = -(-width // 16) * 16, height
    into.width, into.height, into.width_stride, into.height_stride = width, height, stride, rows
    if into.size < stride * rows * 3 // 2 or into.data not in memory().device:
        return int(Code.INVALID_PARAM)
    try:
        bytes_of(into.data, stride * rows * 3 // 2).reshape(rows * 3 // 2, stride)[:, :width] = found
    except DeviceError as error:
        return int(error.code)
    return 0


@_needs_callback(EncoderChannel)
@status(word, word, word, word, anything)
def venc_send_frame(channel: int, picture: int, reserved: int, config: int, user: Any) -> None:
    """Encodes a picture; with `eos` in the settings gives the packets that are left. The memory of a packet lives while
    the callback runs."""
    item = handles.get(channel, EncoderChannel)
    opened, callback = _opened(item), cast(Function, item.callback)
    settings = handles.get(config, EncoderFrame) if config else EncoderFrame()
    source = _picture_of(item, handles.get(picture, Picture)) if picture else None
    if source is None and not settings.eos:
        raise DeviceError(Code.INVALID_PARAM, "the picture description is null")
    ends, is_key = bool(settings.eos), bool(settings.force_i_frame)

    def give(data: bytes) -> None:
        at, what = opened.waiting.popleft() if opened.waiting else (0, user)

        def call() -> None:
            block = memory().device.allocate(max(1, len(data)), "venc_send_frame")
            packet = StreamData(block.address, len(data), item.entype)
            handle = handles.of(packet)
            try:
                bytes_of(block.address, len(data))[:] = np.frombuffer(data, np.uint8)
                callback(at, handle, what)
            finally:
                handles.remove(handle, StreamData)
                memory().device.free(block.address)

        reports.tell(call, item)

    def work() -> None:
        if source is not None:
            opened.waiting.append((picture, user))
            for data in opened.codec.encode(source, is_key):  # type: ignore[union-attr]
                give(data)
        if ends:
            for data in opened.codec.encode(None, False):  # type: ignore[union-attr]
                give(data)

    opened.queue.submit(work)


def _picture_of(item: EncoderChannel, given: Picture) -> np.ndarray:
    """A copy of the pixels, [height * 3 / 2, width]."""
    width, height = item.pic_width, item.pic_height
    stride, rows = given.width_stride or width, given.height_stride or height
    if (given.width, given.height) != (width, height) or stride < width or rows < height or rows % 2:
        raise DeviceError(
            Code.INVALID_PARAM, f"a picture of {given.width} x {given.height} with strides {stride} x {rows} for a "
            f"channel of {width} x {height}",
        )  # fmt: skip
    check_device(given.data, stride * rows * 3 // 2, "picture")
    whole = bytes_of(given.data, stride * rows * 3 // 2).reshape(rows * 3 // 2, stride)[:, :width]
    return np.concatenate([whole[:height], whole[rows : rows + height // 2]])

