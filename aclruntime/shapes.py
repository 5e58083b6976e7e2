"""The shapes that a dynamic model is to run with, from the words and numbers of `set_dynamic_*`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

_DIGITS = 18
_MOST_ELEMENTS = 1 << 48


def parse_shapes(text: str, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Shapes by input from "name:1,3,224,224;other:1,8"; RuntimeError for a wrong form, an unknown or absent input."""
    shapes: dict[str, tuple[int, ...]] = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        name, colon, numbers = part.rpartition(":")
        words = [w.strip() for w in numbers.split(",")] if numbers.strip() else []
        if not colon or not all(w.isdecimal() and len(w) <= _DIGITS for w in words):
            raise RuntimeError(f"'{part}' is no shape: write name:1,3,224,224 and a semicolon between inputs")
        if name not in names:
            raise RuntimeError(f"the model has no input {name}; it has {', '.join(names)}")
        shapes[name] = tuple(map(int, words))
        if math.prod(shapes[name]) >= _MOST_ELEMENTS:
            raise RuntimeError(f"input {name} of {list(shapes[name])} has more elements than a memory has")
    missing = [n for n in names if n not in shapes]
    if missing:
        raise RuntimeError(f"no shape is given for input {missing[0]}")
    return shapes


def fitting(shapes: Mapping[str, tuple[int, ...]], dims: Mapping[str, Sequence[int]]) -> None:
    """RuntimeError unless every shape agrees with the model's dims, of which -1 is open."""
    for name, shape in shapes.items():
        wanted = dims[name]
        if len(shape) != len(wanted) or any(w not in (-1, s) for s, w in zip(shape, wanted, strict=False)):
            raise RuntimeError(f"input {name} has shape {list(wanted)}, {list(shape)} does not fit")
