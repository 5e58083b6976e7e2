"""The rewriter: uses, public names, origins, outlining; text before and text after."""

import numpy as np
import pytest

from graph_opt.ir.core import Graph, Node
from graph_opt.ir.rewriter import Rewriter, combine
from graph_opt.ir.text import parse, to_text
from graph_opt.ir.verifier import verify


def node(graph: Graph, name: str) -> Node:
    return graph.values[name].producer


def check(graph: Graph, expected: str) -> None:
    verify(graph)
    assert to_text(graph) == expected


def test_replace_takes_over_uses_name_and_origins_of_an_output() -> None:
    graph = parse("""graph g(%x: f32[n]) -> (%y) {
      %a: f32[n] = Exp(%x)
      %y: f32[n] = Neg(%a)
      origin "a" = same %a
      origin "y" = same %y
    }""")
    rewriter = Rewriter(graph)
    new = rewriter.insert("Abs", [graph.values["x"]], before=node(graph, "y"), name="abs")
    rewriter.replace(graph.values["y"], new.output, "same")
    assert rewriter.erase_dead()
    check(
        graph,
        """graph g(%x: f32[n]) -> (%y) {
  %y: f32[n] = Abs(%x) @abs
  origin "a" = dead
  origin "y" = same %y
}
""",
    )


def test_an_output_replaced_by_an_input_becomes_an_identity() -> None:
    graph = parse("""graph g(%x: f32[n]) -> (%y, %y) {
      %y: f32[n] = Dropout(%x)
      origin "y" = same %y
    }""")
    rewriter = Rewriter(graph)
    rewriter.replace(graph.values["y"], graph.values["x"])
    rewriter.erase_dead()
    check(
        graph,
        """graph g(%x: f32[n]) -> (%y, %y) {
  %y: f32[n] = Identity(%x) @y/identity
  origin "y" = same %x
}
""",
    )


def test_two_outputs_that_become_one_value_keep_both_names() -> None:
    graph = parse("""graph g(%x: f32[n]) -> (%a, %b) {
      %a: f32[n] = Exp(%x)
      %b: f32[n] = Exp(%x)
    }""")
    rewriter = Rewriter(graph)
    rewriter.replace(graph.values["b"], graph.values["a"])
    rewriter.erase_dead()
    check(
        graph,
        """graph g(%x: f32[n]) -> (%a, %b) {
  %a: f32[n] = Exp(%x)
  %b: f32[n] = Identity(%a) @b/identity
}
""",
    )


def test_a_value_can_be_replaced_by_a_function_of_itself() -> None:
    graph = parse("""graph g(%x: f32[n]) -> (%y) {
      %a: f32[n] = Exp(%x)
      %y: f32[n] = Neg(%a)
    }""")
    rewriter = Rewriter(graph)
    cast = rewriter.insert("Relayout", [graph.values["a"]], before=node(graph, "y"))
    rewriter.replace(graph.values["a"], cast.output)
    check(
        graph,
        """graph g(%x: f32[n]) -> (%y) {
  %a: f32[n] = Exp(%x)
  %relayout: f32[n] = Relayout(%a)
  %y: f32[n] = Neg(%relayout)
}
""",
    )


TYPES = """graph g(%x: f32[n], %i: i64[n], %m: f32[m], %k: f32[u0], %o: f32[?], %r: f32[n, 1]) -> (%y) {
  %a: f32[n] = Exp(%x)
  %y: f32[n] = Neg(%a)
}
"""


@pytest.mark.parametrize("new", ["i", "m", "r"])
@pytest.mark.parametrize("old", ["a", "y"])
def test_a_value_is_replaced_by_one_of_its_type(old: str, new: str) -> None:
    graph = parse(TYPES)
    with pytest.raises(ValueError, match=rf"%{old}: f32\[n\] cannot become %{new}: "):
        Rewriter(graph).replace(graph.values[old], graph.values[new])
    check(graph, TYPES)


