"""Dead code, duplicates, identities, chains of movement, arithmetic: text before, text after, and the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from graph_opt.ir.passes import Pass
from graph_opt.simplify import (
    AbsorbExpands,
    ComposeReshapes,
    EliminateCommonSubexpressions,
    EliminateDeadCode,
    GatherByPosition,
    MergeTransposes,
    RemoveIdentities,
    SimplifyArithmetic,
)
from tests.graph_opt.simplify.graph_to_onnx import run
from tests.graph_opt.simplify.texts import after, body, graph_of

X = np.array([[0.0, -0.0, 1.5, -2.25], [np.inf, -np.inf, np.nan, 3e38]], np.float32)


def around(statements: str, output: str = "y") -> str:
    return f"graph g(%x: f32[n, 4]) -> (%{output}) {{\n{statements}\n}}"


def same_bits(step: Pass, text: str) -> None:
    """onnxruntime gives the same bits for the graph before and after the pass."""
    before, changed = graph_of(text), graph_of(text)
    step.apply(changed)
    expected, found = run(before, {"x": X}), run(changed, {"x": X})
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes(), name


def test_dead_nodes_constants_and_dims_go() -> None:
    assert after(EliminateDeadCode(), """\
        graph g(%x: f32[n], %unused: f32[m]) -> (%y) {
          const %c: f32[1] = splat 2.0
          %a: f32[n] = Exp(%x)
          %b: f32[n] = Mul(%a, %c)
          %i: i64[1, u0] = NonZero(%x)
          %y: f32[n] = Neg(%x)
          origin "b" = same %b
        }""") == """\
graph g(%x: f32[n], %unused: f32[m]) -> (%y) {
  %y: f32[n] = Neg(%x)
  origin "b" = dead
}
"""  # fmt: skip


def test_dead_nodes_of_a_branch_go_with_what_only_they_need() -> None:
    text = after(EliminateDeadCode(), """\
        graph g(%x: f32[n], %c: bool[]) -> (%y) {
          %a: f32[n] = Exp(%x)
          %y: f32[n] = If(%c)
            then_branch = graph t() -> (%t) {
              %d: f32[n] = Neg(%a)
              %t: f32[n] = Abs(%x)
            }
            else_branch = graph e() -> (%e) {
              %e: f32[n] = Neg(%x)
            }
        }""")  # fmt: skip
    assert "Exp" not in text
    assert "%d" not in text


def test_equal_nodes_merge_also_with_swapped_operands() -> None:
    assert after(EliminateCommonSubexpressions(), """\
        graph g(%x: f32[n], %w: f32[n]) -> (%y) {
          const %c: f32[1] = splat 2.0
          const %d: f32[1] = splat 2.0
          %a: f32[n] = Mul(%x, %c)
          %b: f32[n] = Mul(%d, %x)
          %y: f32[n] = Sub(%a, %b)
          origin "a" = same %a
          origin "b" = same %b
        }""") == """\
