"""Families for tests of passes: small ones whose answers a test chooses, and openatc's own for a host class."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from codegen.kernels import kernels
from codegen.targets import target
from graph_opt.fusion.families import Family, Kernels
from graph_opt.ir import Node

OWN = kernels([target("x86-64-v3")])


def family(
    name: str, anchors: Iterable[str] = (), *, dtypes: Iterable[str] = ("f32",), before: Iterable[str] = (),
    after: Iterable[str] = (), prefers: str = "plain", refuses: Callable[[Node], str | None] = lambda _: None,
) -> Family:  # fmt: skip
    """A family that takes operands of these dtypes, unless `refuses` gives a reason against a Fused node."""
    taken = {*dtypes, "bool", "i64", "i32"}

    def claims(node: Node, _: object) -> str | None:
        found = {v.dtype.name for v in node.subgraphs["body"].values.values()} - taken
        return f"no {name} kernel for {', '.join(sorted(found))}" if found else refuses(node)

    return Family(name, frozenset(anchors), claims, frozenset(before), frozenset(after), prefers)


def of(*families: Family) -> Kernels:
    """These families, for one target."""
    return Kernels(families, ("a target",))