@pytest.mark.parametrize("new", ["x", "k", "o"])
def test_a_type_may_be_known_better_before_or_after(new: str) -> None:
    graph = parse(TYPES)
    Rewriter(graph).replace(graph.values["a"], graph.values[new])
    assert node(graph, "y").inputs == [graph.values[new]]


def test_a_change_of_type_is_asked_for() -> None:
    graph = parse(TYPES)
    rewriter = Rewriter(graph)
    rewriter.replace(graph.values["a"], graph.values["i"], "cast", retype=True)
    assert node(graph, "y").inputs == [graph.values["i"]]
    with pytest.raises(ValueError, match=r"%y: f32\[n\] cannot become %i: i64\[n\]"):
        rewriter.replace(graph.values["y"], graph.values["i"], retype=True)


GUARDED = """graph g(%x: f32[n], %p: bool[], %q: bool[]) -> (%y) {
  %c: bool[] = And(%p, %q)
  %t: f32[n] = Exp(%x) if %c
  %u: f32[n] = Neg(%t) if %c @neg
  %y: f32[n] = IfMerge(%c, %u, %x)
}
"""


def test_guards_follow_replace_and_rename() -> None:
    graph = parse(GUARDED)
    rewriter = Rewriter(graph)
    rewriter.replace(graph.values["c"], graph.values["p"])
    assert rewriter.erase_dead()
    rewriter.rename(graph.values["p"], "flag")
    check(
        graph,
        """graph g(%x: f32[n], %flag: bool[], %q: bool[]) -> (%y) {
  %t: f32[n] = Exp(%x) if %flag
  %u: f32[n] = Neg(%t) if %flag @neg
  %y: f32[n] = IfMerge(%flag, %u, %x)
}
""",
    )


def test_a_condition_lives_as_long_as_a_guard_needs_it() -> None:
    graph = parse(GUARDED)
    node(graph, "y").set_input(0, graph.values["p"])
    rewriter = Rewriter(graph)
    assert not rewriter.erase_dead()
    node(graph, "y").set_input(1, graph.values["x"])
    assert rewriter.erase_dead()
    assert [n.op for n in graph.nodes] == ["IfMerge"]


def test_a_new_node_runs_under_the_guards_of_its_place() -> None:
    graph = parse(GUARDED)
    rewriter = Rewriter(graph)
    near = rewriter.insert("Abs", [graph.values["t"]], before=node(graph, "u"))
    far = rewriter.insert("Abs", [graph.values["x"]], before=node(graph, "u"), guards=())
    last = rewriter.insert("Abs", [graph.values["x"]], before=None)
    assert (near.guards, far.guards, last.guards) == (((graph.values["c"], True),), (), ())
    verify(graph)


def test_fusing_moves_guards_to_the_kernel_and_inlining_gives_them_back() -> None:
    graph = parse(GUARDED)
    rewriter = Rewriter(graph)
    with pytest.raises(ValueError, match="different guards"):
        rewriter.fuse([node(graph, "c"), node(graph, "t")], "region")
    fused = rewriter.fuse([node(graph, "t"), node(graph, "u")], "region")
    check(
        graph,
        """graph g(%x: f32[n], %p: bool[], %q: bool[]) -> (%y) {
  %c: bool[] = And(%p, %q)
  %u: f32[n] = Fused(%x) {family="region"} if %c @neg
    body = graph region(%x: f32[n]) -> (%u) {
      %t: f32[n] = Exp(%x)
      %u: f32[n] = Neg(%t) @neg
    }
  %y: f32[n] = IfMerge(%c, %u, %x)
}
""",
    )
    rewriter.inline(fused)
    check(graph, GUARDED)