graph g(%x: f32[n], %w: f32[n]) -> (%y) {
  const %c: f32[1] = splat 2.0
  %a: f32[n] = Mul(%x, %c)
  %y: f32[n] = Sub(%a, %a)
  origin "a" = same %a
  origin "b" = same %a
}
"""  # fmt: skip


@pytest.mark.parametrize(
    "statements",
    [
        "%a: f32[n, 4] = Sub(%x, %z)\n%b: f32[n, 4] = Sub(%z, %x)",  # not commutative
        "%a: f32[n, 4] = RandomNormalLike(%x)\n%b: f32[n, 4] = RandomNormalLike(%x)",
        "const %c: bool[] = splat true\n%p: f32[n, 4] = Neg(%x) if %c\n%q: f32[n, 4] = Neg(%x) if !%c\n"
        "%a: f32[n, 4] = IfMerge(%c, %p, %x)\n%b: f32[n, 4] = IfMerge(%c, %x, %q)",
        "%a: f32[n, 4] = Elu(%x) {alpha=0.5}\n%b: f32[n, 4] = Elu(%x) {alpha=1.0}",
        # Equal numbers of different dtype or sign
        "const %p: f32[1] = dense [0.0]\nconst %q: f32[1] = dense [-0.0]\n"
        "%a: f32[n, 4] = Add(%x, %p)\n%b: f32[n, 4] = Add(%x, %q)",
    ],
)
def test_what_only_looks_equal_stays(statements: str) -> None:
    after(
        EliminateCommonSubexpressions(),
        around(f"%z: f32[n, 4] = Exp(%x)\n{statements}\n%y: f32[n, 4] = Add(%a, %b)"),
        changed=False,
    )


def test_equal_extents_of_two_values_are_one_shape() -> None:
    text = after(EliminateCommonSubexpressions(), """\
        graph g(%x: f32[n, 4], %y: f32[4, n], %z: f32[m]) -> (%a, %d) {
          %r = Shape(%x) {start=0, end=1}
          %s = Shape(%y) {start=1, end=2}
          %t = Shape(%z)
          %a = Add(%r, %s)
          %d = Add(%s, %t)
        }""")
    assert text.count("= Shape(") == 2 and "= Add(%r, %r)" in text and "= Add(%r, %t)" in text


IDENTITIES = {
    "Identity": "%r: f32[n, 4] = Identity(%a)",
    "Cast": "%r: f32[n, 4] = Cast(%a) {to=1}",
    "Reshape": "const %t: i64[2] = dense [-1, 4]\n%r: f32[n, 4] = Reshape(%a, %t)",
    "Expand": "const %t: i64[2] = dense [1, 4]\n%r: f32[n, 4] = Expand(%a, %t)",
    "Tile": "const %t: i64[2] = dense [1, 1]\n%r: f32[n, 4] = Tile(%a, %t)",
    "Transpose": "%r: f32[n, 4] = Transpose(%a) {perm=[0, 1]}",
    "Pad": "const %t: i64[4] = splat 0\n%r: f32[n, 4] = Pad(%a, %t)",
    "Slice": "const %t: i64[1] = splat 0\nconst %e: i64[1] = splat 2147483647\n%r: f32[n, 4] = Slice(%a, %t, %e)",
    "Concat": "%r: f32[n, 4] = Concat(%a) {axis=0}",
    "Sum": "%r: f32[n, 4] = Sum(%a)",
    "Mul": "const %t: f32[1] = splat 1.0\n%r: f32[n, 4] = Mul(%t, %a)",
    "Div": "const %t: f32[1, 4] = splat 1.0\n%r: f32[n, 4] = Div(%a, %t)",
    "Pow": "const %t: f32[] = splat 1.0\n%r: f32[n, 4] = Pow(%a, %t)",
    "Sub": "const %t: f32[] = splat 0.0\n%r: f32[n, 4] = Sub(%a, %t)",
    "Add": "const %t: f32[] = dense [-0.0]\n%r: f32[n, 4] = Add(%a, %t)",
    "Max": "const %t: f32[] = splat -inf\n%r: f32[n, 4] = Max(%t, %a)",
    "Min": "const %t: f32[] = splat inf\n%r: f32[n, 4] = Min(%a, %t)",
}


@pytest.mark.parametrize("op", IDENTITIES)
def test_an_operator_that_changes_nothing_goes(op: str) -> None:
    text = around(f"%a: f32[n, 4] = Neg(%x)\n{IDENTITIES[op]}\n%y: f32[n, 4] = Abs(%r)")
    lines = body(after(RemoveIdentities(), text))
    assert [line for line in lines if "const" not in line] == ["%a = Neg(%x)", "%y = Abs(%a)"]
    same_bits(RemoveIdentities(), text)


@pytest.mark.parametrize(
    "statements",
    [
        "const %t: f32[] = splat 0.0\n%r: f32[n, 4] = Add(%a, %t)",  # -0 becomes +0
        "const %t: f32[] = splat 0.0\n%r: f32[n, 4] = Sub(%t, %a)",
        "const %t: f32[] = splat 1.0\n%r: f32[n, 4] = Div(%t, %a)",
        "const %t: f32[3, 1, 1] = splat 1.0\n%r: f32[3, n, 4] = Mul(%a, %t)",  # it broadcasts
        "const %t: i64[2] = dense [0, -1]\nconst %e: i64[2] = splat -2147483647\nconst %s: i64[2] = splat -1\n"
        "const %ax: i64[2] = dense [0, 1]\n%r: f32[n, 4] = Slice(%a, %t, %e, %ax, %s)",
        "%r: f32[4, n] = Transpose(%a) {perm=[1, 0]}",
        "%r: f32[n, 4] = Clip(%a)",  # infinities become finite
        "const %t: f32[] = splat inf\n%r: f32[n, 4] = Max(%a, %t)",
    ],
)
def test_what_is_not_an_identity(statements: str) -> None:
    after(RemoveIdentities(), around(f"%a: f32[n, 4] = Neg(%x)\n{statements}\n%y = Abs(%r)"), changed=False)


def test_an_identity_at_a_graph_output_gives_its_name_away() -> None:
    assert after(RemoveIdentities(), """\
        graph g(%x: f32[n]) -> (%y, %z) {
          %a: f32[n] = Neg(%x)
          %y: f32[n] = Identity(%a)
          %z: f32[n] = Identity(%x)
          origin "a" = same %a
          origin "y" = same %y
        }""") == """\
