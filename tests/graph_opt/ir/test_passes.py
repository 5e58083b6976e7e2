"""run_passes reports changes, calls the observer, and names the pass that broke the graph."""

from dataclasses import dataclass

import pytest

from graph_opt.ir.core import Graph
from graph_opt.ir.order import Order
from graph_opt.ir.passes import run_passes
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.text import parse
from graph_opt.ir.verifier import InvalidGraph


@dataclass(frozen=True)
class EraseDead:
    name: str = "erase-dead"

    def apply(self, graph: Graph) -> bool:
        return Rewriter(graph).erase_dead()


@dataclass(frozen=True)
class Break:
    name: str = "break"

    def apply(self, graph: Graph) -> bool:
        graph.nodes = Order(reversed(graph.nodes))
        return True


TEXT = "graph g(%x: f32[n]) -> (%y) {\n  %a = Exp(%x)\n  %b = Neg(%x)\n  %y = Abs(%b)\n}"


def test_changes_are_reported_to_caller_and_observer() -> None:
    seen: list[tuple[str, bool, int]] = []
    graph = parse(TEXT)
    steps = [EraseDead(), EraseDead()]
    assert run_passes(graph, steps, verify=True, observer=lambda p, g, m: seen.append((p.name, m, len(g.nodes))))
    assert seen == [("erase-dead", True, 2), ("erase-dead", False, 2)]
    assert not run_passes(graph, steps)


def test_verification_names_the_pass() -> None:
    with pytest.raises(InvalidGraph, match="after pass break"):
        run_passes(parse(TEXT), [EraseDead(), Break()], verify=True)
