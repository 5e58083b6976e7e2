"""If: branches that are decided, flattened, or can only be one of the two."""

from __future__ import annotations

import numpy as np
import pytest

from graph_opt.ir import Graph
from graph_opt.ir.text import to_text
from graph_opt.ir.verifier import verify
from graph_opt.simplify import (
    EliminateCommonSubexpressions,
    EliminateDeadCode,
    FlattenIf,
    FoldShapes,
    SelectBranches,
    SimplifyArithmetic,
)
from tests.graph_opt.simplify.graph_to_onnx import run
from tests.graph_opt.simplify.texts import after, body, graph_of

BOTH = """\
    graph g(%x: f32[n], %c: bool[]) -> (%y) {
      %h: f32[n] = Exp(%x)
      %y: f32[n] = If(%c) @choose
        then_branch = graph t() -> (%r) {
          const %two: f32[] = splat 2.0
          %r: f32[n] = Mul(%h, %two) @twice
          origin "r" = same %r
        }
        else_branch = graph e() -> (%r) {
          %r: f32[n] = Neg(%x) @minus
          origin "r" = same %r
        }
      origin "y" = same %y
    }"""


def test_both_branches_become_guarded_nodes() -> None:
    assert (
        after(FlattenIf(), BOTH)
        == """\
graph g(%x: f32[n], %c: bool[]) -> (%y) {
  const %two: f32[] = splat 2.0
  %h: f32[n] = Exp(%x)
  %r: f32[n] = Mul(%h, %two) if %c @twice
  %r.1: f32[n] = Neg(%x) if !%c @minus
  %y: f32[n] = IfMerge(%c, %r, %r.1) @choose
  origin "y" = same %y
  origin "r" = same %r
  origin "r.1" = same %r.1
}
"""
    )


@pytest.mark.parametrize("condition", [True, False])
def test_flattening_keeps_the_numbers(condition: bool) -> None:
    before, flat = graph_of(BOTH), graph_of(BOTH)
    FlattenIf().apply(flat)
    feeds = {"x": np.array([0.5, -1.0], np.float32), "c": np.array(condition)}
    np.testing.assert_array_equal(run(flat, feeds)["y"], run(before, feeds)["y"])


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_constant_condition_selects(value: str) -> None:
    text = BOTH.replace(", %c: bool[]", "").replace("%h: f32", f"const %c: bool[] = splat {value}\n      %h: f32")
    kept = "%y = Mul(%h, %two) @twice" if value == "true" else "%y = Neg(%x) @minus"
    assert kept in body(after(SelectBranches(), text))


NESTED = """\
    graph g(%x: f32[n], %c: bool[], %d: bool[]) -> (%y) {
      %y: f32[n] = If(%c) @outer
        then_branch = graph t() -> (%inner) {
          %nd: bool[] = Not(%d)
          %inner: f32[n] = If(%nd) @inner
            then_branch = graph t() -> (%a) {
              %a: f32[n] = Exp(%x)
            }
            else_branch = graph e() -> (%x) {
            }
        }
        else_branch = graph e() -> (%e) {
          %nd: f32[n] = Neg(%x)
          %e: f32[n] = Abs(%nd)
        }
    }"""


def test_guards_nest_outer_first_and_follow_renamed_conditions() -> None:
    text = NESTED.replace("graph g(%x: f32[n], %c", "graph g(%x: f32[n], %nd: f32[n], %c").replace(
        "%y: f32[n] = If", "%z: f32[n] = Abs(%nd)\n      %y: f32[n] = If"
    )
    assert body(after(FlattenIf(), text)) == [
        "%z = Abs(%nd)",
        "%nd.1 = Not(%d) if %c",
        "%a = Exp(%x) if %c, %nd.1",
        "%inner = IfMerge(%nd.1, %a, %x) if %c @inner",
        "%nd.2 = Neg(%x) if !%c",
        "%e = Abs(%nd.2) if !%c",
        "%y = IfMerge(%c, %inner, %e) @outer",
    ]


@pytest.mark.parametrize("c", [True, False])
@pytest.mark.parametrize("d", [True, False])
def test_nested_flattening_keeps_the_numbers(c: bool, d: bool) -> None:
    before, flat = graph_of(NESTED), graph_of(NESTED)
    FlattenIf().apply(flat)
    verify(flat)
    feeds = {"x": np.array([0.5, -1.0], np.float32), "c": np.array(c), "d": np.array(d)}
    np.testing.assert_array_equal(run(flat, feeds)["y"], run(before, feeds)["y"])


UNLIKE = """\
    graph g(%x: f32[n], %c: bool[]) -> (%y) {
      %y: f32[u0] = If(%c)
        then_branch = graph t() -> (%t) {
          %t: f32[2*n] = Concat(%x, %x) {axis=0}
        }
        else_branch = graph e() -> (%e) {
          %e: f32[n] = Neg(%x)
        }
    }"""


def test_branches_of_different_extents_meet_in_one_that_the_run_decides() -> None:
    before, flat = graph_of(UNLIKE), graph_of(UNLIKE)
    assert FlattenIf().apply(flat)
    verify(flat)
    assert body(to_text(flat))[-1] == "%y = IfMerge(%c, %t, %e)"
    assert flat.outputs[0].shape == before.outputs[0].shape


