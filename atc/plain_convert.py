"""`atc convert` in its plain form, read by the table of options alone.

What reads all forms of all commands takes a third of the time of a conversion whose kernels are cached to be imported.
A form that is not plain (help, a flag that is unknown, stands twice or lacks its value, joined short flags, `--`) is
left to it, and so is everything that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from atc.flag_fates import REFUSED, WITHOUT_EFFECT
from atc.options import Options, declared, spellings

_SWITCHES = {"--json": "json", "-v": "verbose", "--verbose": "verbose", "-q": "quiet", "--quiet": "quiet"}


class PlainConvert(NamedTuple):
    """A conversion as it was asked for; `flags` are texts, lists of texts or True by name of the flag."""

    model: Path
    output: Path | None
    flags: dict[str, Any]
    json: bool
    quiet: bool
    verbose: bool

    def run(self) -> int:
        """Does it and gives the exit code."""
        from atc.run_conversion import run_conversion

        options = Options.of(self.flags)
        return run_conversion(self.model, self.output, options, self.json, quiet=self.quiet, verbose=self.verbose)


def plain_convert(words: Sequence[str]) -> PlainConvert | None:
    """What a command line asks for; None if it is not a conversion in its plain form."""
    if not words or words[0] != "convert":
        return None
    rest = iter(words[1:])
    models: list[str] = []
    switches: set[str] = set()
    flags: dict[str, Any] = {}
    kinds = _kinds()
    for word in rest:
        if not word.startswith("-"):
            models.append(word)
            continue
        if word in _SWITCHES:
            switches.add(_SWITCHES[word])
            continue
        flag, separator, value = word.partition("=")
        name = flag[2:].replace("-", "_") if flag != "-o" else "output"
        kind = kinds.get(name) if flag[:2] == "--" or flag == "-o" and not separator else None
        if kind is None or (kind is bool and separator) or (name in flags and kind is not list):
            return None
        if kind is bool:
            flags[name] = True
            continue
        if not separator:
            value = next(rest, "-")
            if value.startswith("-"):
                return None
        flags[name] = [*flags.get(name, ()), value] if kind is list else value
    if len(models) != 1:
        return None
    flags = {name: flags[name] for name in kinds if name in flags}  # the report shows them in one order
    output = flags.pop("output", None)
    said = {name: name in switches for name in ("json", "quiet", "verbose")}
    return PlainConvert(Path(models[0]), None if output is None else Path(output), flags, **said)


def _kinds() -> dict[str, Callable[..., object]]:
    """By flag what it takes: nothing (bool), a text, or one each time that it is given (list)."""
    found: dict[str, Callable[..., object]] = {}
    for name, about in declared():
        kind = bool if not about.value else list if about.several else str
        found.update(dict.fromkeys(spellings(name, about), kind))
    return found | dict.fromkeys(("output", *WITHOUT_EFFECT, *REFUSED), str)
