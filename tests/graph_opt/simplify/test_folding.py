"""Folding of constants and of shape arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from graph_opt.simplify import FoldConstants, FoldShapes
from tensor_types.errors import UnsupportedOperator
from tests.graph_opt.simplify.texts import after, body


def reference(op: str, attrs: Mapping[str, Any], inputs: Sequence[np.ndarray | None], n_outputs: int) -> list[Any]:
    """One operator under onnx.reference."""
    if op == "Atan":
        raise UnsupportedOperator("for a test")
    names = ["" if v is None else f"i{k}" for k, v in enumerate(inputs)]
    plain = {k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in attrs.items()}
    node = helper.make_node(op, names, [f"o{k}" for k in range(n_outputs)], **plain)
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
         for n, v in zip(names, inputs, strict=True) if v is not None],
        [helper.make_empty_tensor_value_info(n) for n in node.output],
    )  # fmt: skip
    feeds = {n: v for n, v in zip(names, inputs, strict=True) if v is not None}
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])).run(None, feeds)


FOLD = FoldConstants(reference)


def test_a_chain_of_constants_becomes_one_and_its_tensors_are_folded() -> None:
    assert after(FOLD, """\
        graph g(%x: f32[2]) -> (%y) {
          const %a: f32[2] = dense [1.0, 2.0]
          %b: f32[2] = Neg(%a)
          %c: f32[2] = Mul(%b, %b)
          %y: f32[2] = Add(%x, %c)
          origin "b" = same %b
          origin "c" = same %c
        }""") == """\
