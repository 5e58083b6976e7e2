"""Pages of reports: one file each, which loads nothing from a network. Templates lie in `templates`."""

from __future__ import annotations

import json
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from atc import __version__


def render(template: str, data: Any, **context: Any) -> str:
    """A page. Names in `context` are escaped; `data` is what its script reads, and cannot end it."""
    loader = PackageLoader("atc", "templates")
    found = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return found.get_template(template).render(data=embedded(data), tool=f"openatc {__version__}", **context)


def embedded(value: Any) -> str:
    """JSON that is safe inside of a script element: no name in it can end the script."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
