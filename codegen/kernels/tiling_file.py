"""Tilings that a user gives for nodes by name: a text of lines `node: tiling`, `#` starts a comment.

    fc1: matmul rows=96 columns=32 panels_outside=0
    fc1: matmul_cube rows=128 columns=256 vector=4096

A node may have one tiling for hosts and one for chips.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from codegen.kernels.registry import tiling_of
from codegen.kernels.tiling import Tiling
from codegen.targets.target import Target
from tensor_types.errors import OpenAtcError

Tilings = Mapping[str, tuple[Tiling, ...]]
"""By name of a node of the optimised graph."""


class TilingRefused(OpenAtcError):
    """A tiling that no kernel of its node can have, or a line that is none."""

    default_code = "E17003"


def read_tilings(text: str) -> Tilings:
    """The tilings of a text; TilingRefused names the line that is wrong."""
    found: dict[str, tuple[Tiling, ...]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        node, colon, words = content.rpartition(": ")
        if not colon or not node:
            raise _wrong_line(number, f"{content!r} is not `node: tiling`")
        try:
            tiling = tiling_of(words)
        except ValueError as error:
            raise _wrong_line(number, str(error)) from None
        if any("" in (t.place, tiling.place) or t.place == tiling.place for t in found.get(node, ())):
            raise _wrong_line(number, f"a second tiling of {node} for the same targets")
        found[node] = (*found.get(node, ()), tiling)
    return found


def tilings_text(tilings: Tilings) -> str:
    """The text of which `read_tilings` gives these tilings."""
    return "".join(f"{node}: {tiling}\n" for node in sorted(tilings) for tiling in tilings[node])


def check_nodes(tilings: Tilings, names: Iterable[str]) -> None:
    """TilingRefused if a tiling is for none of the nodes of these names."""
    known = list(names)
    for node in tilings:
        if node not in known:
            near = difflib.get_close_matches(node, known, 3)
            remedy = f"did you mean {', '.join(near)}?" if near else f"nodes with kernels: {', '.join(known[:8])}"
            raise TilingRefused("there is no such node with a kernel", where={"node": node}, remedy=remedy)


def tiling_for(tilings: Tilings, node: str, target: Target) -> Tiling | None:
    """What is given for a node on a target, if anything is."""
    return next((t for t in tilings.get(node, ()) if t.place in ("", target.kind)), None)


def _wrong_line(number: int, reason: str) -> TilingRefused:
    remedy = "write `node: kind field=number ...`, as `atc inspect` shows it"
    return TilingRefused(f"line {number}: {reason}", remedy=remedy)
