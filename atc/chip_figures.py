"""Roofline and bytes per scope of a chip's programs, remembered in the cache: later conversions need not read them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple
from typing import NamedTuple

from codegen.cache_files import CacheFiles, name_of, sources_digest
from codegen.cache_folder import cache_folder
from codegen.kernels.built_programs import program_of
from codegen.targets import Target
from codegen.targets.roofline import Estimate, estimate
from codegen.tile.chip_rules import scope_bytes
from tensor_types.json_text import parse_json

_SOURCES = ("codegen/targets", "codegen/tile", "tensor_types")
_LIMIT = 32 << 20
"""Bytes of all figures, of some kilobytes a model."""


class Figures(NamedTuple):
    """`estimate` is None while a size is symbolic."""

    estimate: Estimate | None
    scopes: Mapping[str, int]


Launch = tuple[str, tuple[int, ...] | None]
"""A program's text and the values of its dims, None while one is symbolic."""


def figure_files() -> CacheFiles:
    """Where figures are kept, one file for all launches of a model."""
    return CacheFiles(cache_folder() / "figures", _LIMIT)


def figures_of(launches: Sequence[Launch], chip: Target) -> dict[Launch, Figures]:
    """The figures of all launches on a chip."""
    asked = list(dict.fromkeys(launches))
    files = figure_files()
    name = name_of(sources_digest(*_SOURCES), chip.name, *(str(part) for launch in asked for part in launch))
    content = files.read(name)
    if content is not None:
        with suppress(ValueError, TypeError):
            rows = parse_json(content)
            found = [Figures(None if e is None else Estimate(*e), scopes) for e, scopes in rows]
            return dict(zip(asked, found, strict=True))
    made = {launch: _figures(*launch, chip) for launch in asked}
    rows = [[None if f.estimate is None else astuple(f.estimate), dict(f.scopes)] for f in made.values()]
    files.write(name, json.dumps(rows).encode())
    files.tend()
    return made


def _figures(text: str, sizes: tuple[int, ...] | None, chip: Target) -> Figures:
    program = program_of(text)
    scopes = scope_bytes(program.tiles, chip)
    if sizes is None:
        return Figures(None, scopes)
    dims = {d.name: n for d, n in zip(program.dims, sizes, strict=True)}
    return Figures(estimate(program, dims, chip), scopes)
