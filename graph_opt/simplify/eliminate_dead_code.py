"""Nodes and constants that nothing needs go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graph_opt.ir.core import Graph
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.scopes import control_graphs


@dataclass(frozen=True)
class EliminateDeadCode:
    """Removes what no graph output depends on, in subgraphs as well. Graph inputs stay."""

    name: ClassVar[str] = "eliminate-dead-code"

    def apply(self, graph: Graph) -> bool:
        return any([Rewriter(part).erase_dead() for part in control_graphs(graph)])
