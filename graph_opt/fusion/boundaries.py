"""Why two kernels that follow each other are two, for the report."""

from __future__ import annotations

from collections.abc import Mapping

from graph_opt.fusion.group_order import Group
from graph_opt.fusion.joining import Joining
from graph_opt.ir import Node


def boundaries(joining: Joining, seams: Mapping[Node, str]) -> list[tuple[str, str]]:
    """(node that ends a kernel, why the kernel that reads it is another one), one row per pair of kernels.

    `seams` are the answers of families: why a node is not in the kernel before it.
    """
    rows: dict[tuple[Group, Group], tuple[str, str]] = {}
    for group in joining.order:
        if not group.family:
            continue
        for value in joining.results(group):
            for user, _ in value.uses:
                other = joining.order.group_of.get(user)
                if other is None or other is group or (group, other) in rows or not (other.family or user in seams):
                    continue
                reason = seams.get(user) or _why(joining, group, user, other)
                rows[group, other] = (group.nodes[-1].name, f"before {user.op}: {reason}")
    return list(rows.values())


def _why(joining: Joining, group: Group, user: Node, other: Group) -> str:
    if other.anchor is not None:
        if group.anchor is not None:
            return "a kernel has one anchor"
        if user is not other.anchor:
            return f"it follows the {other.anchor.op} in its kernel"
        family = joining.kernels.family(other.family)
        return (joining.why_not_prologue(other, group, family) if family is not None else None) or "it opens a kernel"
    if group.anchor is None:
        return joining.why_apart(group, user) or _circle(joining, group, user) or "it joined another operand's kernel"
    family = joining.kernels.family(group.family)
    reason = joining.why_not_epilogue(group, user, family) if family is not None else None
    return reason or _circle(joining, group, user) or "this kernel would have two results"


def _circle(joining: Joining, group: Group, user: Node) -> str | None:
    return "another operand depends on this kernel" if joining.order.between(group, user) is None else None
