"""--insert_op_conf: the file in which ATC is told how images become tensors, and its checks.

The file is a text of blocks `aipp_op { key: value ... }`. Everything wrong in it is an error E10052 that names line,
key and what is allowed; what depends on the model is checked against its inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atc.usage import UsageError, did_you_mean
from graph_opt.interface.image_preparation import ImagePreparation
from tensor_types.images import CHANNELS

_SWITCHES = ("csc_switch", "rbuv_swap_switch", "ax_swap_switch", "crop", "padding", "single_line_mode",
             "support_rotation", "resize")  # fmt: skip
_RANGES = {
    "related_input_rank": (0, 2**31 - 1), "input_edge_idx": (0, 2**31 - 1), "max_src_image_size": (0, 2**31 - 1),
    "src_image_size_w": (0, 4096), "src_image_size_h": (0, 4096),
    "load_start_pos_w": (0, 4095), "load_start_pos_h": (0, 4095), "crop_size_w": (0, 4096), "crop_size_h": (0, 4096),
    "resize_output_w": (0, 4096), "resize_output_h": (0, 4096),
    **{f"{side}_padding_size": (0, 32) for side in ("left", "right", "top", "bottom")},
    **{f"matrix_r{r}c{c}": (-32768, 32767) for r in range(3) for c in range(3)},
    **{f"{way}_bias_{i}": (0, 255) for way in ("input", "output") for i in range(3)},
    **{f"mean_chn_{i}": (0, 255) for i in range(4)},
}  # fmt: skip
_FLOATS = ("padding_value", "cpadding_value", *(f"{k}_chn_{i}" for k in ("min", "var_reci") for i in range(4)))
_TEXTS = {"aipp_mode": ("static", "dynamic"), "input_format": tuple(CHANNELS), "related_input_name": ()}
KEYS = (*_TEXTS, *_SWITCHES, *_RANGES, *_FLOATS, "raw_rgbir_to_f16_n")

_DYNAMIC = ("aipp_mode", "related_input_rank", "related_input_name", "input_edge_idx", "max_src_image_size",
            "support_rotation")  # fmt: skip
"""Keys of a block whose preparation a program says at run time."""
_NARROW_601 = ((298, 516, 0), (298, -100, -208), (298, 0, 409))
"""The format's own default: BT.601 with narrow range to B, G, R."""


@dataclass(frozen=True)
class AippOp:
    """A block: which input it is for, and what becomes of the image. `line` is where it starts.

    Without `spec` a program says it at run time, for images that take `max_bytes` together; `unused` are then the keys
    that stand in the block all the same.
    """

    line: int
    rank: int | None
    name: str | None
    spec: ImagePreparation | None
    max_bytes: int = 0
    unused: tuple[str, ...] = ()


def parse_aipp(flag: str, value: Any) -> tuple[AippOp, ...]:
    """The blocks of a file, or of a preset's name."""
    if value in PRESETS:
        return (AippOp(1, 0, None, PRESETS[value]),)
    try:
        text = Path(value).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"--{flag}={value} cannot be read: {reason}", code="E10410", where={"flag": f"--{flag}"},
            remedy=f"check the path, or name one of {', '.join(PRESETS)}",
        ) from error  # fmt: skip
    blocks = list(_blocks(text))
    if not blocks:
        raise _wrong(0, "it holds no block", "write aipp_op { aipp_mode: static input_format: RGB888_U8 ... }")
    found = tuple(_op(line, keys) for line, keys in blocks)
    targets = [op.name or op.rank for op in found]
    if any(op.name for op in found) and any(op.rank is not None for op in found) and len(found) > 1:
        raise _wrong(found[1].line, "blocks name their inputs in two ways", "use related_input_rank in all of them")
    if len(set(targets)) < len(targets):
        raise _wrong(found[-1].line, "two blocks are for one input", "give each its own related_input_rank")
    return found