graph g(%x: f32[n]) -> (%y, %z) {
  %y: f32[n] = Neg(%x)
  %z: f32[n] = Identity(%x)
  origin "a" = same %y
  origin "y" = same %y
}
"""  # fmt: skip


def test_transposes_merge_and_vanish() -> None:
    text = """\
        graph g(%x: f32[2, 4]) -> (%y, %z) {
          const %t: i64[3] = dense [1, 2, 4]
          %r: f32[1, 2, 4] = Reshape(%x, %t)
          %a: f32[4, 1, 2] = Transpose(%r) {perm=[2, 0, 1]}
          %y: f32[1, 4, 2] = Transpose(%a) {perm=[1, 0, 2]} @second
          %back: f32[1, 2, 4] = Transpose(%a) {perm=[1, 2, 0]}
          %z: f32[1, 2, 4] = Neg(%back)
        }"""
    assert body(after(MergeTransposes(), text))[2:] == [
        "%y = Transpose(%r) {perm=[0, 2, 1]} @second", "%z = Neg(%r)",
    ]  # fmt: skip
    same_bits(MergeTransposes(), text)


def test_transposes_without_perm_reverse() -> None:
    text = around("%a: f32[4, n] = Transpose(%x)\n%b: f32[n, 4] = Transpose(%a)\n%y: f32[n, 4] = Neg(%b)")
    assert body(after(MergeTransposes(), text)) == ["%y = Neg(%x)"]


def test_reshapes_compose() -> None:
    text = """\
        graph g(%x: f32[n, 4]) -> (%y) {
          const %t: i64[3] = dense [0, 2, 2]
          const %one: i64[1] = dense [1]
          %a: f32[n, 2, 2] = Reshape(%x, %t)
          %b: f32[n, 1, 2, 2] = Unsqueeze(%a, %one)
          %y: f32[n, 4] = Flatten(%b) {axis=1} @flat
        }"""
    assert body(after(ComposeReshapes(), text)) == [
        "const %flat.target = dense [0, 4]", "%y = Reshape(%x, %flat.target) @flat",
    ]  # fmt: skip
    same_bits(ComposeReshapes(), text)


ARITHMETIC = {
    "square": ("const %t: f32[] = splat 2.0\n%r: f32[n, 4] = Pow(%a, %t)", "Mul(%a, %a)"),
    "power of two": ("const %t: f32[1] = splat 8.0\n%r: f32[n, 4] = Div(%a, %t) @d", "Mul(%a, %t.inverse)"),
    "negated twice": ("%s: f32[n, 4] = Neg(%a)\n%r: f32[n, 4] = Neg(%s)", ""),
    "cast there and back": ("%s: f64[n, 4] = Cast(%a) {to=11}\n%r: f32[n, 4] = Cast(%s) {to=1}", ""),
    "cast over": ("%s: f64[n, 4] = Cast(%a) {to=11}\n%r: f16[n, 4] = Cast(%s) {to=10}", "Cast(%a) {to=10}"),
    "where always": ("const %t: bool[1] = splat true\n%r: f32[n, 4] = Where(%t, %a, %x)", ""),
}


@pytest.mark.parametrize("case", ARITHMETIC)
def test_arithmetic_gives_the_same_bits_with_less(case: str) -> None:
    statements, expected = ARITHMETIC[case]
    text = around(f"%a: f32[n, 4] = Abs(%x)\n{statements}\n%y = Abs(%r)")
    found = after(SimplifyArithmetic(), text)
    assert expected in found
    assert not any(f" = {op}(" in found for op in ("Pow", "Div", "Neg", "Where"))
    assert found.count("Cast") == expected.count("Cast")
    same_bits(SimplifyArithmetic(), text)


@pytest.mark.parametrize(
    "statements",
    [
        "const %t: f32[] = splat 3.0\n%r: f32[n, 4] = Div(%a, %t)",
        "const %t: f32[] = splat 8.0\n%r: f32[n, 4] = Div(%t, %a)",
        "%s: f16[n, 4] = Cast(%a) {to=10}\n%r: f32[n, 4] = Cast(%s) {to=1}",
        "%s: i32[n, 4] = Cast(%a) {to=6}\n%r: f32[n, 4] = Cast(%s) {to=1}",
        "const %t: f32[3, 1, 1] = splat 8.0\n%r: f32[3, n, 4] = Div(%a, %t)",
    ],
)
def test_arithmetic_that_would_change_bits_stays(statements: str) -> None:
    after(SimplifyArithmetic(), around(f"%a: f32[n, 4] = Abs(%x)\n{statements}\n%y = Abs(%r)"), changed=False)


def test_additions_of_integer_constants_are_one() -> None:
    """A zero point's share and a bias, behind a product; also where the sum of the constants wraps."""
    head = "const %a: i32[4] = dense [2147483647, 5, -6, 7]\nconst %b: i32[1] = splat 9\n"
    head += "%i: i32[n, 4] = Cast(%x) {to=6}\n%s: i32[n, 4] = Sub(%i, %a)\n"
    text = around(f"{head}%t: i32[n, 4] = Add(%b, %s)\n%y: f32[n, 4] = Cast(%t) {{to=1}}")
    found = "\n".join(body(after(SimplifyArithmetic(), text)))
    assert "dense [-2147483638, 4, 15, 2]" in found and found.count("Add(") == 1 and "Sub(" not in found
    same_bits(SimplifyArithmetic(), text)
    read_twice = around(f"{head}%t: i32[n, 4] = Add(%s, %b)\n%u: i32[n, 4] = Mul(%t, %s)\n%y: f32[n, 4] = Cast(%u) {{to=1}}")
    after(SimplifyArithmetic(), read_twice, changed=False)


