"""--raw_ge_options: a JSON file with options by the names that ATC's graph engine has for them.

{"compile options": {"global": {"ge.exec.precision_mode": "force_fp16"}, "session": {...}, "graph": {...}}}

A name stands for the flag of ATC that sets the same. A flag that is given goes before the file, and in the file graph
before session before global.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from atc.option_values import boolean
from atc.usage import Problems, UsageError, did_you_mean
from tensor_types.json_text import parse_json

FILE, IGNORE = "raw_ge_options", "raw_ge_options_ignore_unsupported"
_OPTIONS = "compile options"
_LEVELS = ("global", "session", "graph")
_NEEDED = ("model", "framework", "output", "soc_version")
"""Flags that a file cannot stand for."""
_OTHER_NAMES = {
    "ge.outputDatatype": "output_type", "ge.insertOpFile": "insert_op_conf", "ge.outputNodeName": "out_nodes",
    "ge.INPUT_NODES_SET_FP16": "input_fp16_nodes", "ge.engineType": "core_type",
    "ge.enableSparseMatrixWeight": "sparsity", "ge.calibrationConfFile": "cal_conf",
}  # fmt: skip
"""Options whose names are not those of their flags in another spelling."""
_FORM = 'write {"compile options": {"graph": {"ge.exec.precision_mode": "force_fp16"}}}'


def flag_of(name: str) -> str:
    """The flag of an option's name: ge.bufferOptimize and ge.exec.precision_mode are buffer_optimize and
    precision_mode."""
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    plain = name.removeprefix("ge.").removeprefix("exec.").replace(".", "_")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", plain).lower()


def with_raw_options(given: Mapping[str, Any], flags: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """The flags given and those of the file that --raw_ge_options names, and what the user should know of it.

    UsageError, of all that is wrong with the file: E13001, E10032 for its form, E10055 for a name that stands for no
    flag, or for one that the file cannot set.
    """
    rest = {name: value for name, value in given.items() if name not in (FILE, IGNORE)}
    ignores = boolean(IGNORE, given.get(IGNORE, False))
    if not given.get(FILE):
        return rest, []
    problems = Problems()
    taken: dict[str, Any] = {}
    ignored = []
    for name, value in _read(given[FILE]).items():
        flag = flag_of(name)
        with problems.gathered():
            if flag in _NEEDED and flag not in given:
                raise _wrong(f"{name} cannot stand for --{flag}", "E10055", f"add --{flag}=...")
            if flag not in (*flags, *_NEEDED):
                if not ignores:
                    guess = did_you_mean(flag, flags)
                    raise _wrong(f"{name} is the option of no flag", "E10055",
                                 f"{guess}leave it out, or add --{IGNORE}=true")  # fmt: skip
                ignored.append(name)
            elif flag not in given:
                taken[flag] = value
    problems.raise_all()
    notes = [f"--{FILE} gives {', '.join(f'--{flag}={value}' for flag, value in taken.items())}"] * bool(taken)
    notes += [f"--{FILE}: {', '.join(ignored)} stand for no flag and are left out"] * bool(ignored)
    return {**rest, **taken}, notes


def _read(path: Any) -> dict[str, str]:
    """Values by name; those of an inner level replace those of an outer one."""
    try:
        whole = parse_json(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise _wrong(f"{path} cannot be read: {error.strerror}", "E13001", "check the path") from None
    except TypeError:
        raise _wrong(f"{path!r} is no path", "E13001", "give the path of a file") from None
    except ValueError as error:
        raise _wrong(f"{path} is not JSON: {error}", "E10032", _FORM) from None
    levels = whole.get(_OPTIONS, {}) if isinstance(whole, dict) else None
    if not isinstance(levels, dict) or not all(isinstance(level, dict) for level in levels.values()):
        raise _wrong(f"{path} has not the form of options", "E10032", _FORM)
    if _OPTIONS not in whole:
        guess = did_you_mean(next(iter(whole), ""), [_OPTIONS])
        raise _wrong(f"{path} has no {_OPTIONS!r}", "E10032", f"{guess}{_FORM}")
    for level in levels:
        if level not in _LEVELS:
            raise _wrong(f"{path} has a level {level!r}", "E10032",
                         f"{did_you_mean(level, _LEVELS)}use {', '.join(_LEVELS)}")  # fmt: skip
    found: dict[str, str] = {}
    for level in _LEVELS:
        for name, value in levels.get(level, {}).items():
            if not name or not isinstance(value, str):
                raise _wrong(f"{path}: {name!r} is {value!r}, no text", "E10032", f'write "{name}": "{value}"')
            found[name] = value
    return found


def _wrong(what: str, code: str, remedy: str) -> UsageError:
    return UsageError(f"--{FILE}: {what}", code=code, where={"flag": f"--{FILE}"}, remedy=remedy)
