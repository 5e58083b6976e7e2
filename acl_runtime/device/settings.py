"""The settings of `acl.init`: a JSON file whose sections ask for dumps and profiles.

    {"dump": {"dump_path": "out", "dump_list": [{"model_name": "net", "layer": ["conv1"]}], "dump_mode": "all"},
     "profiler": {"switch": "on", "output": "out"}}

Every key is known, or refused with the code of its section; what changes nothing here is accepted.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.dumps import DumpSettings
from tensor_types.json_text import parse_json

_SECTIONS = ("dump", "profiler", "max_opqueue_num", "err_msg_mode")
_DUMP_KEYS = ("dump_path", "dump_list", "dump_mode", "dump_op_switch", "dump_step", "dump_data", "dump_level",
              "dump_debug")  # fmt: skip
_PROFILER_KEYS = (
    "switch", "output", "aic_metrics", "aicpu", "l2", "task_time", "ascendcl", "hccl", "runtime_api", "storage_limit",
    "sys_hardware_mem_freq", "instr_profiling_freq", "host_sys", "msproftx",
)  # fmt: skip
_MODES = ("input", "output", "all")


@dataclass(frozen=True)
class Settings:
    """What a file asks for. profile: the folder of the files of a profile."""

    dump: DumpSettings | None = None
    profile: Path | None = None


def read_settings(path: str) -> Settings:
    """INVALID_FILE if it cannot be read, PARSE_FILE if it is no JSON object, FILE_ATTR_INVALID for another section,
    INVALID_DUMP_CONFIG and INVALID_PROFILING_CONFIG for what is wrong in one."""
    try:
        settings = parse_json(Path(path).read_text())
    except OSError as error:
        raise DeviceError(Code.INVALID_FILE, f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise DeviceError(Code.PARSE_FILE, f"{path} is not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise DeviceError(Code.PARSE_FILE, f"{path} holds no object with sections")
    _known(settings, _SECTIONS, Code.FILE_ATTR_INVALID, path)
    dump = dump_settings(settings["dump"], path) if settings.get("dump") else None
    profile = _profile_folder(settings["profiler"], path) if settings.get("profiler") else None
    return Settings(dump, profile)


def dump_settings(section: Any, path: str) -> DumpSettings | None:
    """The section `dump`; None if it switches all off. INVALID_DUMP_CONFIG."""
    wrong = _Wrong(Code.INVALID_DUMP_CONFIG, path, "dump")
    if not isinstance(section, dict):
        raise wrong("it is no object")
    _known(section, _DUMP_KEYS, Code.INVALID_DUMP_CONFIG, f"{path}, dump")
    wrong.require(section, "dump_mode", _MODES)
    wrong.require(section, "dump_data", ("tensor", "stats"))
    wrong.require(section, "dump_op_switch", ("off",), "single operators are not dumped: read their buffers")
    wrong.require(section, "dump_debug", ("off",), "atc compare finds overflows")
    wrong.require(section, "dump_level", ("op", "kernel", "all"))
    rows = section.get("dump_list")
    if not isinstance(rows, list):
        raise wrong('dump_list is missing: write [{"model_name": "..."}], or [] for all models')
    models: dict[str, tuple[str, ...]] = {}
    for row in rows:
        layers = row.get("layer", []) if isinstance(row, dict) else None
        if not isinstance(row, dict) or not isinstance(layers, list) or not isinstance(row.get("model_name"), str):
            raise wrong(f'an item of dump_list is {row}: write {{"model_name": "...", "layer": ["..."]}}')
        models[row["model_name"]] = tuple(map(str, layers))
    folder = _folder(wrong, section.get("dump_path"), "dump_path")
    mode, is_stats = str(section.get("dump_mode", "output")), section.get("dump_data") == "stats"
    return DumpSettings(folder, mode, models, _steps(wrong, section), is_stats)


def _steps(wrong: _Wrong, section: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """Ranges of "0|3-5"."""
    found = []
    for word in filter(None, str(section.get("dump_step", "")).split("|")):
        first, _, last = word.partition("-")
        numbers = len(word) < 40 and first.isdecimal() and (last or first).isdecimal()
        if not numbers or int(last or first) < int(first):
            raise wrong(f'dump_step is {section["dump_step"]!r}: write "0|3-5"')
        found.append((int(first), int(last or first)))
    return tuple(found)


def _profile_folder(section: Any, path: str) -> Path | None:
    wrong = _Wrong(Code.INVALID_PROFILING_CONFIG, path, "profiler")
    if not isinstance(section, dict):
        raise wrong("it is no object")
    _known(section, _PROFILER_KEYS, Code.INVALID_PROFILING_CONFIG, f"{path}, profiler")
    wrong.require(section, "switch", ("on", "off"))
    if section.get("switch") != "on":
        return None
    return _folder(wrong, section.get("output", "."), "output")


@dataclass(frozen=True)
class _Wrong:
    """Makes the errors of a section."""

    code: Code
    path: str
    section: str

    def __call__(self, what: str) -> DeviceError:
        return DeviceError(self.code, f"{self.path}, {self.section}: {what}")

    def require(self, section: Mapping[str, Any], key: str, values: Collection[str], why: str = "") -> None:
        if key in section and str(section[key]).lower() not in values:
            raise self(f"{key} is {section[key]!r}, {why or f'use one of {sorted(values)}'}")


def _folder(wrong: Callable[[str], DeviceError], given: Any, key: str) -> Path:
    folder = Path(given) if isinstance(given, str) and given else None
    if folder is None or not os.path.isdir(folder) or not os.access(folder, os.W_OK):  # Path's raises for long names
        raise wrong(f"{key} is {given!r}, which is no folder that can be written")
    return folder


def _known(section: Mapping[str, Any], keys: Collection[str], code: Code, where: str) -> None:
    for key in section:
        if key not in keys:
            near = difflib.get_close_matches(str(key), keys, 1)
            said = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(keys))}"
            raise DeviceError(code, f"{where}: there is no {key!r}: {said}")
