"""What to try for a kernel: the family's own tilings first, then neighbours of the best so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import islice

from codegen.kernels import preferred_tilings
from codegen.kernels.tiling import Tiling
from codegen.targets.target import Target
from graph_opt.ir import Node

_OF_A_KIND = 3
_FACTORS = ((1, 2), (2, 1), (3, 2), (2, 3))
"""A size is tried at these ratios of what it is, where they give whole numbers."""


def first_candidates(node: Node, target: Target) -> list[Tiling]:
    """The tilings that the family names, for each algorithm that it has for the node, by falling preference."""
    found = preferred_tilings(node, target)
    return [tiling for kind in found for tiling in islice(kind, _OF_A_KIND)]


def neighbours(tiling: Tiling) -> Iterator[Tiling]:
    """Tilings that differ from one in one size or switch. Some of them no kernel may be able to have."""
    for f in fields(tiling):
        if f.name in tiling.kept:
            continue
        value = getattr(tiling, f.name)
        if isinstance(value, bool):
            yield replace(tiling, **{f.name: not value})
        elif isinstance(value, int):
            yield from (replace(tiling, **{f.name: size}) for size in _sizes(value))
        else:
            for k, part in enumerate(value):
                for size in _sizes(part):
                    yield replace(tiling, **{f.name: (*value[:k], size, *value[k + 1 :])})


def _sizes(size: int) -> Iterator[int]:
    for up, down in _FACTORS:
        if size * up % down == 0 and size * up // down != size:
            yield size * up // down
