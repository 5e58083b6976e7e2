"""Replaces an If or an IfMerge with a known condition by the side that is taken, and drops guards that hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.infer import infer_graph
from graph_opt.ir.ops.registry import content_of
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.guarding import guards_of, split_guard
from graph_opt.simplify.inline_branch import inline_branch
from graph_opt.simplify.refinement import decided_dims, substitute_dims
from tensor_types.dims import Dim


@dataclass(frozen=True)
class SelectBranches:
    """See the module."""

    name: ClassVar[str] = "select-branches"

    def apply(self, graph: Graph) -> bool:
        rewriter = Rewriter(graph)
        decided: dict[str, Dim] = {}
        changed = retyped = False
        pending = [n for n in graph.nodes if n.op in ("If", "IfMerge")][::-1]
        while pending:
            node = pending.pop()
            condition = _known(node.input(0))
            if condition is None:
                continue
            if node.op == "If":
                key = "then_branch" if condition else "else_branch"
                results, moved = inline_branch(rewriter, node, key, guards_of(node))
                pending.extend(n for n in moved if n.op in ("If", "IfMerge"))
            else:
                side = node.input(1 if condition else 2)
                assert side is not None
                results = [side]
            for old, new in zip(node.outputs, results, strict=True):
                retyped |= (old.shape, old.content) != (new.shape, content_of(new))
                decided.update(decided_dims(old, new))
                rewriter.replace(old, new, "same")
            rewriter.erase_dead([node])
            changed = True
        if changed:
            rewriter.erase_dead()
            substitute_dims(graph, decided)
            if retyped:
                infer_graph(graph)
        return _drop_guards(graph) or changed


def _known(condition: Value | None) -> bool | None:
    content = None if condition is None else content_of(condition)
    return bool(content[0]) if content and isinstance(content[0], int) else None


def _drop_guards(graph: Graph) -> bool:
    """Guards that always hold go. One that never holds stays on a node that is dead or about to be."""
    changed = False
    for node in graph.nodes:
        guards = guards_of(node)
        kept = tuple(word for word in guards if not _holds(graph, word))
        if kept != guards:
            changed = True
            _set_guards(node, kept)
    return changed


def _holds(graph: Graph, word: str) -> bool:
    name, wanted = split_guard(word)
    return _known(graph.values.get(name)) is bool(wanted)


def _set_guards(node: Node, guards: tuple[str, ...]) -> None:
    if guards:
        node.attrs["guards"] = guards
    else:
        node.attrs.pop("guards", None)
