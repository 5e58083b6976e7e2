"""Chains of Reshape, Squeeze, Unsqueeze and Flatten become one Reshape of the first input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.scopes import replace_nodes
from graph_opt.simplify.shape_targets import reshape_target

RESHAPES = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")


@dataclass(frozen=True)
class ComposeReshapes:
    """The last reshape of a chain reads the chain's source directly, where a constant target can say its shape."""

    name: ClassVar[str] = "compose-reshapes"

    def apply(self, graph: Graph) -> bool:
        return replace_nodes(graph, _composed)


def _composed(rewriter: Rewriter, node: Node) -> Value | None:
    middle = node.input(0)
    first = None if middle is None or node.op not in RESHAPES else middle.producer
    if middle is None or first is None or first.op not in RESHAPES:
        return None
    source, wanted = first.inputs[0], node.output.shape
    if source is None or source.shape is None or wanted is None:
        return None
    if not (source.format == middle.format == node.output.format and source.format.is_plain):
        return None
    target = reshape_target(source.shape, wanted)
    if target is None:
        return None
    operand = rewriter.constant(np.array(target, np.int64), f"{node.name}.target")
    merged = rewriter.insert("Reshape", [source, operand], before=node, outputs=[node.output.name], name=node.name)
    if len(middle.uses) == 1 and not rewriter.graph.is_output(middle):
        rewriter.absorb([middle], merged.output)
    return merged.output
