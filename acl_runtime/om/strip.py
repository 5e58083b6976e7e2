"""Drop what a package holds for single host classes; any machine can make it again."""

from __future__ import annotations

import os

from .container import Section
from .reader import open_package
from .writer import HEADER, MODEL, write_package

OPTIONAL_PREFIX = "class/"
"""Sections `class/<host class>/programs`, `/objects` and `/packed` are optional."""


def strip(path_in: str | os.PathLike[str], path_out: str | os.PathLike[str]) -> tuple[Section, ...]:
    """Write `path_in` without its optional sections to `path_out`, which may be the same, and give what was dropped.

    The result has the bytes that writing without these sections would have given. Everything is verified first,
    since new digests would hide old damage. Raises PackageError.
    """
    package = open_package(path_in, verify=True)
    kept = {
        section.name: package.section(section.name)
        for section in package.sections()
        if section.name not in (HEADER, MODEL) and not section.name.startswith(OPTIONAL_PREFIX)
    }
    write_package(path_out, package.graph(), kept, package.header)
    return tuple(section for section in package.sections() if section.name.startswith(OPTIONAL_PREFIX))
