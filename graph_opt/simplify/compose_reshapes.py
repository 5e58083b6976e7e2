"""Chains of Reshape, Squeeze, Unsqueeze and Flatten become one Reshape of the first input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir.core import Graph, Node
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.scopes import control_graphs
from graph_opt.simplify.shape_targets import reshape_target

RESHAPES = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")


@dataclass(frozen=True)
class ComposeReshapes:
    """The last reshape of a chain reads the chain's source directly, where a constant target can say its shape."""

    name: ClassVar[str] = "compose-reshapes"

    def apply(self, graph: Graph) -> bool:
        return any([self._compose(part) for part in control_graphs(graph)])

    def _compose(self, graph: Graph) -> bool:
        rewriter = Rewriter(graph)
        gone: list[Node] = []
        for node in list(graph.nodes):
            middle = node.input(0)
            first = None if middle is None or node.op not in RESHAPES else middle.producer
            if first is None or first.op not in RESHAPES:
                continue
            source, wanted = first.inputs[0], node.output.shape
            if source is None or source.shape is None or wanted is None:
                continue
            if not (source.format == middle.format == node.output.format and source.format.is_plain):  # type: ignore[union-attr]
                continue
            target = reshape_target(source.shape, wanted)
            if target is None:
                continue
            guards = {k: v for k, v in node.attrs.items() if k == "guards"}
            operand = rewriter.constant(np.array(target, np.int64), f"{node.name}.target")
            merged = rewriter.insert(
                "Reshape", [source, operand], guards, before=node, outputs=[node.output.name], name=node.name
            )
            if len(middle.uses) == 1 and not graph.is_output(middle):  # type: ignore[union-attr]
                rewriter.absorb([middle], merged.output)  # type: ignore[list-item]
            rewriter.replace(node.output, merged.output, "same")
            gone.append(node)
        rewriter.erase_dead(gone)
        return bool(gone)
