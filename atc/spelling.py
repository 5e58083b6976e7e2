"""ATC's own spelling of a conversion: `atc --model=m.onnx --framework=5 --output=m --soc_version=Ascend910B2 ...`.

`--k=v` and `--k v` are the same, one dash may stand for two, dashes in a flag name count as underscores.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from atc.foreign_flags import FOREIGN_FLAGS
from codegen.targets import chip_names
from graph_opt.precision.lists import POLICIES, VERSION_2
from tensor_types.errors import OpenAtcError

FLAGS = {
    "model": "path of the ONNX file",
    "framework": "5 (ONNX)",
    "output": "path of the package without its extension",
    "soc_version": f"chip for the estimate, {' or '.join(chip_names())}",
    "input_shape": '"name:d,d;name2:d", -1 keeps a dim symbolic',
    "input_format": "NCHW or ND; has no effect on ONNX models",
    "custom_op": "module, or .py file, that registers custom operators; several with commas",
    "sign": "ed25519 private key file to sign the native code with",
    "log": "debug, info, warning, error or null",
    "precision_mode": f"{', '.join(POLICIES)}",
    "precision_mode_v2": f"{', '.join(VERSION_2)}",
}


_VALUES = {
    "input_format": (("NCHW", "ND"), "E10001"),
    "log": (("debug", "info", "warning", "error", "null"), "E10001"),
    "precision_mode": (tuple(POLICIES), "E10001"),
    "precision_mode_v2": (tuple(VERSION_2), "E10001"),
}


class UsageError(OpenAtcError):
    """A flag is unknown, missing or has a value that it cannot have."""

    default_code = "E10001"


def is_atc_spelling(arguments: Sequence[str]) -> bool:
    """True if the command line has one of ATC's own flags and does not start with a command."""
    if not arguments or not arguments[0].startswith("-"):
        return False
    flags = {_name(word.split("=", 1)[0]) for word in arguments if word.startswith("-")}
    return not flags.isdisjoint(FLAGS.keys() | FOREIGN_FLAGS.keys())


def foreign_flag(flag: str) -> UsageError | None:
    """The error for a flag of ATC that openatc does not have; None for any other word."""
    remedy = FOREIGN_FLAGS.get(_name(flag))
    if remedy is None:
        return None
    return UsageError(f"{flag} is a flag of ATC that openatc does not have", where={"flag": flag}, remedy=remedy)


def _name(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def parse(arguments: Sequence[str]) -> dict[str, str]:
    """The flags as a mapping, `json` and `help` if they are there, with `help` the others unchecked.

    UsageError names the flag and the remedy.
    """
    found: dict[str, str] = {}
    rest = list(arguments)
    if not {"-h", "-help", "--help"}.isdisjoint(rest):
        return {"help": "true"}
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            raise UsageError(
                f"stray argument {word!r}", where={"flag": word}, remedy="quote values that hold blanks or ;"
            )
        flag, separator, value = word.partition("=")
        name = _name(flag)
        if name == "json":
            found["json"] = "true"
            continue
        if name not in FLAGS:
            if foreign := foreign_flag(flag):
                raise foreign
            raise UsageError(f"unknown flag {flag}", where={"flag": flag}, remedy=f"known flags: {', '.join(FLAGS)}")
        if not separator:
            if not rest:
                raise UsageError(f"{flag} needs a value", where={"flag": flag}, remedy=FLAGS[name])
            value = rest.pop(0)
        found[name] = value
    for name, code in (("model", "E10054"), ("framework", "E10007"), ("output", "E10054"), ("soc_version", "E10008")):
        if not found.get(name):
            raise UsageError(
                f"--{name} is missing", code=code, where={"flag": f"--{name}"},
                remedy=f"add --{name}=...: {FLAGS[name]}; quote values that hold a semicolon",
            )  # fmt: skip
    if found["framework"] != "5":
        raise UsageError(
            f"--framework={found['framework']} is not available", code="E10007", where={"flag": "--framework"},
            remedy="export the model to ONNX and use --framework=5",
        )  # fmt: skip
    for name, (values, code) in _VALUES.items():
        if name in found and found[name] not in values:
            raise UsageError(
                f"--{name}={found[name]} is not available", code=code, where={"flag": f"--{name}"},
                remedy=f"use one of {', '.join(values)}",
            )  # fmt: skip
    if "precision_mode" in found and "precision_mode_v2" in found:
        raise UsageError(
            "--precision_mode and --precision_mode_v2 exclude each other", code="E10056",
            where={"flag": "--precision_mode_v2"}, remedy="give one of them",
        )  # fmt: skip
    if found["output"].endswith(("/", os.sep)):
        raise UsageError(
            "--output names a folder", code="E10022", where={"flag": "--output"}, remedy="give a file name"
        )
    return found


def precision_mode_of(name: str) -> str:
    """The mode of that name in `--precision_mode` or `--precision_mode_v2`; UsageError lists the names."""
    if name not in POLICIES and name not in VERSION_2:
        raise UsageError(
            f"--precision_mode={name} is not available", where={"flag": "--precision_mode"},
            remedy=f"use one of {', '.join(POLICIES)}; or of version 2: {', '.join(VERSION_2)}",
        )  # fmt: skip
    return VERSION_2.get(name, name)


def parse_input_shape(text: str) -> dict[str, list[int]]:
    """'a:1,3,-1;b:' as {'a': [1, 3, -1], 'b': []}; the last colon splits, so that names may hold colons."""
    shapes: dict[str, list[int]] = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        name, colon, dims = part.rpartition(":")
        try:
            values = [int(d) for d in dims.split(",") if d.strip()]
        except ValueError:
            values = [0]
        if not colon or not name or any(v == 0 or v < -1 for v in values):
            raise UsageError(
                f"--input_shape: {part!r} is not name:d,d,...", code="E10002", where={"flag": "--input_shape"},
                remedy='write "name:1,3,224,224;other:1,-1" with positive dims or -1',
            )  # fmt: skip
        if name in shapes:
            raise UsageError(
                "--input_shape names an input twice", code="E10002", where={"flag": "--input_shape", "tensor": name},
                remedy="give each input one shape",
            )  # fmt: skip
        shapes[name] = values
    return shapes
