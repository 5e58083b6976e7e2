"""Resize, crop and paste."""

from __future__ import annotations

from copy import copy

from acl._call import integers, status, valued, word
from acl._process import handles
from acl.media._channels import bytes_of, check_device, submit
from acl_runtime.device import Code, DeviceError, Use
from acl_runtime.device.media import BatchPictures, Picture, Region, ResizeConfig, vision

__all__ = [
    "dvpp_vpc_batch_crop_and_paste_async",
    "dvpp_vpc_batch_crop_async",
    "dvpp_vpc_batch_crop_resize_async",
    "dvpp_vpc_batch_crop_resize_paste_async",
    "dvpp_vpc_crop_and_paste_async",
    "dvpp_vpc_crop_async",
    "dvpp_vpc_crop_resize_async",
    "dvpp_vpc_crop_resize_paste_async",
    "dvpp_vpc_resize_async",
]


@status(word, word, word, word, word)
def dvpp_vpc_resize_async(channel: int, source: int, target: int, config: int, stream: int) -> None:
    """Scales a picture to the size of another."""
    _scale(channel, stream, [(_picture(source), _picture(target), None, None)], handles.get(config, ResizeConfig))


@status(word, word, word, word, word)
def dvpp_vpc_crop_async(channel: int, source: int, target: int, region: int, stream: int) -> None:
    """Scales a region to the size of the output."""
    _scale(channel, stream, [(_picture(source), _picture(target), _region(region), None)])


@status(word, word, word, word, word, word)
def dvpp_vpc_crop_resize_async(channel: int, source: int, target: int, region: int, config: int, stream: int) -> None:
    """`dvpp_vpc_crop_async` with an interpolation."""
    settings = handles.get(config, ResizeConfig)
    _scale(channel, stream, [(_picture(source), _picture(target), _region(region), None)], settings)


@status(word, word, word, word, word, word)
def dvpp_vpc_crop_and_paste_async(channel: int, source: int, target: int, crop: int, paste: int, stream: int) -> None:
    """Scales a region to a region of the output, whose other pixels stay."""
    _scale(channel, stream, [(_picture(source), _picture(target), _region(crop), _region(paste))])


@status(word, word, word, word, word, word, word)
def dvpp_vpc_crop_resize_paste_async(
    channel: int, source: int, target: int, crop: int, paste: int, config: int, stream: int
) -> None:
    """`dvpp_vpc_crop_and_paste_async` with an interpolation."""
    settings = handles.get(config, ResizeConfig)
    _scale(channel, stream, [(_picture(source), _picture(target), _region(crop), _region(paste))], settings)


@valued(word, word, integers, word, integers, word)
def dvpp_vpc_batch_crop_async(
    channel: int, sources: int, counts: list[int], targets: int, crops: list[int], stream: int
) -> int:
    """`counts[i]` regions of picture i, in turn, each to a picture of `targets`; gives `targets`."""
    return _batch(channel, sources, counts, targets, crops, None, 0, stream)


@valued(word, word, integers, word, integers, word, word)
def dvpp_vpc_batch_crop_resize_async(
    channel: int, sources: int, counts: list[int], targets: int, crops: list[int], config: int, stream: int
) -> int:
    """`dvpp_vpc_batch_crop_async` with an interpolation."""
    return _batch(channel, sources, counts, targets, crops, None, config, stream)


@valued(word, word, integers, word, integers, integers, word)
def dvpp_vpc_batch_crop_and_paste_async(
    channel: int, sources: int, counts: list[int], targets: int, crops: list[int], pastes: list[int], stream: int
) -> int:
    """`dvpp_vpc_batch_crop_async` into regions of the outputs."""
    return _batch(channel, sources, counts, targets, crops, pastes, 0, stream)


@valued(word, word, integers, word, integers, integers, word, word)
def dvpp_vpc_batch_crop_resize_paste_async(
    channel: int, sources: int, counts: list[int], targets: int, crops: list[int], pastes: list[int], config: int,
    stream: int,
) -> int:  # fmt: skip
    """`dvpp_vpc_batch_crop_and_paste_async` with an interpolation."""
    return _batch(channel, sources, counts, targets, crops, pastes, config, stream)


_Job = tuple[Picture, Picture, Region | None, Region | None]


def _batch(
    channel: int, sources: int, counts: list[int], targets: int, crops: list[int], pastes: list[int] | None,
    config: int, stream: int,
) -> int:  # fmt: skip
    given = handles.get(sources, BatchPictures).pictures
    made = handles.get(targets, BatchPictures).pictures
    if len(counts) != len(given) or any(n < 0 for n in counts) or sum(counts) != len(crops) or len(crops) > len(made):
        raise DeviceError(
            Code.INVALID_PARAM,
            f"{len(given)} sources with {counts} regions, {len(crops)} regions and {len(made)} targets do not match",
        )
    if pastes is not None and len(pastes) != len(crops):
        raise DeviceError(Code.INVALID_PARAM, f"{len(crops)} regions to cut, {len(pastes)} to paste into")
    of_source = [picture for picture, count in zip(given, counts, strict=True) for _ in range(count)]
    places = [None] * len(crops) if pastes is None else [_region(p) for p in pastes]
    jobs: list[_Job] = [
        (source, target, _region(crop), place)
        for source, target, crop, place in zip(of_source, made, crops, places, strict=False)
    ]
    _scale(channel, stream, jobs, handles.get(config, ResizeConfig) if config else None)
    return targets


def _scale(channel: int, stream: int, jobs: list[_Job], config: ResizeConfig | None = None) -> None:
    """Queues the jobs as one task. What the descriptions say now holds, whatever becomes of them until its turn."""
    ready = []
    uses = []
    for source, target, crop, paste in jobs:
        crop, paste = copy(crop or vision.whole(source)), copy(paste or vision.whole(target))
        vision.check(source, target, crop, paste, config)
        for picture, what in ((source, "input picture"), (target, "output picture")):
            check_device(picture.data, picture.size, what)
            uses.append(Use(picture.data, picture.size, picture is target, what))
        ready.append((copy(source), copy(target), crop, paste))
    settings = copy(config)

    def work() -> None:
        for source, target, crop, paste in ready:
            data = [bytes_of(p.data, p.size) for p in (source, target)]
            vision.scale(source, data[0], target, data[1], crop, paste, settings)

    submit(channel, stream, uses, [target for _, target, _, _ in jobs], work)


def _picture(handle: int) -> Picture:
    return handles.get(handle, Picture)


def _region(handle: int) -> Region:
    return handles.get(handle, Region)
