"""Nodes, constants and dims that nothing needs go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from graph_opt.ir.core import Graph
from graph_opt.ir.ops.registry import is_fresh
from graph_opt.ir.reads import nested_graphs
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.scopes import control_graphs
from tensor_types.dims import names


@dataclass(frozen=True)
class EliminateDeadCode:
    """Removes what no graph output depends on, in subgraphs as well, and data-dependent dims that no shape names.

    Graph inputs and their dims stay.
    """

    name: ClassVar[str] = "eliminate-dead-code"

    def apply(self, graph: Graph) -> bool:
        changed = any([Rewriter(part).erase_dead() for part in control_graphs(graph)])
        used = set(_dim_names(graph))
        unused = [name for name in graph.dims if is_fresh(name) and name not in used]
        for name in unused:
            del graph.dims[name]
        return changed or bool(unused)


def _dim_names(graph: Graph) -> Iterator[str]:
    for part in (graph, *nested_graphs(graph)):
        for value in part.values.values():
            for extent in (*(value.shape or ()), *(value.content or ())):
                yield from names(extent)
