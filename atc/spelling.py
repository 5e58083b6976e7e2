"""ATC's own spelling of a conversion: `atc --model=m.onnx --framework=5 --output=m --soc_version=Ascend910B2 ...`.

`--k=v` and `--k v` are the same, one dash may stand for two, dashes in a flag name count as underscores.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from atc.flag_fates import REFUSED, WITHOUT_EFFECT
from atc.option_values import one_of
from atc.options import Options, declared
from atc.usage import Problems, UsageError, did_you_mean

DRIVER_FLAGS = {
    "mode": "0 converts, 1 shows a model as JSON, 3 checks, 5 shows a dumped graph as JSON, 6 what a package holds",
    "om": "package, or ONNX file, of modes 1 and 6; ge_proto_*.txt of mode 5",
    "singleop": "JSON file of single operators: a package for each, in the folder that --output names",
    "display_model_info": "1 shows after the conversion what mode 6 shows",
    "model": "path of the ONNX file",
    "framework": "5 (ONNX)",
    "output": "path of the package without its extension",
    "log": "debug, info, warning, error or null",
    "json": "without a value: one JSON object on standard output; with a path: the file of modes 1 and 5",
}
"""Flags that are no options of the conversion itself."""

OPTION_FLAGS = {
    flag: text
    for name, about in declared()
    for flag, text in {name: about.help, **{other: text for other, (_, text) in about.also.items()}}.items()
}

FLAGS = {**DRIVER_FLAGS, **OPTION_FLAGS}
"""Flags that work, with their meaning."""

_KNOWN = {*FLAGS, *WITHOUT_EFFECT, *REFUSED}

_NEEDED: dict[str, dict[str, str]] = {
    "0": {"model": "E10054", "framework": "E10007", "output": "E10054", "soc_version": "E10008"},
    "1": {"om": "E10054", "json": "E10054"},
    "3": {"model": "E10054", "framework": "E10007"},
    "5": {"om": "E10054", "json": "E10054"},
    "6": {"om": "E10054"},
}
"""Flags that a mode cannot do without, with ATC's code."""

_SINGLE = {"singleop": "E10054", "output": "E10054", "soc_version": "E10008"}
_NOT_SINGLE = ("model", "framework", "insert_op_conf", "display_model_info")
"""Flags that --singleop needs, and that it does not go with."""

_LONGEST_PATH = 4096


def is_atc_spelling(arguments: Sequence[str]) -> bool:
    """True if the command line has one of ATC's own flags and does not start with a command."""
    if not arguments or not arguments[0].startswith("-"):
        return False
    flags = {_name(word.split("=", 1)[0]) for word in arguments if word.startswith("-")}
    return not flags.isdisjoint(_KNOWN)


def wants_json(arguments: Sequence[str]) -> bool:
    """True if the result is to be JSON: `--json` stands there without a path."""
    last = len(arguments) - 1
    is_atc = is_atc_spelling(arguments)
    return any(
        word == "--json" and (not is_atc or i == last or arguments[i + 1].startswith("-"))
        for i, word in enumerate(arguments)
    )


def _name(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def parse(arguments: Sequence[str]) -> tuple[dict[str, str], Options]:
    """The flags of the driver, `json` and `help` if they are there, and the options; with `help` all is unchecked.

    UsageError names every flag that is wrong, and the remedy.
    """
    found: dict[str, str] = {}
    problems = Problems()
    rest = list(arguments)
    if not {"-h", "-help", "--help"}.isdisjoint(rest):
        return {"help": "true"}, Options()
    while rest:
        with problems.gathered():
            _take(rest, found)
    mode = found.get("mode", "0")
    with problems.gathered():
        _check_mode(mode)
    is_single = "singleop" in found
    with problems.gathered():
        clash = [n for n in _NOT_SINGLE if n in found] + ["mode"] * (mode != "0")
        if is_single and clash:
            raise UsageError(
                f"--singleop takes no --{clash[0]}", code="E10023", where={"flag": f"--{clash[0]}"},
                remedy="leave it out: the file names operator, tensors and attributes",
            )  # fmt: skip
    for name, code in (_SINGLE if is_single else _NEEDED.get(mode, {})).items():
        if not found.get(name):
            with problems.gathered():
                raise UsageError(
                    f"--{name} is missing", code=code, where={"flag": f"--{name}"},
                    remedy=f"add --{name}=...: {FLAGS[name]}; quote values that hold a semicolon",
                )  # fmt: skip
    with problems.gathered():
        if found.get("framework", "5") != "5":
            raise UsageError(
                f"--framework={found['framework']} is not available", code="E10007", where={"flag": "--framework"},
                remedy="export the model to ONNX and use --framework=5",
            )  # fmt: skip
    with problems.gathered():
        one_of("log", found.get("log", "null"), ("debug", "info", "warning", "error", "null"), "E10010")
    with problems.gathered():
        if found.get("output", "").endswith(("/", os.sep)) and not is_single:
            raise UsageError(
                "--output names a folder", code="E10022", where={"flag": "--output"}, remedy="give a file name"
            )
    for name in ("model", "output", "om", "json"):
        with problems.gathered():
            if len(found.get(name, "")) > _LONGEST_PATH:
                raise UsageError(f"--{name} has {len(found[name])} characters", code="E10021",
                                 where={"flag": f"--{name}"}, remedy=f"use at most {_LONGEST_PATH}")  # fmt: skip
    with problems.gathered():
        one_of("display_model_info", found.get("display_model_info", "0"), ("0", "1"), "E10006")
    options = Options()
    with problems.gathered():
        options = Options.of({name: value for name, value in found.items() if name not in DRIVER_FLAGS})
    problems.raise_all()
    return found, options


def _check_mode(mode: str) -> None:
    if mode in ("7", "30"):
        raise UsageError(f"--mode={mode} is not available", code="E10055", where={"flag": "--mode"},
                         remedy="use 0, 1, 3, 5 or 6: files of other kinds are neither read nor written")  # fmt: skip
    one_of("mode", mode, tuple(_NEEDED))


def _take(rest: list[str], found: dict[str, str]) -> None:
    """Moves one flag with its value from the words to the mapping."""
    word = rest.pop(0)
    if not word.startswith("-"):
        raise UsageError(f"stray argument {word!r}", where={"flag": word}, remedy="quote values that hold blanks or ;")
    flag, separator, value = word.partition("=")
    name = _name(flag)
    if name == "json" and not separator and (not rest or rest[0].startswith("-")):
        found["json"] = ""
        return
    if not separator and rest and not rest[0].startswith("--"):
        separator, value = "=", rest.pop(0)
    if name not in _KNOWN:
        raise UsageError(f"unknown flag {flag}", where={"flag": flag},
                         remedy=did_you_mean(name, _KNOWN) or f"known flags: {', '.join(FLAGS)}")  # fmt: skip
    if not separator:
        raise UsageError(f"{flag} needs a value", where={"flag": flag}, remedy=FLAGS.get(name, "see docs/flags.md"))
    found[name] = value
