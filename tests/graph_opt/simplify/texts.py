"""Text before a pass, text after it."""

from __future__ import annotations

import re
import textwrap

from graph_opt.ir import Graph
from graph_opt.ir.passes import Pass
from graph_opt.ir.text import parse, to_text
from graph_opt.ir.verifier import verify


def graph_of(text: str) -> Graph:
    """Parsed and verified."""
    graph = parse(textwrap.dedent(text))
    verify(graph)
    return graph


def after(step: Pass, text: str, *, changed: bool = True) -> str:
    """The text of the graph after the pass, which must say truly whether it changed and nothing when repeated."""
    graph = graph_of(text)
    before = to_text(graph)
    assert step.apply(graph) is changed
    verify(graph)
    found = to_text(graph)
    if not changed:
        assert found == before
    step.apply(graph)
    assert to_text(graph) == found, "the pass is not idempotent"
    return found


def body(text: str) -> list[str]:
    """The statements of a printed graph without types, for tests that are about structure alone."""
    lines = [line.strip() for line in text.splitlines()[1:-1]]
    return [re.sub(r"(%[\w./\"]+): \w+\[[^\]]*\](?: <[^>]*>)?", r"\1", line) for line in lines]
