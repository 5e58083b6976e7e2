"""Guards: the conditions under which a node of a flattened If branch runs, as the attribute `guards`.

A guard is the text `value=1` or `value=0`, the name of a bool value and what it must be; outer ones come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from graph_opt.ir import Node


def guards_of(node: Node) -> tuple[str, ...]:
    """The guards of a node, outer ones first."""
    return tuple(cast("Sequence[str]", node.attrs.get("guards") or ()))


def split_guard(word: str) -> tuple[str, int]:
    """The name and what it must be."""
    name, _, wanted = word.rpartition("=")
    return name, int(wanted)
