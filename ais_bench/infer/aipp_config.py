"""The file of --aipp_config: what the images of a model with dynamic AIPP are.

    [aipp_op]
    input_format : YUV420SP_U8
    src_image_size_w : 256
    src_image_size_h : 256
    crop : 1
    load_start_pos_w : 16
    ...

Keys that are left out have the values without effect.
"""

from __future__ import annotations

import configparser
import difflib
import os
from collections.abc import Mapping
from pathlib import Path

import aclruntime

_MOST_BYTES = 12800
_FACTORS = [f"matrix_r{r}c{c}" for r in range(3) for c in range(3)]
_GROUPS: dict[str, tuple[list[str], float]] = {
    "src_image_size": (["src_image_size_w", "src_image_size_h"], 0),
    "csc_params": (["csc_switch", *_FACTORS, *(f"{w}_bias_{i}" for w in ("output", "input") for i in range(3))], 0),
    "crop_params": (["crop", "load_start_pos_w", "load_start_pos_h", "crop_size_w", "crop_size_h"], 0),
    "padding_params": (["padding", *(f"padding_size_{side}" for side in ("top", "bottom", "left", "right"))], 0),
    "dtc_pixel_mean": ([f"mean_chn_{i}" for i in range(4)], 0),
    "dtc_pixel_min": ([f"min_chn_{i}" for i in range(4)], 0),
    "pixel_var_reci": ([f"var_reci_chn_{i}" for i in range(4)], 1),
}
"""Keys of each setting in its order, and what one that is left out stands for."""
_SWITCHES = ("rbuv_swap_switch", "ax_swap_switch")
_KEYS = ["input_format", *_SWITCHES, *(key for keys, _ in _GROUPS.values() for key in keys)]


def read_aipp_config(path: str | os.PathLike[str]) -> dict[str, str]:
    """Values by key. RuntimeError for what cannot be read, a key that there is not, and one that is missing."""
    try:
        if Path(path).suffix != ".config":
            raise RuntimeError(f"{path}: the file's name ends in .config")
        if Path(path).stat().st_size > _MOST_BYTES:
            raise RuntimeError(f"{path} is larger than {_MOST_BYTES} bytes")
        parser = configparser.ConfigParser(inline_comment_prefixes=("#",))
        parser.read_string(Path(path).read_text())
    except OSError as error:
        raise RuntimeError(f"{path} cannot be read: {error.strerror}") from error
    except (configparser.Error, UnicodeDecodeError) as error:
        raise RuntimeError(f"{path} is no list of keys under [aipp_op]: {error}") from error
    if parser.sections() != ["aipp_op"]:
        raise RuntimeError(f"{path} has the sections {parser.sections()}, one [aipp_op] is wanted")
    found = dict(parser["aipp_op"])
    for key in found:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, 1)
            raise RuntimeError(f"{path}: there is no key {key}{f', did you mean {near[0]}?' if near else ''}")
    for key in ("input_format", "src_image_size_w", "src_image_size_h"):
        if key not in found:
            raise RuntimeError(f"{path}: {key} is missing")
    return found


def set_images(session: aclruntime.InferenceSession, values: Mapping[str, str], batch: int) -> None:
    """Sets them for `batch` images. RuntimeError for a value that is no number or does not fit the model."""
    session.aipp_set_max_batch_size(batch)
    session.aipp_set_input_format(values["input_format"])
    for key in _SWITCHES:
        getattr(session, f"aipp_set_{key}")(int(_number(values, key, 0)))
    for name, (keys, absent) in _GROUPS.items():
        getattr(session, f"aipp_set_{name}")([_number(values, key, absent) for key in keys])
    session.set_dym_aipp_info_set()


def _number(values: Mapping[str, str], key: str, absent: float) -> float:
    try:
        return float(values.get(key, absent))
    except ValueError:
        raise RuntimeError(f"{key} is {values[key]!r}, which is no number") from None
