"""From a fused node to its family: family F is the module `codegen.kernels.F` and its function `lower_F`."""

from __future__ import annotations

from importlib import import_module

from codegen.kernels.operands import NotLowerable
from codegen.kernels.traits import TRAITS
from codegen.targets.target import Target
from graph_opt.ir.core import Node
from graph_opt.plan.records import Record

_FAMILIES = frozenset(t.name for t in TRAITS) | {"custom"}


def lower_node(node: Node, target: Target) -> list[Record] | None:
    """Tasks for a Fused node on a target, empty when there is nothing to compute; None if its family has no kernel."""
    family = str(node.attrs.get("family", ""))
    if node.op != "Fused" or family not in _FAMILIES:
        return None
    lower = getattr(import_module(f"codegen.kernels.{family}"), f"lower_{family}")
    try:
        result: list[Record] | None = lower(node, target)
    except NotLowerable:
        return None
    return result