graph g(%x: f32[2]) -> (%y) {
  const %c.1: f32[2] = dense [1.0, 4.0]
  %y: f32[2] = Add(%x, %c.1)
  origin "b" = folded
  origin "c" = folded %c.1
}
"""  # fmt: skip


def test_only_the_named_outputs_are_folded() -> None:
    text = after(FOLD, """\
        graph g(%x: f32[2, 4]) -> (%y) {
          const %a: f32[4] = dense [3.0, 1.0, 2.0, 3.0]
          %u: f32[u0], %i: i64[u0], %v: i64[4] = Unique(%a)
          %y: f32[2, 4] = Gather(%x, %v) {axis=1}
        }""")  # fmt: skip
    assert "Unique" not in text
    assert "= dense [2, 0, 1, 2]" in text


@pytest.mark.parametrize(
    "statement",
    [
        "%c: f32[2] = RandomNormalLike(%a)",
        "%c: f32[2] = Atan(%a)",  # the evaluator does not know it
        "const %s: f32[] = splat 0.5\n const %q: i8[2] = dense [1, 2]\n %c: f32[2] = DequantizeLinear(%q, %s)",
    ],
)
def test_what_is_not_folded(statement: str) -> None:
    after(FOLD, f"""graph g(%x: f32[2]) -> (%y) {{
      const %a: f32[2] = dense [1.0, 2.0]
      {statement}
      %y: f32[2] = Add(%x, %c)
      %z: f32[2] = Add(%y, %a)
    }}""", changed=False)  # fmt: skip


def test_a_result_over_the_limit_stays_unless_it_is_no_larger_than_the_inputs() -> None:
    small = FoldConstants(reference, limit=16)
    grows = """\
        graph g(%x: f32[1024]) -> (%y) {
          const %a: f32[1] = splat 1.0
          const %n: i64[1] = dense [1024]
          %c: f32[1024] = Expand(%a, %n)
          %y: f32[1024] = Add(%x, %c)
        }"""
    after(small, grows, changed=False)
    assert "Expand" not in after(FOLD, grows)
    text = after(small, """\
        graph g(%x: f32[1024]) -> (%y) {
          const %a: f32[1024] = random seed 1 scale 1.0
          %c: f32[1024] = Neg(%a)
          %y: f32[1024] = Add(%x, %c)
        }""")  # fmt: skip
    assert "Neg" not in text


def test_a_folded_graph_output_keeps_its_name() -> None:
    after(FOLD, """\
        graph g(%x: f32[2]) -> (%c) {
          const %a: f32[2] = dense [1.0, 2.0]
          %c: f32[2] = Neg(%a)
        }""", changed=False)  # fmt: skip


def test_a_reshape_by_computed_shape_needs_no_computation() -> None:
    assert body(after(FoldShapes(), """\
        graph g(%x: f32[batch, s, 768]) -> (%y) {
          const %zero: i64[] = dense [0]
          const %one: i64[] = dense [1]
          const %front: i64[1] = dense [0]
          const %heads: i64[2] = dense [12, 64]
          %shape = Shape(%x)
          %b = Gather(%shape, %zero)
          %s = Gather(%shape, %one)
          %b1 = Unsqueeze(%b, %front)
          %s1 = Unsqueeze(%s, %front)
          %target = Concat(%b1, %s1, %heads) {axis=0}
          %y = Reshape(%x, %target) @split
        }""")) == ["const %split.target = dense [0, 0, 12, 64]", "%y = Reshape(%x, %split.target) @split"]  # fmt: skip


def test_a_shape_of_numbers_is_a_constant() -> None:
    assert body(after(FoldShapes(), """\
        graph g(%x: f32[n, 3, 8, 8]) -> (%y) {
          %s = Shape(%x) {start=1}
          %y = ConstantOfShape(%s)
        }""")) == ["const %s.1 = dense [3, 8, 8]", "%y = ConstantOfShape(%s.1)"]  # fmt: skip


def test_a_target_that_0_and_minus_1_cannot_say_is_dropped() -> None:
    text = after(FoldShapes(), """\
        graph g(%x: f32[b, 12, s, 64]) -> (%y) {
          const %k: i64[2] = dense [8, 8]
          const %one: i64[1] = dense [1]
          %b = Shape(%x) {start=0, end=1}
          %s = Shape(%x) {start=2, end=3}
          %target = Concat(%s, %b, %one, %k, %one) {axis=0}
          %h = Shape(%x) {start=1, end=2}
          %full = Concat(%s, %b, %h, %k) {axis=0}
          %y = Reshape(%x, %full)
        }""")  # fmt: skip
    assert body(text) == ["%y = Reshape(%x, _)"]
    assert "%y: f32[s, b, 12, 8, 8]" in text


def test_a_target_with_a_data_dependent_extent_is_not_dropped() -> None:
    after(FoldShapes(), """\
        graph g(%x: f32[a, b]) -> (%y) {
          const %two: i64[1] = dense [2]
          %where: i64[2, u0] = NonZero(%x)
          %turned = Transpose(%where) {perm=[1, 0]}
          %outer = Einsum(%where, %turned) {equation="ai,jb->aijb"}
          %n = Shape(%where) {start=1}
          %target = Concat(%n, %two, %two, %n) {axis=0}
          %y = Reshape(%outer, %target)
        }""", changed=False)  # fmt: skip


def test_expand_keeps_axes_that_stay() -> None:
    assert body(after(FoldShapes(), """\
        graph g(%x: f32[b, 1, s]) -> (%y) {
          const %four: i64[1] = dense [4]
          %b = Shape(%x) {start=0, end=1}
          %s = Shape(%x) {start=2, end=3}
          %target = Concat(%b, %four, %s) {axis=0}
          %y = Expand(%x, %target) @e
        }""")) == ["const %e.target = dense [1, 4, 1]", "%y = Expand(%x, %e.target) @e"]  # fmt: skip


def test_sizes_that_are_multiples_become_scales() -> None:
    assert body(after(FoldShapes(), """\
        graph g(%x: f32[1, 3, h, w]) -> (%y) {
          const %front: i64[2] = dense [1, 3]
          const %two: i64[2] = dense [2, 2]
          %s = Shape(%x) {start=2}
          %d = Mul(%s, %two)
          %sizes = Concat(%front, %d) {axis=0}
          %y = Resize(%x, _, _, %sizes) {mode="nearest"} @r
        }""")) == [
        "const %r.scales = dense [1.0, 1.0, 2.0, 2.0]",
        '%y = Resize(%x, _, %r.scales, _) {mode="nearest"} @r',
    ]  # fmt: skip


def test_a_slice_up_to_the_extent_goes_to_the_end() -> None:
    assert body(after(FoldShapes(), """\
        graph g(%x: f32[2, s], %t: f32[3, s]) -> (%y) {
          const %one: i64[1] = dense [1]
          %end = Shape(%x) {start=1, end=2}
          %y = Slice(%t, %one, %end, %one) @cut
        }""")) == [
        "const %one = splat 1", "const %cut.ends = splat 2147483647", "%y = Slice(%t, %one, %cut.ends, %one) @cut",
    ]  # fmt: skip


def test_extents_of_an_input_are_read_by_one_shape() -> None:
    assert body(after(FoldShapes(), """\
        graph g(%x: f32[b, s, 8], %table: f32[512]) -> (%y) {
          const %one: i64[] = dense [1]
          const %front: i64[1] = dense [0]
          %h = Neg(%x)
          %shape = Shape(%h)
          %s = Gather(%shape, %one)
          %end = Unsqueeze(%s, %front)
          %y = Slice(%table, %front, %end, %front)
        }""")) == [
        "const %front = splat 0",
        "%end.extents = Shape(%x) {end=2, start=1} @end.extents",
        "%y = Slice(%table, %front, %end.extents, %front)",
    ]  # fmt: skip
