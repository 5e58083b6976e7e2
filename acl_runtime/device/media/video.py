"""H.264 and H.265 by PyAV, which is an extra: FEATURE_NOT_SUPPORT without it."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.media.descriptions import EncoderChannel

H265, H264_BASE, H264_MAIN, H264_HIGH = range(4)
NV12, NV21 = 1, 2
_PROFILES = {H264_BASE: "baseline", H264_MAIN: "main", H264_HIGH: "high"}
_RATE = 25


def _av() -> Any:
    try:
        import av
    except ImportError as error:
        raise DeviceError(
            Code.FEATURE_NOT_SUPPORT, f"video needs PyAV, which is not installed ({error}): pip install av"
        ) from None
    return av


def _check(entype: int, pixel: int) -> None:
    if entype not in (H265, *_PROFILES):
        raise DeviceError(Code.INVALID_PARAM, f"stream type {entype}, 0 (H.265) to 3 (H.264 high) are known")
    if pixel not in (NV12, NV21):
        raise DeviceError(Code.FEATURE_NOT_SUPPORT, f"pictures of format {pixel}: use YUV420SP, 1 or 2")


def swapped(picture: np.ndarray, height: int) -> np.ndarray:
    """NV12 for NV21 and the reverse: U and V of each pair exchanged, rows [height * 3 / 2, width]."""
    result = picture.copy()
    result[height:, 0::2], result[height:, 1::2] = picture[height:, 1::2], picture[height:, 0::2]
    return result


class Decoder:
    """A stream that is being decoded."""

    def __init__(self, entype: int, pixel: int) -> None:
        _check(entype, pixel)
        self._av, self._pixel = _av(), pixel
        self._codec = self._av.CodecContext.create("hevc" if entype == H265 else "h264", "r")
        self._codec.thread_count = 1
        self._codec.flags |= 1 << 19  # low delay: a frame is given as soon as it can be

    def decode(self, data: bytes | None) -> Iterator[np.ndarray]:
        """Pictures [height * 3 / 2, width] that a packet completes; None asks for those that are left.

        INVALID_FILE for a packet that is none of the codec's.
        """
        packet = None if data is None else self._av.Packet(data)
        try:
            for frame in self._codec.decode(packet):
                plain = frame.reformat(frame.width // 2 * 2, frame.height // 2 * 2, "nv12").to_ndarray()
                yield plain if self._pixel == NV12 else swapped(plain, len(plain) * 2 // 3)
        except self._av.error.FFmpegError as error:
            raise DeviceError(Code.INVALID_FILE, f"the packet cannot be decoded: {error}") from None


class Encoder:
    """A stream that is being encoded."""

    def __init__(self, channel: EncoderChannel) -> None:
        _check(channel.entype, channel.pic_format)
        av = self._av = _av()
        width, height = channel.pic_width, channel.pic_height
        if not (width and height) or width % 2 or height % 2:
            raise DeviceError(Code.INVALID_PARAM, f"pictures of {width} x {height}: sizes are even and not 0")
        self._pixel, self._count = channel.pic_format, 0
        codec = self._codec = av.CodecContext.create("libx265" if channel.entype == H265 else "libx264", "w")
        rate = channel.src_rate or _RATE
        codec.width, codec.height, codec.pix_fmt = width, height, "yuv420p"
        codec.framerate, codec.time_base = Fraction(rate, 1), Fraction(1, rate)
        codec.gop_size, codec.thread_count = max(1, channel.key_frame_interval), 1
        if channel.max_bit_rate:
            codec.bit_rate = 1000 * channel.max_bit_rate
        codec.options = {"tune": "zerolatency", "preset": "veryfast"}
        if channel.entype in _PROFILES:
            codec.options = {**codec.options, "profile": _PROFILES[channel.entype]}
        else:
            codec.options = {**codec.options, "x265-params": "log-level=none"}

    def encode(self, picture: np.ndarray | None, is_key: bool) -> Iterator[bytes]:
        """Packets that a picture [height * 3 / 2, width] completes; None asks for those that are left."""
        frame = None
        if picture is not None:
            plain = picture if self._pixel == NV12 else swapped(picture, len(picture) * 2 // 3)
            frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(plain), "nv12").reformat(format="yuv420p")
            frame.pts = self._count
            if is_key:
                frame.pict_type = self._av.video.frame.PictureType.I
            self._count += 1
        for packet in self._codec.encode(frame):
            yield bytes(packet)
