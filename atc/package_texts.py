"""Graph and report of a package, as commands show them: checked like all that a stranger may have written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from acl_runtime.om import Package, PackageError
from acl_runtime.package_layout import json_section

if TYPE_CHECKING:
    from graph_opt.ir import Graph

_REMEDY = "the file is damaged: convert the model again"


def _is_count(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63)


_FIELDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("arena_bytes", "arena_lower_bound_bytes", "arena_without_reuse_bytes"), _is_count),
    "index_bounds": lambda v: isinstance(v, dict) and all(map(_is_count, v.values())),
    "fusion_notes": lambda v: isinstance(v, list),
    "precision_mode": lambda v: v is None or isinstance(v, str),
}


def graph_of(package: Package, section: str = "graph") -> Graph:
    """The graph of a section. PackageError if it is none."""
    from graph_opt.ir.text import parse

    try:
        return parse(bytes(package.section(section)).decode())
    except (ValueError, KeyError, IndexError, RecursionError) as error:
        reason = f"section {section} holds no graph: {str(error)[:300]}"
        raise PackageError(reason, remedy=_REMEDY) from error


def report_of(package: Package) -> dict[str, Any]:
    """What the conversion said. PackageError unless it is an object whose known fields are of their types."""
    report = json_section(package, "report")
    if not isinstance(report, dict):
        raise PackageError("the report of the package is no object", remedy=_REMEDY)
    for name, holds in _FIELDS.items():
        if name in report and not holds(report[name]):
            raise PackageError(f"the report of the package has no sound {name}", remedy=_REMEDY)
    return report


def classes_of(package: Package) -> tuple[str, ...]:
    """The host classes that a package says it was made for. PackageError if they are no names."""
    classes = package.header.get("classes", [])
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise PackageError("the host classes of the package are no names", remedy=_REMEDY)
    return tuple(classes)
