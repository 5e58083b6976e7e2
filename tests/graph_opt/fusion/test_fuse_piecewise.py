"""What joins a piecewise kernel, as text before and after."""

from __future__ import annotations

import textwrap

import pytest

from graph_opt.fusion.fuse_piecewise import FusePiecewise
from graph_opt.ir import Graph
from graph_opt.ir.text import parse
from graph_opt.ir.verifier import verify
from tests.graph_opt.families import OWN

ROTATE = """\
graph g(%x0: f32[b, s, 4, 16], %c: f32[s, 16], %s: f32[s, 16]) -> (%y) {
  const %zero: i64[1] = dense [0]
  const %half: i64[1] = dense [8]
  const %end: i64[1] = dense [16]
  const %axis: i64[1] = dense [3]
  %x = Transpose(%x0) {perm=[0, 2, 1, 3]}
  %l = Slice(%x, %zero, %half, %axis)
  %h = Slice(%x, %half, %end, %axis)
  %m = Neg(%h)
  %r = Concat(%m, %l) {axis=3}
  %p = Mul(%x, %c)
  %q = Mul(%r, %s)
  %y = Add(%p, %q)
  origin "r" = same %r
  origin "y" = same %y
}
"""


def fused(text: str) -> tuple[Graph, list[str]]:
    """The graph after the pass, and the operators of its Fused node (none: no node)."""
    graph = parse(textwrap.dedent(text))
    verify(graph)
    changed = FusePiecewise(OWN).apply(graph)
    verify(graph)
    bodies = [n.subgraphs["body"] for n in graph.nodes if n.op == "Fused"]
    assert changed == bool(bodies)
    return graph, sorted(n.op for n in bodies[0].nodes) if bodies else []


def test_all_of_rotate_half_is_one_kernel() -> None:
    graph, ops = fused(ROTATE)
    assert len(graph.nodes) == 1 and graph.nodes[0].attrs["family"] == "piecewise"
    assert ops == ALL
    assert graph.origins["r"].relation == "interior" and graph.origins["y"].relation == "same"


ALL = ["Add", "Concat", "Mul", "Mul", "Neg", "Slice", "Slice", "Transpose"]


@pytest.mark.parametrize("changes,ops", [
    # The joined tensor has a second reader: it exists, and what is behind it forms another kernel.
    ([("-> (%y)", "-> (%y, %r)")], ["Concat", "Neg", "Slice", "Slice"]),
    # A value inside has one: its own kernel makes it.
    ([("-> (%y)", "-> (%y, %m)")], ["Add", "Concat", "Mul", "Mul", "Slice"]),
    # The last axis moves: a copy by blocks of both axes is better.
    ([("%x0: f32[b, s, 4, 16]", "%x0: f32[b, 16, 4, s]"), ("[0, 2, 1, 3]", "[0, 2, 3, 1]")], ALL[:-1]),
    # Where the halves are, only the run knows.
    ([("  const %half: i64[1] = dense [8]\n", ""), ("graph g(", "graph g(%half: i64[1], ")], []),
    # Integers.
    ([("f32", "i32")], []),
    # Nothing is computed.
    ([("%m = Neg(%h)", "%m = Identity(%h)"), ("-> (%y)", "-> (%r)")], []),
], ids=["join read twice", "inside read twice", "last axis moves", "run-time cut", "integers", "copies"])  # fmt: skip
def test_limits(changes: list[tuple[str, str]], ops: list[str]) -> None:
    text = ROTATE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    assert fused(text)[1] == ops


def test_many_operands_are_left_alone() -> None:
    text = ROTATE.replace("-> (%y)", "-> (%r)").replace("  %p = Mul(%x, %c)\n", "").replace("  %q = Mul(%r, %s)\n", "")
    text = text.replace("  %y = Add(%p, %q)\n", "")
    few, many = ("".join(f", %l{i}" for i in range(count)) for count in (6, 7))
    slices = "".join(f"  %l{i} = Slice(%x, %zero, %half, %axis)\n" for i in range(7))
    text = text.replace("  %m = Neg", f"{slices}  %m = Neg").replace('  origin "y" = same %y\n', "")
    assert fused(text.replace("(%m, %l)", f"(%m, %l{few})"))[1].count("Concat") == 1
    assert fused(text.replace("(%m, %l)", f"(%m, %l{many})"))[1] == []


def test_an_epilogue_stays_with_its_product() -> None:
    text = ROTATE.replace("%x0: f32[b, s, 4, 16]", "%x0: f32[b, s, 4, 16], %u: f32[b, 4, s, 8]")
    text = text.replace(
        "  %m = Neg(%h)", "  const %w: f32[8, 8] = random seed 1 scale 1.0\n  %k = MatMul(%u, %w)\n  %m = Neg(%k)"
    )
    graph, ops = fused(text)
    assert "Neg" not in ops and "Concat" in ops
    assert [n.op for n in graph.nodes].count("Neg") == 1