def test_a_guard_between_two_nodes_keeps_them_apart() -> None:
    graph = parse("""graph g(%x: f32[], %z: f32[]) -> (%y, %w) {
      %a: f32[] = Exp(%x)
      %c: bool[] = Less(%a, %x)
      %t: f32[] = Neg(%z) if %c
      %y: f32[] = IfMerge(%c, %t, %z)
      %w: f32[] = Mul(%a, %y)
    }""")
    with pytest.raises(ValueError, match="not convex"):
        Rewriter(graph).fuse([node(graph, "a"), node(graph, "w")], "region")


def test_relations_combine_to_the_weaker() -> None:
    assert combine("same", "same") == "same"
    assert combine("same", "cast") == "cast"
    assert combine("cast", "same") == "cast"
    assert combine("scale", "interior") == "interior"
    assert combine("folded", "same") == "folded"


def test_folding_says_folded_and_survives_the_loss_of_the_constant() -> None:
    graph = parse("""graph g(%x: f32[2]) -> (%y) {
      const %c: f32[2] = dense [1.0, 2.0]
      %e: f32[2] = Exp(%c)
      %y: f32[2] = Add(%x, %e)
      origin "e" = same %e
      origin "c" = same %c
    }""")
    rewriter = Rewriter(graph)
    rewriter.replace(graph.values["e"], rewriter.constant(np.exp(np.float32([1, 2])), "e"), "folded")
    rewriter.erase_dead()
    verify(graph)
    assert (graph.origins["e"].relation, graph.origins["e"].value) == ("folded", "e.1")
    assert graph.origins["c"].relation == "dead"
    rewriter.replace(graph.values["y"], graph.values["x"])
    rewriter.erase_dead()
    verify(graph)
    assert (graph.origins["e"].relation, graph.origins["e"].value) == ("folded", None)


CHAIN = """graph g(%x: f32[n, 3]) -> (%y, %side) {
  const %w: f32[3, 4] = random seed 1 scale 1.0
  const %half: f32[] = splat 0.5
  %m: f32[n, 4] = MatMul(%x, %w) @mm
  %side: f32[n, 4] = Exp(%x2) @exp
  %h: f32[n, 4] = Mul(%m, %half) @mul
  %y: f32[n, 4] = Relu(%h) @relu
  origin "m" = same %m
  origin "h0" = cast %h
  origin "y" = same %y
  origin "half" = same %half
}
""".replace("%x: f32[n, 3]", "%x: f32[n, 3], %x2: f32[n, 4]")


def test_inlining_gives_folded_constants_their_origin_back() -> None:
    graph = parse("""graph g(%x: f32[n]) -> (%y) {
      const %half: f32[] = splat 0.5
      %a: f32[n] = Mul(%x, %half)
      %y: f32[n] = Neg(%a)
      origin "scale" = folded %half
      origin "a" = same %a
    }""")
    before = to_text(graph)
    rewriter = Rewriter(graph)
    fused = rewriter.fuse([node(graph, "a"), node(graph, "y")], "region")
    assert (graph.origins["scale"].relation, graph.origins["scale"].value) == ("folded", "y")
    rewriter.inline(fused)
    check(graph, before)


def test_fuse_outlines_and_inline_undoes_it() -> None:
    graph = parse(CHAIN)
    rewriter = Rewriter(graph)
    fused = rewriter.fuse([node(graph, "y"), node(graph, "m"), node(graph, "h")], "matmul", {"k": 3}, name="mm")
    check(
        graph,
        """graph g(%x: f32[n, 3], %x2: f32[n, 4]) -> (%y, %side) {
  const %w: f32[3, 4] = random seed 1 scale 1.0
  %side: f32[n, 4] = Exp(%x2) @exp
  %y: f32[n, 4] = Fused(%x, %w) {family="matmul", k=3} @mm
    body = graph matmul(%x: f32[n, 3], %w: f32[3, 4]) -> (%y) {
      const %half: f32[] = splat 0.5
      %m: f32[n, 4] = MatMul(%x, %w) @mm
      %h: f32[n, 4] = Mul(%m, %half) @mul
      %y: f32[n, 4] = Relu(%h) @relu
      origin "m" = same %m
      origin "h0" = cast %h
      origin "y" = same %y
      origin "half" = same %half
    }
  origin "m" = interior %y
  origin "h0" = interior %y
  origin "y" = same %y
  origin "half" = interior %y
}
""",
    )
    assert to_text(parse(to_text(graph))) == to_text(graph)
    assert fused.subgraphs["body"].inputs[1].data is graph.values["w"].data
    rewriter.inline(fused)
    verify(graph)
    restored = parse(CHAIN)
    assert sorted(map(str, graph.nodes)) == sorted(map(str, restored.nodes))
    assert graph.origins == restored.origins


