"""A copied graph is equal, and nothing that is done to it reaches the original."""

from graph_opt.ir.copy_graph import copy_graph
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.text import parse, to_text
from graph_opt.ir.verifier import verify

TEXT = """graph g(%x: f32[n, 8], %flag: bool[]) -> (%y) {
  dim n in [1, 64]
  const %w: f32[8, 8] = random seed 1 scale 0.3
  %a: f32[n, 8] = MatMul(%x, %w) @fc
  %g: f32[n, 8] = Exp(%a) if %flag @guarded
  %p: f32[n, 8] = If(%flag) @choice
    then_branch = graph then() -> (%t) {
      %t: f32[n, 8] = Exp(%a) @te
    }
    else_branch = graph other() -> (%a) {
    }
  %y: f32[n, 8] = Fused(%p, %a) {family="region"} @f
    body = graph region(%p: f32[n, 8], %a: f32[n, 8]) -> (%y) {
      %s: f32[n, 8] = Add(%p, %a) @add
      %y: f32[n, 8] = Relu(%s) @relu
    }
  origin "s" = interior %y
  origin "y" = same %y
}
"""


def test_a_copy_is_equal_and_sound() -> None:
    graph = parse(TEXT)
    copy = copy_graph(graph)
    verify(copy)
    assert to_text(copy) == to_text(graph)
    assert copy.values["w"].data is graph.values["w"].data
    for name, value in graph.values.items():
        mine = [(n.name, i) for n, i in copy.values[name].uses]
        assert mine == [(n.name, i) for n, i in value.uses]
    body = copy.nodes[-1].subgraphs["body"]
    assert body.dims is copy.dims and copy.dims is not graph.dims


def test_changes_stay_in_the_copy() -> None:
    graph = parse(TEXT)
    before = to_text(graph)
    copy = copy_graph(graph)
    Rewriter(copy).inline(copy.nodes[-1])
    copy.values["a"].producer.attrs["note"] = 1
    copy.dims["n"] = (1, 2)
    copy.nodes[2].subgraphs["then_branch"].nodes[0].name = "other"
    verify(copy)
    assert to_text(graph) == before
    verify(graph)
