"""Drop what a package holds for single host classes; any machine can make it again."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from .container import Section
from .model_def import FusedGraph
from .reader import Package, open_package
from .writer import HEADER, MODEL, Content, write_package

OPTIONAL_PREFIX = "class/"
"""Sections of `class/<host class>/` are optional."""

Rewrite = Callable[[Package], tuple[FusedGraph, Mapping[str, Content]]]
"""The graph for viewers and the sections that change because the optional ones go."""


def strip(
    path_in: str | os.PathLike[str], path_out: str | os.PathLike[str], rewrite: Rewrite | None = None
) -> tuple[Section, ...]:
    """Write `path_in` without its optional sections to `path_out`, which may be the same, and give what was dropped.

    The result has the bytes that writing without these sections would have given. Everything is verified first,
    since new digests would hide old damage. Raises PackageError.
    """
    package = open_package(path_in, verify=True)
    kept: dict[str, Content] = {
        section.name: package.section(section.name)
        for section in package.sections()
        if section.name not in (HEADER, MODEL) and not section.name.startswith(OPTIONAL_PREFIX)
    }
    graph, changed = (package.graph(), {}) if rewrite is None else rewrite(package)
    deflated = {section.name for section in package.sections() if section.deflated}
    dense = {section.name for section in package.sections() if section.dense}
    write_package(path_out, graph, {**kept, **changed}, package.header, deflated, dense)
    return tuple(section for section in package.sections() if section.name.startswith(OPTIONAL_PREFIX))
