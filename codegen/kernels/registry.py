"""From a fused node to its family: family F is the module `codegen.kernels.F` and its function `lower_F`."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from codegen.kernels.operands import NotLowerable
from codegen.kernels.tiling import Tiling, parse_tiling
from codegen.kernels.traits import TRAITS
from codegen.targets.target import Target
from graph_opt.ir.core import Node
from graph_opt.plan.records import Record

_FAMILIES = frozenset(t.name for t in TRAITS) | {"custom"}
_UNCUT = frozenset({"moe", "custom"})
"""Families whose kernels are cut in one way only."""


def lower_node(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """Tasks for a Fused node on a target, empty when there is nothing to compute; NotLowerable if it has no kernel.

    A given tiling is used as it is: NotLowerable tells why the kernel cannot have it. Without one the family chooses.
    """
    family = str(node.attrs.get("family", ""))
    if node.op != "Fused" or family not in _FAMILIES:
        raise NotLowerable("no kernel for it")
    if tiling is not None and family in _UNCUT:
        raise NotLowerable(f"kernels of the family {family} have no tiling")
    lower = getattr(_module(family), f"lower_{family}")
    result: list[Record] = lower(node, target) if tiling is None else lower(node, target, tiling)
    return result


def tiling_of(text: str) -> Tiling:
    """The tiling of a text form, of any family; ValueError says what is wrong with it."""
    for family in _FAMILIES:
        _module(family)  # declares its tilings
    return parse_tiling(text)


def _module(family: str) -> ModuleType:
    return import_module(f"codegen.kernels.{family}")
