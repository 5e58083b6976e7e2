"""From the text of a flag to the value of an option. A parser takes a flag's name and its value, text or already made,
and gives the option's value; UsageError names flag, value, what is allowed and the nearest of it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from atc.pass_table import check_disabled
from atc.usage import Problems, UsageError, did_you_mean
from codegen.targets import chip_names, chip_remark, nano_chips, stand_ins
from graph_opt.precision.lists import POLICIES, VERSION_2

_TRUE = ("1", "t", "true", "y", "yes")
_FALSE = ("0", "f", "false", "n", "no")


class Noted(NamedTuple):
    """A value with what the user should know of it."""

    value: Any
    notes: tuple[str, ...]


IMPLEMENTATION_MODES = ("high_performance", "high_precision", "high_performance_for_all", "high_precision_for_all")


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


def count(flag: str, value: Any) -> int:
    """A number of things, 0 for none. UsageError (E10001)."""
    text = str(value)
    if not text.isdecimal() or len(text) > 9:
        raise UsageError(f"{text} is no number of 0 or more", code="E10001", where={"flag": f"--{flag}"},
                         remedy=f"--{flag}=2048, for instance")  # fmt: skip
    return int(text)


def implementation_mode(flag: str, value: Any) -> bool:
    """True where ATC's mode of implementation asks for precision."""
    mode = str(value)
    one_of(flag, mode, IMPLEMENTATION_MODES)
    return mode.startswith("high_precision")


def seconds(flag: str, value: Any) -> int:
    """A whole number of seconds from 1 on."""
    text = str(value).strip()
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 10**6):
        raise UsageError(f"--{flag}={value} is no number of seconds", code="E10001", where={"flag": f"--{flag}"},
                         remedy="write a whole number from 1 on")  # fmt: skip
    return int(text)


def path(flag: str, value: Any) -> Path | None:
    """A path; nothing for an empty text."""
    return Path(value) if value else None


def words(flag: str, value: Any) -> tuple[str, ...]:
    """Several words: a sequence, or a text with commas."""
    return _texts(value, ",")


def names(flag: str, value: Any) -> tuple[str, ...]:
    """Names with semicolons between them, or a sequence."""
    return _texts(value, ";")