def test_fusing_a_fused_node_again_leaves_one_level() -> None:
    graph = parse(CHAIN)
    rewriter = Rewriter(graph)
    first = rewriter.fuse([node(graph, "m"), node(graph, "h")], "matmul")
    assert graph.origins["m"].value == "h"
    second = rewriter.fuse([first, node(graph, "y")], "matmul")
    verify(graph)
    assert [n.op for n in second.subgraphs["body"].nodes] == ["MatMul", "Mul", "Relu"]
    assert (graph.origins["m"].relation, graph.origins["m"].value) == ("interior", "y")


def test_interior_values_that_others_read_become_outputs() -> None:
    graph = parse("""graph g(%x: f32[n]) -> (%y, %z) {
      %a: f32[n] = Exp(%x)
      %z: f32[n] = Neg(%a)
      %y: f32[n] = Relu(%a)
    }""")
    fused = Rewriter(graph).fuse([node(graph, "a"), node(graph, "y")], "region")
    verify(graph)
    assert [v.name for v in fused.outputs] == ["a", "y"]
    assert [n.op for n in graph.nodes] == ["Fused", "Neg"]


def test_a_set_that_is_not_convex_is_refused_and_nothing_changes() -> None:
    graph = parse("""graph g(%x: f32[n]) -> (%y) {
      %a: f32[n] = Exp(%x)
      %b: f32[n] = Neg(%a)
      %y: f32[n] = Add(%a, %b)
    }""")
    before = to_text(graph)
    with pytest.raises(ValueError, match="not convex"):
        Rewriter(graph).fuse([node(graph, "a"), node(graph, "y")], "region")
    check(graph, before)


def test_erasing_a_branch_releases_what_its_bodies_read() -> None:
    graph = parse("""graph g(%c: bool[], %x: f32[n]) -> (%z) {
      %a: f32[n] = Exp(%x)
      %y: f32[n] = If(%c)
        then_branch = graph t() -> (%t) {
          %t: f32[n] = Neg(%a)
        }
        else_branch = graph e() -> (%e) {
          %e: f32[n] = Abs(%a)
        }
      %z: f32[n] = Relu(%x)
    }""")
    rewriter = Rewriter(graph)
    rewriter.erase_dead()
    check(graph, "graph g(%c: bool[], %x: f32[n]) -> (%z) {\n  %z: f32[n] = Relu(%x)\n}\n")


def test_replace_reaches_into_subgraphs() -> None:
    graph = parse("""graph g(%c: bool[], %x: f32[n]) -> (%y) {
      %a: f32[n] = Exp(%x)
      %y: f32[n] = If(%c)
        then_branch = graph t() -> (%t) {
          %t: f32[n] = Neg(%a)
        }
        else_branch = graph e() -> (%a) {
        }
    }""")
    rewriter = Rewriter(graph)
    rewriter.replace(graph.values["a"], graph.values["x"])
    rewriter.erase_dead()
    check(
        graph,
        """graph g(%c: bool[], %x: f32[n]) -> (%y) {
  %y: f32[n] = If(%c)
    then_branch = graph t() -> (%t) {
      %t: f32[n] = Neg(%x)
    }
    else_branch = graph e() -> (%x) {
    }
}
""",
    )
