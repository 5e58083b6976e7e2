"""From the text of a flag to the value of an option. A parser takes a flag's name and its value, text or already made,
and gives the option's value; UsageError names flag, value, what is allowed and the nearest of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from atc.usage import UsageError, did_you_mean
from codegen.targets import chip_names, chip_remark, nano_chips, stand_ins
from graph_opt.precision.lists import POLICIES, VERSION_2

_TRUE = ("1", "t", "true", "y", "yes")
_FALSE = ("0", "f", "false", "n", "no")


def one_of(flag: str, value: str, known: Sequence[str], code: str = "E10001") -> str:
    """The value if it is known."""
    if value not in known:
        raise UsageError(
            f"--{flag}={value} is not available", code=code, where={"flag": f"--{flag}"},
            remedy=f"{did_you_mean(value, known)}use one of {', '.join(known)}",
        )  # fmt: skip
    return value


def boolean(flag: str, value: Any) -> bool:
    """ATC's words for true and false."""
    word = str(value).lower()
    if word in _TRUE:
        return True
    one_of(flag, word, (*_TRUE, *_FALSE), "E10005")
    return False


def path(flag: str, value: Any) -> Path | None:
    """A path; nothing for an empty text."""
    return Path(value) if value else None


def words(flag: str, value: Any) -> tuple[str, ...]:
    """Several words: a sequence, or a text with commas."""
    return tuple(filter(None, (w.strip() for w in value.split(",")))) if isinstance(value, str) else tuple(value or ())


def precision_mode(flag: str, value: str) -> str:
    """The mode of that name, of the first version or the second."""
    if value not in POLICIES and value not in VERSION_2:
        raise UsageError(
            f"--{flag}={value} is not available", where={"flag": f"--{flag}"},
            remedy=f"{did_you_mean(value, (*POLICIES, *VERSION_2))}use one of {', '.join(POLICIES)}; "
            f"or of version 2: {', '.join(VERSION_2)}",
        )  # fmt: skip
    return VERSION_2.get(value, value)


def precision_mode_v2(flag: str, value: str) -> str:
    """The mode of that name in the second version."""
    return VERSION_2[one_of(flag, value, tuple(VERSION_2))]


def chips(flag: str, value: Any) -> tuple[str, ...]:
    """Names of chips, each once, as the targets spell them. A name may lack "Ascend" and have any case; a family's
    name is refused with the chips of the family, and so is a chip of another kind (E10055)."""
    return tuple(dict.fromkeys(_chip(flag, name) for name in (words(flag, value) or ("",))))


def chip_notes(value: Any, found: Sequence[str]) -> list[str]:
    """What to say of the chips that `chips` made of the value: of stand-ins, and of names that are often mistaken."""
    given = [_known_chips().get(_chip_key(word), "") for word in words("soc_version", value)]
    notes = [f"{name} is {remark}" for name in found if (remark := chip_remark(name))]
    return notes + [
        f"{name} is taken as {chip}: {why}" for name, (chip, why) in stand_ins().items() if name in given
    ]


def _chip_key(name: str) -> str:
    return name.lower().removeprefix("ascend")


def _known_chips() -> dict[str, str]:
    return {_chip_key(name): name for name in (*chip_names(), *stand_ins(), *nano_chips())}


def _chip(flag: str, given: str) -> str:
    known, wanted = _known_chips(), _chip_key(given)
    if known.get(wanted) in nano_chips():
        raise UsageError(f"--{flag}={given} is a chip whose models are no .om files", code="E10055",
                         where={"flag": f"--{flag}"}, remedy="choose a chip with AI cores")  # fmt: skip
    if wanted in known:
        return stand_ins().get(known[wanted], (known[wanted], ""))[0]
    family = [name for name in chip_names() if wanted and _chip_key(name).startswith(wanted)]
    problem = "names a family of chips" if family else "is no chip that openatc knows"
    guess = "" if family else did_you_mean(f"Ascend{wanted}", known.values())
    raise UsageError(
        f"--{flag}={given} {problem}", where={"flag": f"--{flag}"},
        remedy=f"{guess}use one of {', '.join(family or chip_names())}",
    )  # fmt: skip


def shapes(flag: str, value: Any) -> dict[str, list[int]]:
    """Dims by input name: of a mapping, or of 'a:1,3,-1;b:'; the last colon splits, so that names may hold colons."""
    if isinstance(value, Mapping):
        return {name: list(dims) for name, dims in value.items()}
    found: dict[str, list[int]] = {}
    for part in filter(None, (p.strip() for p in (value or "").split(";"))):
        name, colon, dims = part.rpartition(":")
        try:
            values = [int(d) for d in dims.split(",") if d.strip()]
        except ValueError:
            values = [0]
        if not colon or not name or any(v == 0 or v < -1 for v in values):
            raise UsageError(
                f"--{flag}: {part!r} is not name:d,d,...", code="E10002", where={"flag": f"--{flag}"},
                remedy='write "name:1,3,224,224;other:1,-1" with positive dims or -1',
            )  # fmt: skip
        if name in found:
            raise UsageError(
                f"--{flag} names an input twice", code="E10002", where={"flag": f"--{flag}", "tensor": name},
                remedy="give each input one shape",
            )  # fmt: skip
        found[name] = values
    return found
