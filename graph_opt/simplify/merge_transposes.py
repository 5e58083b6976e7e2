"""A Transpose of a Transpose becomes one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graph_opt.ir.core import Graph, Node
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.scopes import control_graphs, replaceable


@dataclass(frozen=True)
class MergeTransposes:
    """Composes the permutations of two Transposes in a row; one that then permutes nothing is an identity."""

    name: ClassVar[str] = "merge-transposes"

    def apply(self, graph: Graph) -> bool:
        return any([self._merge(part) for part in control_graphs(graph)])

    def _merge(self, graph: Graph) -> bool:
        rewriter = Rewriter(graph)
        gone: list[Node] = []
        for node in list(graph.nodes):
            middle = node.input(0)
            first = None if middle is None or node.op != "Transpose" else middle.producer
            if first is None or first.op != "Transpose" or not (node.output.format == first.output.format):
                continue
            source = first.inputs[0]
            inner, outer = _perm(first), _perm(node)
            if source is None or inner is None or outer is None or source.format != node.output.format:
                continue
            perm = tuple(inner[p] for p in outer)
            if perm == tuple(range(len(perm))) and replaceable(graph, node.output, source):
                rewriter.replace(node.output, source, "same")
            else:
                attrs = {**node.attrs, "perm": perm}
                merged = rewriter.insert(
                    "Transpose", [source], attrs, before=node, outputs=[node.output.name], name=node.name
                )
                rewriter.replace(node.output, merged.output, "same")
            gone.append(node)
        rewriter.erase_dead(gone)
        return bool(gone)


def _perm(node: Node) -> tuple[int, ...] | None:
    perm, source = node.attrs.get("perm"), node.inputs[0]
    if perm is not None:
        return tuple(int(p) for p in perm)  # type: ignore[union-attr]
    return None if source is None or source.shape is None else tuple(range(len(source.shape)))[::-1]