EXPANDED = """\
    graph g(%x: f32[n, 4]) -> (%y, %z) {
      const %row: f32[4] = dense [1.0, 2.0, 3.0, 4.0]
      %shape = Shape(%x)
      %wide = Expand(%row, %shape)
      %sum = Add(%wide, %x)
      %fill = ConstantOfShape(%shape) {value=tensor f32[1] [0.5]} @fill
      %y = Mul(%fill, %sum)
      %z = Neg(%wide)
    }"""


def test_expanded_operands_are_read_unexpanded() -> None:
    assert body(after(AbsorbExpands(), EXPANDED)) == [
        "const %row = dense [1.0, 2.0, 3.0, 4.0]",
        "const %fill.element = splat 0.5",
        "%shape = Shape(%x)",
        "%wide = Expand(%row, %shape)",
        "%sum = Add(%row, %x)",
        "%y = Mul(%fill.element, %sum)",
        "%z = Neg(%wide)",
    ]
    same_bits(AbsorbExpands(), EXPANDED)


def test_an_expand_that_gives_the_result_its_extent_stays() -> None:
    after(AbsorbExpands(), """\
        graph g(%x: f32[n, 4], %like: f32[3, n, 4]) -> (%y, %z) {
          const %one: f32[1] = splat 1.0
          %shape = Shape(%like)
          %wide = Expand(%x, %shape)
          %y = Mul(%wide, %one)
          %z = Exp(%wide)
        }""", changed=False)  # fmt: skip


