"""JSON of files that a stranger may have written: whatever is none raises ValueError, deep nesting too; a text of a few
kilobytes, inflated, may be one of millions of values, so their memory is asked for before they are made."""

from __future__ import annotations

import json
from typing import Any

from tensor_types.limits import require_within

_SMALL = 1 << 20
"""Bytes of a text whose values nobody needs to count."""
_COSTS = {"[": 64, "{": 64, ":": 120, ",": 40}
"""About the bytes of a list or object, a member of an object, another value. What stands in strings counts too."""


def parse_json(text: str | bytes) -> Any:
    """The value of a text. ValueError if it is no JSON, or nested too deeply to be read; ResourceLimit."""
    if len(text) > _SMALL:
        marks = _COSTS.items()
        counts = (text.count(m) if isinstance(text, str) else text.count(m.encode()) for m, _ in marks)
        needed = sum(n * cost for n, (_, cost) in zip(counts, marks, strict=True))
        require_within("json_bytes", needed, "bytes for the values of a JSON text, about")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