def _texts(value: Any, between: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(filter(None, (w.strip() for w in value.split(between))))
    found = tuple(value or ())
    if not all(isinstance(word, str) for word in found):
        raise TypeError("every item is a text")
    return found


def named_sizes(flag: str, value: str) -> dict[str, int]:
    """'batch=2,past=128': sizes by the name of a dim."""
    found = {}
    for word in words(flag, value):
        name, _, size = word.partition("=")
        if not name or not size.isdecimal() or len(size) > 18 or name in found:
            raise UsageError(f"--{flag}: {word!r} is no size of a dim of its own", where={"flag": f"--{flag}"},
                             remedy='write "batch=2,past=128"')  # fmt: skip
        found[name] = int(size)
    return found


OUTPUT_TYPES = {"FP32": "f32", "FP16": "f16", "UINT8": "u8", "INT8": "i8", "INT16": "i16", "INT32": "i32",
                "INT64": "i64", "UINT16": "u16", "UINT32": "u32", "UINT64": "u64", "DOUBLE": "f64"}  # fmt: skip


def output_types(flag: str, value: str) -> tuple[tuple[str, str], ...]:
    """'FP16' for all outputs of floats, as (('', dtype),); 'node:index:FP16;...' for single ones."""
    found = []
    for part in names(flag, value):
        name, _, word = part.rpartition(":")
        dtype = OUTPUT_TYPES[one_of(flag, word.upper(), tuple(OUTPUT_TYPES))]
        if not name and len(names(flag, value)) > 1:
            raise UsageError(f"--{flag}: {part!r} names no output", where={"flag": f"--{flag}"},
                             remedy='write one type for all, or "node:0:FP16;other:0:FP32"')  # fmt: skip
        found.append((name, dtype))
    return tuple(found)


def disabled_passes(flag: str, value: Any) -> tuple[str, ...]:
    """Names of graph passes that may be left out."""
    return check_disabled(flag, words(flag, value))


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


def input_format(flag: str, value: str) -> str:
    """The layout of image inputs, in any case."""
    return one_of(flag, value.upper(), ("ND", "NCHW", "NHWC", "NCDHW", "NDHWC"))


def chips(flag: str, value: Any) -> Noted:
    """Names of chips, each once, as the targets spell them. A name may lack "Ascend" and have any case; a family's
    name is refused with the chips of the family, and so is a chip of another kind (E10055). Chips that stand for
    others, and names that are often mistaken, are noted."""
    given = words(flag, value) or ("",)
    found = tuple(dict.fromkeys(_chip(flag, name) for name in given))
    meant = [_known_chips()[_chip_key(name)] for name in given]
    notes = [f"{name} is {remark}" for name in meant if (remark := chip_remark(name))]
    notes += [f"{name} is taken as {chip}: {why}" for name, (chip, why) in stand_ins().items() if name in meant]
    return Noted(found, tuple(notes))


def one_chip(flag: str, value: str) -> str:
    """The chip of that name, as `chips` takes it."""
    return _chip(flag, value)


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
    for length in range(len(wanted), 2, -1):
        family = family or [name for name in chip_names() if _chip_key(name).startswith(wanted[:length])]
    raise UsageError(
        f"--{flag}={given} {problem}", where={"flag": f"--{flag}"},
        remedy=f"{guess}use one of {', '.join(family or chip_names())}",
    )  # fmt: skip


Shapes = Mapping[str | int, Sequence[int | tuple[int, int | None]]]
"""Dims by input: a size, -1 for the model's own, or a range (None: no limit). Keys are names, or numbers where the
inputs are not named."""


def shapes(flag: str, value: Any) -> Shapes:
    """Dims by input name: of a mapping, or of a text.

    'a:1,3,-1;b:' names inputs; the last colon splits, so that names may hold colons. '1,3,-1;2,3~8' lists their shapes
    in order. A dim is a size, -1 or a range 3~8 (3~-1 has no upper limit). Errors: E10002 for another form, E10011 for
    a size that is neither positive nor -1, E10013 for one beyond 2^31 - 1.
    """
    if isinstance(value, Mapping):
        return {name: [_checked(flag, name, dim) for dim in dims] for name, dims in value.items()}
    parts = [p.strip() for p in (value or "").split(";") if p.strip()]
    is_named = any(":" in p for p in parts)
    found: dict[str | int, Sequence[int | tuple[int, int | None]]] = {}
    problems = Problems()
    for number, part in enumerate(parts):
        with problems.gathered():
            name, dims = _named(flag, part, found) if is_named else (number, part)
            found[name] = _dims(flag, dims, part)
    problems.raise_all()
    return found


def _named(flag: str, part: str, found: Collection[str | int]) -> tuple[str, str]:
    """The name of an input, and the text of its dims."""
    name, colon, dims = part.rpartition(":")
    name = name.strip()
    if not colon or not name:
        raise _bad_shape(flag, part, "is not name:d,d,...")
    if name in found:
        raise UsageError(
            f"--{flag} names an input twice", code="E10002", where={"flag": f"--{flag}", "tensor": name},
            remedy="give each input one shape",
        )  # fmt: skip
    return name, dims


def sizes(flag: str, value: str) -> dict[str, list[int]]:
    """As `shapes`, of named inputs, without ranges: what a run takes."""
    found: dict[str, list[int]] = {}
    for name, dims in shapes(flag, value).items():
        if not isinstance(name, str) or not all(isinstance(d, int) for d in dims):
            raise _bad_shape(flag, value, "names no inputs, or holds a range: a run has sizes")
        found[name] = [d for d in dims if isinstance(d, int)]
    return found


def shape_ranges(flag: str, value: Any) -> Noted:
    """As `shapes`, with brackets around the dims of an input: 'a:[1,3~8,-1];b:[2]', and '[1],[2]' without names."""
    if not isinstance(value, str):
        return Noted(shapes(flag, value), (_OLD_FORM,))
    plain = re.sub(r"\]\s*,\s*\[", "];[", value)
    for part in filter(None, (p.strip() for p in plain.split(";"))):
        if not re.fullmatch(r"(.+:\s*)?\[[^\[\]]*\]", part):
            raise UsageError(f"--{flag}: {part!r} is not name:[d,d~d,...]", code="E10048", where={"flag": f"--{flag}"},
                             remedy='write "name:[1,3~8,-1];other:[2]"')  # fmt: skip
    return Noted(shapes(flag, plain.replace("[", "").replace("]", "")), (_OLD_FORM,))


_OLD_FORM = "--input_shape_range is ATC's older form: --input_shape takes ranges as well"

_MOST = 2**31 - 1


def _dims(flag: str, text: str, part: str) -> list[int | tuple[int, int | None]]:
    return [_dim(flag, word.strip(), part) for word in text.split(",") if text.strip()]


def _dim(flag: str, word: str, part: str) -> int | tuple[int, int | None]:
    low, tilde, high = word.partition("~")
    try:
        sizes = [int(low), int(high)] if tilde else [int(low)]
    except ValueError:
        raise _bad_shape(flag, part, f"holds {word!r}, which is no size") from None
    if any(size > _MOST for size in sizes):
        raise _bad_shape(flag, part, f"holds {word}, beyond the largest size {_MOST}", "E10013")
    if tilde:
        if sizes[0] < 1 or (sizes[1] != -1 and sizes[1] < sizes[0]):
            raise _bad_shape(flag, part, f"holds the range {word}, which has no sizes", "E10011")
        return sizes[0], None if sizes[1] == -1 else sizes[1]
    if sizes[0] < -1 or sizes[0] == 0:
        raise _bad_shape(flag, part, f"holds {word}, which is neither positive nor -1", "E10011")
    return sizes[0]


def _checked(flag: str, name: Any, dim: Any) -> int | tuple[int, int | None]:
    """A dim that Python gave: a size, -1, or a pair of sizes of which the second may be None or -1."""
    low, *high = dim if isinstance(dim, (tuple, list)) else (dim,)
    words = [str(low), *("-1" if word is None else str(word) for word in high)]
    return _dim(flag, "~".join(words), f"{name}: {dim}")


def _bad_shape(flag: str, part: str, what: str, code: str = "E10002") -> UsageError:
    return UsageError(
        f"--{flag}: {part!r} {what}", code=code, where={"flag": f"--{flag}"},
        remedy='write "name:1,3,224,224;other:1~8,-1": sizes, ranges or -1; quote the text, it may hold a semicolon',
    )  # fmt: skip


def tilings(flag: str, value: Any) -> Mapping[str, Any]:
    """Tilings by node name: of a mapping (values as in a file, or made before), or those of a file. TilingRefused
    names a line that is wrong."""
    from codegen.kernels import read_tilings

    if isinstance(value, Mapping) or not value:
        return {node: _tilings_of(tilings) for node, tilings in (value or {}).items()}
    try:
        text = Path(value).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--{flag}={value} cannot be read: {error}", code="E13001", where={"flag": f"--{flag}"},
                         remedy="give a text file of lines `node: tiling`") from None  # fmt: skip
    return read_tilings(text)


def _tilings_of(value: Any) -> tuple[Any, ...]:
    """The tilings of one node: a text, a tiling, or several of these. ValueError for a text that is none."""
    from codegen.kernels import tiling_of
    from codegen.kernels.tiling import Tiling

    several = [value] if isinstance(value, (str, Tiling)) else value
    found = tuple(tiling_of(t) if isinstance(t, str) else t for t in several)
    if not all(isinstance(tiling, Tiling) for tiling in found):
        raise TypeError("a node has a tiling as text, or several")
    return found
