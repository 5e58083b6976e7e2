"""Rewrite rules: a pattern and what replaces it, applied until none matches; near misses become notes.

ERF = Rule("erf-gelu", product(X, op("Add", op("Erf", ...), scalar(1.0)), number=0.5), rewrite)

@dataclass(frozen=True)
class FuseGelu(RulePass):
    name: ClassVar[str] = "fuse-gelu"
    rules: ClassVar[tuple[Rule, ...]] = (ERF, TANH)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from graph_opt.ir.core import Graph
from graph_opt.ir.passes import Note
from graph_opt.ir.patterns import Declined, Match, NodePattern, match
from graph_opt.ir.rewriter import Rewriter

Rewrite: TypeAlias = "Callable[[Rewriter, Match], Declined | None]"


@dataclass(frozen=True)
class Rule:
    """A pattern and what replaces it."""

    name: str
    pattern: NodePattern
    rewrite: Rewrite


def apply_rules(graph: Graph, rules: Sequence[Rule], notes: list[Note] | None = None, *, near: int = 2) -> bool:
    """Applies the rules, earlier ones first at each node, until none matches; whether the graph changed.

    Of the attempts at a node that matched at least `near` nodes before failing, or whose rewrite declined, the one that
    came furthest is added to `notes`.
    """
    rewriter = Rewriter(graph)
    misses: dict[str, tuple[int, Note]] = {}
    by_op: dict[str, list[Rule]] = {}
    for rule in rules:
        for name in rule.pattern.names:
            by_op.setdefault(name, []).append(rule)
    changed, again = False, True
    while again:
        again = False
        misses.clear()  # only what still misses at the end counts
        for node in list(graph.nodes):
            for rule in (*by_op.get(node.op, ()), *by_op.get("*", ())):
                if graph.values.get(node.output.name) is not node.output or node.output.producer is not node:
                    break  # an earlier rewrite removed it
                found = match(rule.pattern, node, graph)
                outcome = found if isinstance(found, Declined) else rule.rewrite(rewriter, found)
                if isinstance(outcome, Declined):
                    depth = len(found.nodes) if isinstance(found, Match) else outcome.depth
                    close = isinstance(found, Match) or depth >= near
                    if close and depth > misses.get(node.output.name, (-1,))[0]:
                        misses[node.output.name] = depth, Note(node.name, rule.name, outcome.reason)
                    continue
                assert isinstance(found, Match)
                rewriter.erase_dead(found.nodes)
                again = changed = True
    if notes is not None:
        notes.extend(note for _, note in misses.values())
    return changed


@dataclass(frozen=True)
class RulePass:
    """A pass that is a table of rules. A miss counts as near from `near` matched nodes on."""

    name: ClassVar[str]
    rules: ClassVar[tuple[Rule, ...]]
    near: ClassVar[int] = 2
    notes: list[Note] = field(default_factory=list, compare=False)

    def apply(self, graph: Graph) -> bool:
        """Changes the graph in place; whether it changed."""
        return apply_rules(graph, self.rules, self.notes, near=self.near)