def test_branches_of_different_rank_stay() -> None:
    after(FlattenIf(), UNLIKE.replace("f32[u0]", "f32[?]").replace("f32[n] = Neg(%x)", "f32[] = ReduceSum(%x) {keepdims=0}"),
          changed=False)  # fmt: skip


def test_guards_follow_a_condition_that_an_equal_one_replaces() -> None:
    text = BOTH.replace("%c: bool[]", "%p: bool[], %q: bool[]").replace(
        "%h: f32", "%first: bool[] = And(%p, %q)\n      %c: bool[] = And(%p, %q)\n      %h: f32"
    )
    graph = graph_of(text)
    FlattenIf().apply(graph)
    EliminateCommonSubexpressions().apply(graph)
    verify(graph)
    assert body(to_text(graph))[1:6] == [
        "%first = And(%p, %q)",
        "%h = Exp(%x)",
        "%r = Mul(%h, %two) if %first @twice",
        "%r.1 = Neg(%x) if !%first @minus",
        "%y = IfMerge(%first, %r, %r.1) @choose",
    ]


def test_a_condition_that_turns_out_known_removes_merge_and_guards() -> None:
    text = BOTH.replace(", %c: bool[]", "").replace("%h: f32", "const %c: bool[] = splat true\n      %h: f32")
    graph = graph_of(text)
    FlattenIf().apply(graph)
    assert SelectBranches().apply(graph)
    EliminateDeadCode().apply(graph)
    verify(graph)
    assert body(to_text(graph))[1:3] == ["%h = Exp(%x)", "%y = Mul(%h, %two) @twice"]


# torch's `squeeze` of a dynamic axis: an If whose other branch leads to an LSTM of the wrong rank.
SQUEEZED = """\
    graph g(%x: f32[b, 4, s]) -> (%last) {
      const %minus: i64[1] = dense [-1]
      const %front: i64[1] = dense [0]
      const %one: i64[1] = dense [1]
      const %two: i64[] = dense [2]
      const %w: f32[1, 12, 4] = random seed 1 scale 0.5
      const %r: f32[1, 12, 3] = random seed 2 scale 0.5
      %pooled: f32[b, 4, (s + 1)//2] = MaxPool(%x) {kernel_shape=[2], strides=[2], pads=[1, 0]}
      %shape = Shape(%pooled)
      %length = Gather(%shape, %minus)
      %single = Equal(%length, %one)
      %step: f32[?] = If(%single)
        then_branch = graph t() -> (%t) {
          %t: f32[b, 4] = Squeeze(%pooled, %minus)
        }
        else_branch = graph e() -> (%e) {
          %e: f32[b, 4, (s + 1)//2] = Identity(%pooled)
        }
      %sequence: f32[?] = Unsqueeze(%step, %front)
      %all: f32[?], %last: f32[?] = LSTM(%sequence, %w, %r) {hidden_size=3}
    }"""


def squeezed() -> Graph:
    graph = graph_of(SQUEEZED.replace("(s + 1)//2", "((s + 1)//2)"))
    FoldShapes().apply(graph)
    return graph


def test_a_branch_that_can_never_work_is_not_taken_and_the_dim_says_when() -> None:
    graph = squeezed()
    assert SelectBranches().apply(graph)
    EliminateDeadCode().apply(graph)
    verify(graph)
    assert [n.op for n in graph.nodes] == ["MaxPool", "Squeeze", "Unsqueeze", "LSTM"]
    assert graph.dims["s"] == (1, 2)
    for size in (1, 2):
        feeds = {"x": np.random.default_rng(size).standard_normal((2, 4, size)).astype(np.float32)}
        np.testing.assert_array_equal(run(graph, feeds)["last"], run(squeezed(), feeds)["last"])


@pytest.mark.parametrize("size", [3, 4])
def test_the_sizes_that_the_dim_now_excludes_fail_in_the_model_itself(size: int) -> None:
    with pytest.raises(Exception, match="LSTM|rank|dimension"):
        run(squeezed(), {"x": np.ones((2, 4, size), np.float32)})


def test_branches_of_different_rank_that_both_work_stay() -> None:
    after(SelectBranches(), """\
        graph g(%x: f32[b, s]) -> (%y) {
          const %minus: i64[1] = dense [-1]
          const %one: i64[1] = dense [1]
          %n = Shape(%x) {start=1}
          %single = Equal(%n, %one)
          %y: f32[?] = If(%single)
            then_branch = graph t() -> (%t) {
              %t: f32[b] = Squeeze(%x, %minus)
            }
            else_branch = graph e() -> (%e) {
              %e: f32[b, s] = Neg(%x)
            }
        }""", changed=False)  # fmt: skip


def test_a_tensor_of_a_branch_that_is_an_outer_value_is_found_there() -> None:
    text = BOTH.replace("Exp(%x)", "Neg(%x)").replace(
        "%r: f32[n] = Neg(%x) @minus",
        '%q: f32[n] = Neg(%h) @back\n          %r: f32[n] = Exp(%q) @grow\n          origin "q" = same %q',
    )
    graph = graph_of(text)
    assert SimplifyArithmetic().apply(graph)
    FlattenIf().apply(graph)
    verify(graph)
    assert graph.origins["q"].value == "x"
    before = graph_of(text)
    for condition in (True, False):
        feeds = {"x": np.array([0.5, -1.0], np.float32), "c": np.array(condition)}
        np.testing.assert_array_equal(run(graph, feeds)["y"], run(before, feeds)["y"])
