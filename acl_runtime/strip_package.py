"""Strips a package: what it holds for single host classes goes, and its weights become canonical again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from acl_runtime.om import WEIGHTS, Content, FusedGraph, Package, Section, strip
from acl_runtime.package_layout import CONSTANTS, json_bytes, json_section
from acl_runtime.stored_constants import ConstantTable, lay_out, weights
from tensor_types.recipes import Source


def strip_package(path_in: str | os.PathLike[str], path_out: str | os.PathLike[str]) -> tuple[Section, ...]:
    """Writes `path_in` without what other machines make again to `path_out`, which may be the same; what was dropped.

    The result has the bytes of a package written for no host class. Everything is verified first. Raises PackageError.
    """
    return strip(path_in, path_out, _canonical)


def _canonical(package: Package) -> tuple[FusedGraph, Mapping[str, Content]]:
    """The graph for viewers and the sections that change."""
    rows: Mapping[str, Any] = json_section(package, CONSTANTS)
    stored = ConstantTable(package, rows)
    rows_of = {name: stored.row(name) for name in stored.names()}
    constants = {name: Source(stored.canonical(name)) for name, row in rows_of.items() if row.of is None}
    made = {name: row for name, row in rows_of.items() if row.of is not None}
    table = dict(sorted({**lay_out(constants), **made}.items()))
    shown = package.graph()
    moved = [
        replace(c, shape=table[c.name].shape, offset=table[c.name].offset, size=table[c.name].nbytes)
        if c.name in constants
        else c
        for c in shown.constants
    ]
    sections = {
        CONSTANTS: json_bytes({name: row.row() for name, row in table.items()}),
        WEIGHTS: weights(constants, table),
    }
    return replace(shown, constants=tuple(moved)), sections