def by_position(parts: str = "%iu, %ju", step: int = 1) -> str:
    """x[i, j] with i and j counting along the first and the last axis of the result."""
    return f"""\
graph g(%x: i64[n, 4], %like: f32[n, 1, 3, 4]) -> (%y) {{
  const %zero: i64[] = splat 0
  const %step: i64[] = splat {step}
  const %first: i64[1] = splat 0
  const %one: i64[1] = splat 1
  const %rows: i64[3] = dense [1, 2, 3]
  const %last: i64[1] = splat -1
  const %columns: i64[1, 1, 1, 4] = dense [0, 1, 2, 3]
  %shape: i64[4] <n, 1, 3, 4> = Shape(%like)
  %sizes: i64[1] <n> = Slice(%shape, %first, %one)
  %size: i64[] <n> = Squeeze(%sizes)
  %i: i64[(n + {step - 1})//{step}] = Range(%zero, %size, %step)
  %i4: i64[(n + {step - 1})//{step}, 1, 1, 1] = Unsqueeze(%i, %rows)
  %ie: i64[n, 1, 3, 4] = Expand(%i4, %shape)
  %je: i64[n, 1, 3, 4] = Expand(%columns, %shape)
  %iu: i64[n, 1, 3, 4, 1] = Unsqueeze(%ie, %last)
  %ju: i64[n, 1, 3, 4, 1] = Unsqueeze(%je, %last)
  %at: i64[n, 1, 3, 4, 2] = Concat({parts}) {{axis=-1}}
  %y: i64[n, 1, 3, 4] = GatherND(%x, %at)
}}""".replace("(n + 0)//1", "n")


def test_a_gather_by_positions_sees_its_tensor_along_other_axes() -> None:
    text = after(GatherByPosition(), by_position())
    assert "GatherND" not in text
    assert "Unsqueeze(%x, %y/axes)" in text and "const %y/axes: i64[2] = dense [1, 2]" in text
    assert "i64[n, 1, 3, 4] = Expand(" in text


@pytest.mark.parametrize("parts", ["%ju, %iu", "%iu, %iu", "%ju, %ju"])
def test_a_gather_by_other_numbers_stays(parts: str) -> None:
    """The parts count along axes of another length, or both along one."""
    after(GatherByPosition(), by_position(parts), changed=False)


def test_positions_give_what_the_gather_gave() -> None:
    arrays = {"x": np.arange(20, dtype=np.int64).reshape(5, 4), "like": np.zeros((5, 1, 3, 4), np.float32)}
    before, changed = graph_of(by_position()), graph_of(by_position())
    assert GatherByPosition().apply(changed)
    np.testing.assert_array_equal(run(changed, arrays)["y"], run(before, arrays)["y"])
    np.testing.assert_array_equal(run(changed, arrays)["y"][:, 0, 2], arrays["x"])


def test_a_gather_by_positions_of_swapped_axes_transposes() -> None:
    text = """\
        graph g(%x: f32[3, 2]) -> (%y) {
          const %i: i64[2, 3, 1] = dense [0, 1, 2, 0, 1, 2]
          const %j: i64[2, 3, 1] = dense [0, 0, 0, 1, 1, 1]
          %at: i64[2, 3, 2] = Concat(%i, %j) {axis=-1}
          %z: f32[2, 3] = GatherND(%x, %at)
          %y: f32[2, 3] = Neg(%z)
        }"""
    assert "Transpose(%x) {perm=[1, 0]}" in after(GatherByPosition(), text)
    array = {"x": np.arange(6, dtype=np.float32).reshape(3, 2)}
    graph = graph_of(text)
    np.testing.assert_array_equal(run(graph, array)["y"], -array["x"].T)
    GatherByPosition().apply(graph)
    np.testing.assert_array_equal(run(graph, array)["y"], -array["x"].T)
