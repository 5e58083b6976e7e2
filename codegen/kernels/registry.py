"""From a fused node to its family: family F is the module `codegen.kernels.F` and its function `lower_F`."""

from __future__ import annotations

from importlib import import_module

from codegen.kernels.operands import NotLowerable
from codegen.kernels.traits import TRAITS
from codegen.targets.target import Target
from graph_opt.ir.core import Node
from graph_opt.plan.records import Record

_FAMILIES = frozenset(t.name for t in TRAITS) | {"custom"}


def lower_node(node: Node, target: Target) -> list[Record]:
    """Tasks for a Fused node on a target, empty when there is nothing to compute; NotLowerable if it has no kernel."""
    family = str(node.attrs.get("family", ""))
    if node.op != "Fused" or family not in _FAMILIES:
        raise NotLowerable("no kernel for it")
    lower = getattr(import_module(f"codegen.kernels.{family}"), f"lower_{family}")
    result: list[Record] | None = lower(node, target)
    if result is None:
        raise NotLowerable("no kernel for this form")
    return result
