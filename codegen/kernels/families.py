"""The kernel families as the passes see them: what is worth asking of each, and the one answer to what it takes."""

from __future__ import annotations

from collections.abc import Iterable

from codegen.kernels.custom import custom_operators
from codegen.kernels.family_table import CUSTOM, ROWS, Row
from codegen.kernels.registry import claims
from codegen.targets.target import Target
from graph_opt.fusion.families import Family, Kernels


def _family(row: Row, anchors: Iterable[str], retypes: bool = True) -> Family:
    return Family(row.name, frozenset(anchors), claims, row.before, row.after, row.prefers, retypes)


def families() -> tuple[Family, ...]:
    """The families of openatc and, behind them, that of the operators registered with a tile program."""
    return (*(_family(row, row.anchors) for row in ROWS), _family(CUSTOM, custom_operators(), retypes=False))


def kernels(targets: Iterable[Target]) -> Kernels:
    """The families, asked for all of these targets at once: those that one graph is lowered for."""
    return Kernels(families(), tuple({t.name: t for t in targets}.values()))
