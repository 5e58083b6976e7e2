"""What a caller says of pictures, regions and codecs: plain records, checked when a task is submitted, not before."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class Picture:
    """A picture in device memory. `data` is an address, `size` bytes; `format` a pixel format (`layout.Pixel`);
    strides are in bytes and in rows."""

    data: int = 0
    size: int = 0
    format: int = 0
    width: int = 0
    height: int = 0
    width_stride: int = 0
    height_stride: int = 0
    ret_code: int = 0


@dataclass(eq=False)
class BatchPictures:
    """A list of pictures."""

    pictures: list[Picture] = field(default_factory=list)


@dataclass(eq=False)
class StreamData:
    """A piece of a compressed stream in device memory."""

    data: int = 0
    size: int = 0
    format: int = 0
    timestamp: int = 0
    ret_code: int = 0
    eos: int = 0


@dataclass(eq=False)
class Region:
    """A rectangle of a picture; all four edges belong to it."""

    left: int
    right: int
    top: int
    bottom: int

    @property
    def width(self) -> int:
        return self.right - self.left + 1

    @property
    def height(self) -> int:
        return self.bottom - self.top + 1


@dataclass(eq=False)
class ResizeConfig:
    """0: default (bilinear), 1: bilinear, 2: nearest."""

    interpolation: int = 0


@dataclass(eq=False)
class JpegConfig:
    """Quality 1 to 100; 0 counts as 100."""

    level: int = 0

    @property
    def quality(self) -> int:
        return self.level or 100


@dataclass(eq=False)
class Channel:
    """The place where tasks of one caller queue. Here it only has to be open."""

    is_open: bool = False
    mode: int = 0


@dataclass(eq=False)
class DecoderChannel:
    """What a caller says of a video decoder. `entype` and `out_pic_format` as `video` has them."""

    channel_id: int = 0
    thread_id: int = 0
    entype: int = 0
    out_pic_format: int = 1
    out_mode: int = 0
    out_pic_width: int = 0
    out_pic_height: int = 0
    ref_frame_num: int = 8
    bit_depth: int = 0
    callback: object = None


@dataclass(eq=False)
class DecoderFrame:
    """Settings of a frame to be decoded; there are none that count here."""


@dataclass(eq=False)
class EncoderChannel:
    """What a caller says of a video encoder. `max_bit_rate` in kbit/s, 0 for the encoder's own choice."""

    thread_id: int = 0
    entype: int = 0
    pic_format: int = 1
    key_frame_interval: int = 16
    pic_width: int = 0
    pic_height: int = 0
    rc_mode: int = 0
    src_rate: int = 0
    max_bit_rate: int = 0
    ip_prop: int = 0
    buf_size: int = 0
    buf_addr: int = 0
    callback: object = None


@dataclass(eq=False)
class EncoderFrame:
    """Settings of a frame to be encoded: the last one, and one that needs no other."""

    eos: int = 0
    force_i_frame: int = 0