def _blocks(text: str) -> Iterator[tuple[int, dict[str, tuple[int, str]]]]:
    """Line, and lines and values by key, of each block."""
    pattern = re.compile(r"""\s*(?:(\#[^\n]*)|([A-Za-z_][\w]*)|([{}:;,])|("[^"\n]*"|'[^'\n]*'|[^\s{}:;,\#]+))""")
    words = []
    at, line, end = 0, 1, len(text.rstrip())
    while at < end:
        match = pattern.match(text, at)
        assert match is not None  # every character that is no blank begins a word
        line += text.count("\n", at, match.end())
        at = match.end()
        if match[1] is None:
            words.append((line, match[2] or match[3] or match[4]))
    keys: dict[str, tuple[int, str]] | None = None
    start, index = 0, 0
    while index < len(words):
        line, word = words[index]
        following = words[index + 1][1] if index + 1 < len(words) else ""
        if keys is None:
            if word != "aipp_op" or following not in ("{", ":"):
                raise _wrong(line, f"{word!r} stands outside of a block", "write aipp_op { key: value ... }")
            keys, start = {}, line
            index += 2 if following == "{" else 3
        elif word == "}":
            yield start, keys
            keys = None
            index += 1
        elif word in (",", ";"):
            index += 1
        else:
            if word not in KEYS:
                raise _wrong(line, f"there is no key {word!r}", f"{did_you_mean(word, KEYS)}see docs/images.md for all")
            if following != ":" or index + 2 >= len(words):
                raise _wrong(line, f"{word} has no value", f"write {word}: value")
            if word in keys:
                raise _wrong(line, f"{word} is given twice, first in line {keys[word][0]}", "give it once")
            keys[word] = line, words[index + 2][1].strip("\"'")
            index += 3
    if keys is not None:
        raise _wrong(start, "the block does not end", "close it with }")


def _op(line: int, keys: Mapping[str, tuple[int, str]]) -> AippOp:
    known = {key: _value(at, key, text) for key, (at, text) in keys.items()}

    def get(key: str, default: Any) -> Any:
        return known.get(key, default)

    def at(key: str) -> int:
        return keys[key][0] if key in keys else line

    if "aipp_mode" not in known:
        raise _wrong(line, "aipp_mode is missing", "write aipp_mode: static")
    if "related_input_name" in known and "related_input_rank" in known:
        raise _wrong(at("related_input_name"), "the input is named in two ways", "use related_input_rank alone")
    if get("input_edge_idx", 0):
        raise _wrong(at("input_edge_idx"), "an input of an ONNX model has one edge", "write input_edge_idx: 0")
    rank = None if "related_input_name" in known else get("related_input_rank", 0)
    if known["aipp_mode"] == "dynamic":
        if not get("max_src_image_size", 0):
            raise _wrong(
                at("max_src_image_size"), "max_src_image_size is missing",
                "give the bytes of the largest batch of images: 1.5 a pixel for YUV420SP_U8, 4 for XRGB8888_U8",
            )  # fmt: skip
        unused = tuple(key for key in keys if key not in _DYNAMIC)
        return AippOp(line, rank, known.get("related_input_name"), None, known["max_src_image_size"], unused)
    if "input_format" not in known:
        raise _wrong(line, "input_format is missing", f"use one of {', '.join(CHANNELS)}")
    for key in ("resize", "single_line_mode", "support_rotation"):
        if get(key, False):
            raise _wrong(at(key), f"{key} is reserved in static AIPP", f"leave {key} out")
    if "raw_rgbir_to_f16_n" in known:
        raise _wrong(at("raw_rgbir_to_f16_n"), "raw sensor formats are not available", "leave raw_rgbir_to_f16_n out")
    form = known["input_format"]
    is_yuv = form == "YUV420SP_U8"
    source = (get("src_image_size_h", 0), get("src_image_size_w", 0))
    if (source[0] == 0) != (source[1] == 0):
        raise _wrong(at("src_image_size_h"), "one of the source's sizes is 0", "give both, or neither")
    even = {"src_image_size_h": source[0], "src_image_size_w": source[1]}
    crop = None
    if get("crop", False):
        places = {key: get(key, 0) for key in ("load_start_pos_h", "load_start_pos_w", "crop_size_h", "crop_size_w")}
        even |= {key: places[key] for key in ("load_start_pos_h", "load_start_pos_w")}
        top, left, height, width = places.values()
        if source != (0, 0) and (top + height > source[0] or left + width > source[1]):
            raise _wrong(at("crop_size_h"), f"the crop ends at {top + height}, {left + width}, beyond the image of "
                         f"{source[0]} x {source[1]}", "move it, or make it smaller")  # fmt: skip
        crop = (top, left, height, width)
    if is_yuv:
        for key, size in even.items():
            if size % 2:
                raise _wrong(
                    at(key), f"{key} is {size}, but images of {form} have even sizes", f"use {size - 1} or {size + 1}"
                )
    padding = (0, 0, 0, 0)
    if get("padding", False):
        top, bottom, left, right = (get(f"{side}_padding_size", 0) for side in ("top", "bottom", "left", "right"))
        padding = (top, bottom, left, right)
    matrix = None
    if get("csc_switch", False):
        if CHANNELS[form] < 3:
            raise _wrong(at("csc_switch"), f"images of {form} have no colours", "write csc_switch: false")
        matrix = tuple(tuple(get(f"matrix_r{r}c{c}", _NARROW_601[r][c]) for c in range(3)) for r in range(3))
    return AippOp(
        line,
        rank,
        known.get("related_input_name"),
        ImagePreparation(
            form,
            None if source == (0, 0) else source,
            crop,
            get("rbuv_swap_switch", False),
            get("ax_swap_switch", False),
            matrix,
            tuple(get(f"input_bias_{i}", (16, 128, 128)[i] if is_yuv else 0) for i in range(3)),
            tuple(get(f"output_bias_{i}", 0) for i in range(3)),
            tuple(float(get(f"mean_chn_{i}", 0)) for i in range(4)),
            tuple(get(f"min_chn_{i}", 0.0) for i in range(4)),
            tuple(get(f"var_reci_chn_{i}", 1.0) for i in range(4)),
            padding,
            get("padding_value", get("cpadding_value", 0.0)),
        ),
    )


