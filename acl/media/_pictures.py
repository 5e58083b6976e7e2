"""Descriptions of pictures, streams, regions and settings."""

from __future__ import annotations

from acl._call import plain, status, word
from acl._process import handles
from acl.media._fields import accessors, life
from acl_runtime.device import Code, DeviceError
from acl_runtime.device.media import BatchPictures, JpegConfig, Picture, Region, ResizeConfig, StreamData

_MOST_PICTURES = 256

_made = {
    **life(__name__, "dvpp_{}_pic_desc", Picture),
    **accessors(__name__, "dvpp_{}_pic_desc", Picture),
    **life(__name__, "dvpp_{}_stream_desc", StreamData),
    **accessors(__name__, "dvpp_{}_stream_desc", StreamData),
    **life(__name__, "dvpp_{}_resize_config", ResizeConfig),
    **accessors(__name__, "dvpp_{}_resize_config", ResizeConfig),
    **life(__name__, "dvpp_{}_jpege_config", JpegConfig),
    **accessors(__name__, "dvpp_{}_jpege_config", JpegConfig),
    **accessors(__name__, "dvpp_{}_roi_config", Region),
}
globals().update(_made)

__all__ = [
    *_made,
    "dvpp_create_batch_pic_desc",
    "dvpp_create_roi_config",
    "dvpp_destroy_batch_pic_desc",
    "dvpp_destroy_roi_config",
    "dvpp_get_pic_desc",
    "dvpp_set_roi_config",
]


@plain(word, word, word, word)
def dvpp_create_roi_config(left: int, right: int, top: int, bottom: int) -> int:
    """A rectangle; all four edges belong to it."""
    return handles.of(Region(left, right, top, bottom))


@status(word, word, word, word, word)
def dvpp_set_roi_config(region: int, left: int, right: int, top: int, bottom: int) -> None:
    item = handles.get(region, Region)
    item.left, item.right, item.top, item.bottom = left, right, top, bottom


@status(word)
def dvpp_destroy_roi_config(region: int) -> None:
    handles.remove(region, Region)


@plain(word)
def dvpp_create_batch_pic_desc(count: int) -> int:
    """A list of that many pictures, up to 256."""
    if not 0 < count <= _MOST_PICTURES:
        raise DeviceError(Code.INVALID_PARAM, f"a batch of {count} pictures, allowed are 1 to {_MOST_PICTURES}")
    return handles.of(BatchPictures([Picture() for _ in range(count)]))


@plain(word, word)
def dvpp_get_pic_desc(batch: int, index: int) -> int:
    """A picture of the list, which owns it; 0 if there is none."""
    pictures = handles.get(batch, BatchPictures).pictures
    if index >= len(pictures):
        raise DeviceError(Code.INVALID_PARAM, f"there is no picture {index} among {len(pictures)}")
    return handles.of(pictures[index])


@status(word)
def dvpp_destroy_batch_pic_desc(batch: int) -> None:
    """Ends the list and its pictures."""
    for picture in handles.remove(batch, BatchPictures).pictures:
        handles.remove(handles.of(picture), Picture)
