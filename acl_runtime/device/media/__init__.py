"""The device's image units over device memory: JPEG and PNG codecs, resize, crop and paste of YUV pictures, and video.

Takes picture descriptions and bytes of device memory, writes bytes of device memory; the pixel work is Pillow's, and
PyAV's for video, an extra. Knows no model and no pyACL. Rules of alignment and size are those that DVPP documents for
the chip families.
"""

from acl_runtime.device.media.descriptions import (
    BatchPictures,
    Channel,
    DecoderChannel,
    DecoderFrame,
    EncoderChannel,
    EncoderFrame,
    JpegConfig,
    Picture,
    Region,
    ResizeConfig,
    StreamData,
)

__all__ = [
    "BatchPictures",
    "Channel",
    "DecoderChannel",
    "DecoderFrame",
    "EncoderChannel",
    "EncoderFrame",
    "JpegConfig",
    "Picture",
    "Region",
    "ResizeConfig",
    "StreamData",
]
