"""The files by which a user says in which dtype single operators run: --modify_mixlist, --keep_dtype,
--customize_dtypes and --op_precision_mode. Each parser gives wishes; E10001 names file, line and what is allowed."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from atc.option_values import Noted
from atc.usage import UsageError, did_you_mean
from tensor_types.json_text import parse_json


class Wish(NamedTuple):
    """What is said of an operator, by the name of a node or by a type: the class of `graph_opt.precision.overrides`,
    and for class narrow the dtype ('' elsewhere)."""

    flag: str
    by: str
    """'name' or 'type'."""
    key: str
    class_: str
    dtype: str = ""


Wishes = tuple[Wish, ...]


def mixlist(flag: str, value: Any) -> Wishes:
    """{"black-list": {"to-add": [types], "to-remove": [types]}, "white-list": ..., "gray-list": ...}. A type that is
    only removed becomes gray."""
    text = _text(flag, value)
    try:
        lists = parse_json(text)
    except ValueError as error:
        raise _wrong(flag, value, f"is not JSON: {error}", _MIXLIST) from None
    if not isinstance(lists, dict):
        raise _wrong(flag, value, "is no JSON object", _MIXLIST)
    added: dict[str, str] = {}
    removed: dict[str, str] = {}
    for key, change in lists.items():
        if key not in _LISTS:
            raise _wrong(flag, value, f"has a list {key!r}", f"{did_you_mean(key, _LISTS)}{_MIXLIST}")
        if not isinstance(change, dict):
            raise _wrong(flag, value, f"{key} is no JSON object", _MIXLIST)
        for what, types in change.items():
            if what not in ("to-add", "to-remove"):
                raise _wrong(flag, value, f"{key} has {what!r}", f"use to-add and to-remove; {_MIXLIST}")
            if not isinstance(types, list) or not all(isinstance(t, str) for t in types):
                raise _wrong(flag, value, f"{key} {what} is no list of types", _MIXLIST)
            for name in types:
                if what == "to-add" and added.get(name, _LISTS[key]) != _LISTS[key]:
                    raise _wrong(flag, value, f"{name} is added to two lists", "add it to one")
                (added if what == "to-add" else removed)[name] = _LISTS[key]
    classes = {**dict.fromkeys(removed, "gray"), **added}
    return tuple(Wish(flag, "type", name, class_) for name, class_ in classes.items())


_LISTS = {"black-list": "black", "white-list": "white", "gray-list": "gray"}
_MIXLIST = 'write {"black-list": {"to-add": ["Sigmoid"], "to-remove": []}, "white-list": {...}}'


def keep_dtype(flag: str, value: Any) -> Wishes:
    """A node's name, or OpType::Type, in each line."""
    return tuple(Wish(flag, *_key(line), "keep") for _, line in _lines(_text(flag, value)))


def customize_dtypes(flag: str, value: Any) -> Wishes:
    """name::InputDtype:dt,dt,OutputDtype:dt, or OpType::Type:InputDtype:...; one dtype for all floats of an operator.

    float16 and bfloat16 stand for class narrow, float32 for keep; a product may take a 16-bit float and give float32.
    """
    found = []
    for number, line in _lines(_text(flag, value)):
        parts = re.fullmatch(r"(OpType::[^:]+|.+?):{1,2}InputDtype:([^:]*?),?\s*OutputDtype:(.*)", line)
        if parts is None:
            raise _wrong(flag, value, f"line {number} is not understood: {line}", _CUSTOM)
        given = [w.strip().lower() for w in f"{parts[2]},{parts[3]}".split(",") if w.strip()]
        for word in given:
            if word not in _DTYPES:
                raise _wrong(flag, value, f"line {number} has the dtype {word}", f"use {', '.join(_DTYPES)}")
        narrow = {_DTYPES[w] for w in given if _DTYPES[w] in ("f16", "bf16")}
        if len(narrow) > 1:
            raise _wrong(flag, value, f"line {number} has two 16-bit floats", "use one of them")
        by, key = _key(parts[1])
        found.append(Wish(flag, by, key, "narrow" if narrow else "keep", narrow.pop() if narrow else ""))
    return tuple(found)


_DTYPES = {"float16": "f16", "fp16": "f16", "bfloat16": "bf16", "bf16": "bf16", "float32": "", "float": "", "fp32": "",
           "int8": "", "uint8": "", "int16": "", "int32": "", "int64": "", "bool": ""}  # fmt: skip
_CUSTOM = "write name::InputDtype:float16,float16,OutputDtype:float32, or OpType::Conv2D:InputDtype:..."


def op_precision_mode(flag: str, value: Any) -> Noted:
    """[ByOpType] and [ByNodeName] with lines Key=variant. Variants that ask for a dtype are wishes; of the others there
    is one kernel, which a note says."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(_text(flag, value))
    except configparser.Error as error:
        raise _wrong(flag, value, f"is not understood: {error}", _VARIANT) from None
    found, without = [], []
    for section in parser.sections():
        if section not in ("ByOpType", "ByNodeName"):
            raise _wrong(flag, value, f"has the section [{section}]", f"use [ByOpType] and [ByNodeName]; {_VARIANT}")
        for key, variant in parser[section].items():
            if variant not in _VARIANTS:
                raise _wrong(flag, value, f"{key} has the variant {variant!r}",
                             f"{did_you_mean(variant, _VARIANTS)}use one of {', '.join(_VARIANTS)}")  # fmt: skip
            if class_ := _VARIANTS[variant]:
                by = "type" if section == "ByOpType" else "name"
                found.append(Wish(flag, by, key, class_, "f16" if class_ == "narrow" else ""))
            else:
                without.append(f"{key}={variant}")
    notes = (f"--{flag} has no effect for {', '.join(without)}: there is one kernel for each case",) if without else ()
    return Noted(tuple(found), notes)


_VARIANTS = {
    "high_precision": "", "high_performance": "", "super_performance": "", "support_out_of_bound_index": "",
    "enable_hi_float_32_execution": "", "enable_float_32_execution": "keep", "keep_fp16": "narrow",
}  # fmt: skip
_VARIANT = "write [ByOpType] or [ByNodeName] and below it lines Key=high_precision"


def _key(text: str) -> tuple[str, str]:
    kind, colons, name = text.partition("::")
    return ("type", name.strip()) if colons and kind == "OpType" else ("name", text.strip())


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield number, stripped


def _text(flag: str, value: Any) -> str:
    try:
        return Path(value).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"--{flag}={value} cannot be read: {reason}", code="E10410", where={"flag": f"--{flag}"},
            remedy="check the path and its permissions",
        ) from error  # fmt: skip


def _wrong(flag: str, value: Any, what: str, remedy: str) -> UsageError:
    return UsageError(f"--{flag}={value} {what}", where={"flag": f"--{flag}"}, remedy=remedy)
