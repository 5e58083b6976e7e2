"""Moves both branches of an If into the outer graph, guarded, where their results meet in IfMerge nodes.

An If qualifies when its branches agree in the dtype, rank and (provably) the extents of every output; others stay. Each
node gets the attribute `guards`, the conditions of all Ifs around it, outer ones first. An IfMerge per output keeps the
If output's name and runs under the guards of the If itself. Ifs inside branches follow in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.guarding import guards_of
from graph_opt.simplify.inline_branch import inline_branch
from graph_opt.simplify.refinement import decided_dims, substitute_dims
from tensor_types.dims import Dim, Range, prove_le


@dataclass(frozen=True)
class FlattenIf:
    """See the module."""

    name: ClassVar[str] = "flatten-if"

    def apply(self, graph: Graph) -> bool:
        rewriter = Rewriter(graph)
        decided: dict[str, Dim] = {}
        pending = [n for n in graph.nodes if n.op == "If"][::-1]
        changed = False
        while pending:
            node = pending.pop()
            if not _branches_agree(graph, node):
                continue
            pending.extend(_flatten(rewriter, node, decided))
            changed = True
        substitute_dims(graph, decided)
        return changed


def _branches_agree(graph: Graph, node: Node) -> bool:
    then, other = node.subgraphs["then_branch"], node.subgraphs["else_branch"]
    return all(_agree(graph, a, b) for a, b in zip(then.outputs, other.outputs, strict=True))


def _agree(graph: Graph, a: Value, b: Value) -> bool:
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape) or a.dtype != b.dtype or a.format != b.format:
        return False
    ranges = cast("dict[str, Range]", graph.dims)
    return all(
        x == y or (prove_le(x, y, ranges) and prove_le(y, x, ranges)) for x, y in zip(a.shape, b.shape, strict=True)
    )


def _flatten(rewriter: Rewriter, node: Node, decided: dict[str, Dim]) -> list[Node]:
    """Flattens one If and returns the Ifs that came out of its branches."""
    condition, guards = node.inputs[0], guards_of(node)
    assert condition is not None
    then, then_nodes = inline_branch(rewriter, node, "then_branch", (*guards, f"{condition.name}=1"))
    other, other_nodes = inline_branch(rewriter, node, "else_branch", (*guards, f"{condition.name}=0"))
    attrs = {"guards": guards} if guards else {}
    public: list[tuple[Value, str]] = []
    for old, a, b in zip(node.outputs, then, other, strict=True):
        label = old.name if len(then) > 1 else node.name
        merge = rewriter.insert("IfMerge", [condition, a, b], attrs, before=node, name=label)
        merge.output.shape, merge.output.format = a.shape, a.format
        decided.update(decided_dims(old, a))
        public.append((merge.output, old.name))
        rewriter.replace(old, merge.output, "same")
    rewriter.erase_dead([node])
    for value, name in public:
        rewriter.rename(value, name)
    return [n for n in (*then_nodes, *other_nodes) if n.op == "If"]
