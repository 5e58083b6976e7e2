"""Operators of very many operands become trees of themselves: a kernel takes a limited number of tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graph_opt.ir.core import Graph, Node
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.scopes import control_graphs

_MOST = 64
"""Operands that stay one node."""
_GROUP = 16
"""Operands of a node of the tree: so many of them as a kernel has nodes stay within what a kernel takes."""
_ASSOCIATIVE = frozenset({"Sum", "Max", "Min"})


@dataclass(frozen=True)
class SplitWideOperators:
    """Sum, Max and Min of more than 64 operands become a tree of nodes with 16 each."""

    name: ClassVar[str] = "split-wide-operators"

    def apply(self, graph: Graph) -> bool:
        changed = False
        for part in control_graphs(graph):
            rewriter = Rewriter(part)
            changed |= any([_split(rewriter, n) for n in list(part.nodes) if _is_wide(n)])
        return changed


def _is_wide(node: Node) -> bool:
    return node.op in _ASSOCIATIVE and len(node.inputs) > _MOST


def _split(rewriter: Rewriter, node: Node) -> bool:
    values, level = list(node.inputs), 0
    while len(values) > 1:
        groups = [values[i : i + _GROUP] for i in range(0, len(values), _GROUP)]
        names = [f"{node.name or node.output.name}/part{level}_{i}" for i in range(len(groups))]
        values = [
            rewriter.insert(node.op, group, before=node, name=name).output if len(group) > 1 else group[0]
            for name, group in zip(names, groups, strict=True)
        ]
        level += 1
    assert values[0] is not None
    rewriter.replace(node.output, values[0])
    rewriter.erase_dead([node])
    return True