def _value(line: int, key: str, text: str) -> Any:
    if key in _TEXTS:
        if _TEXTS[key] and text not in _TEXTS[key]:
            raise _wrong(
                line, f"{key} is {text}", f"{did_you_mean(text, _TEXTS[key])}use one of {', '.join(_TEXTS[key])}"
            )
        return text
    if key in _SWITCHES:
        if text.lower() not in ("true", "false", "1", "0", "t", "f"):
            raise _wrong(line, f"{key} is {text}", "use true or false")
        return text.lower() in ("true", "1", "t")
    try:
        number = float(text) if key in _FLOATS else int(text)
    except ValueError:
        raise _wrong(line, f"{key} is {text}", f"use a {'number' if key in _FLOATS else 'whole number'}") from None
    if key in _RANGES and not _RANGES[key][0] <= number <= _RANGES[key][1]:
        raise _wrong(line, f"{key} is {text}", f"use a number from {_RANGES[key][0]} to {_RANGES[key][1]}")
    if key in _FLOATS and abs(number) > 65504:
        raise _wrong(line, f"{key} is {text}", "use a number that f16 can hold")
    return number


def _wrong(line: int, what: str, remedy: str) -> UsageError:
    place = f"line {line}: " if line else ""
    return UsageError(
        f"--insert_op_conf: {place}{what}", code="E10052", where={"flag": "--insert_op_conf"}, remedy=remedy
    )


_MEAN, _DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


def _imagenet(order: int, swap: bool) -> ImagePreparation:
    mean, deviation = _MEAN[::order], _DEVIATION[::order]
    return ImagePreparation("RGB888_U8", swap_rb=swap, least=(*mean, 0.0), factor=(*(1 / d for d in deviation), 1.0))


def _yuv(red: int, green: tuple[int, int], blue: int, luma: int, bias: int) -> ImagePreparation:
    """YUV420SP to R, G, B by a standard's factors, for whole numbers of 0 .. 255."""
    matrix = ((luma, 0, red), (luma, *green), (luma, blue, 0))
    return ImagePreparation("YUV420SP_U8", matrix=matrix, input_bias=(bias, 128, 128))


PRESETS = {
    "imagenet-rgb": _imagenet(1, False),
    "imagenet-bgr": _imagenet(-1, True),
    "yuv-bt601-full": _yuv(359, (-88, -183), 454, 256, 0),
    "yuv-bt601-narrow": _yuv(409, (-100, -208), 516, 298, 16),
    "yuv-bt709-full": _yuv(403, (-48, -120), 475, 256, 0),
    "yuv-bt709-narrow": _yuv(459, (-55, -136), 541, 298, 16),
}
"""Names that stand for a file with one block. The ImageNet ones take RGB images and give R, G, B or B, G, R; the YUV
ones give R, G, B by BT.601 or BT.709, of full or narrow range."""
