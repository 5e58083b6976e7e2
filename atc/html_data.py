"""Data inside of HTML pages."""

from __future__ import annotations

import json
from typing import Any


def embedded(value: Any) -> str:
    """JSON that is safe inside of a script element: no name in it can end the script."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
