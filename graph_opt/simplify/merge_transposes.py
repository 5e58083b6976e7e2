"""A Transpose of a Transpose becomes one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.scopes import replace_nodes, replaceable


@dataclass(frozen=True)
class MergeTransposes:
    """Composes the permutations of two Transposes in a row; one that then permutes nothing is an identity."""

    name: ClassVar[str] = "merge-transposes"

    def apply(self, graph: Graph) -> bool:
        return replace_nodes(graph, _merged)


def _merged(rewriter: Rewriter, node: Node) -> Value | None:
    middle = node.input(0)
    first = None if middle is None or node.op != "Transpose" else middle.producer
    if first is None or first.op != "Transpose" or node.output.format != first.output.format:
        return None
    source, inner, outer = first.inputs[0], _perm(first), _perm(node)
    if source is None or inner is None or outer is None or source.format != node.output.format:
        return None
    perm = tuple(inner[p] for p in outer)
    if perm == tuple(range(len(perm))) and replaceable(rewriter.graph, node.output, source):
        return source
    attrs = {**node.attrs, "perm": perm}
    return rewriter.insert("Transpose", [source], attrs, before=node, outputs=[node.output.name], name=node.name).output


def _perm(node: Node) -> tuple[int, ...] | None:
    perm, source = node.attrs.get("perm"), node.inputs[0]
    if perm is not None:
        return tuple(int(p) for p in perm)  # type: ignore[union-attr]
    return None if source is None or source.shape is None else tuple(range(len(source.shape)))[::-1]
