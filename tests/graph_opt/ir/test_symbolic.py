"""Symbolic shapes: shape arithmetic folds away, and what only a run can decide is recorded as a requirement."""

import pytest

from graph_opt.ir.core import Requirement
from graph_opt.ir.infer import infer_graph
from graph_opt.ir.text import parse
from tensor_types.dim_text import parse as expr
from tensor_types.errors import InvalidModel

HEADS = """graph g(%x: f32[batch, sequence, 768]) -> (%y) {
  dim batch in [1, inf]
  dim sequence in [1, inf]
  const %zero: i64[] = splat 0
  const %one: i64[] = splat 1
  const %axis: i64[1] = splat 0
  const %heads: i64[1] = splat 12
  const %rest: i64[1] = splat -1
  %s = Shape(%x)
  %b = Gather(%s, %zero)
  %b1 = Unsqueeze(%b, %axis)
  %t = Gather(%s, %one)
  %t1 = Unsqueeze(%t, %axis)
  %shape = Concat(%b1, %t1, %heads, %rest) {axis=0}
  %y = Reshape(%x, %shape)
}"""


def test_an_exported_split_into_heads_has_an_exact_shape() -> None:
    graph = parse(HEADS)
    assert str(graph.values["shape"]) == "%shape: i64[4]"
    assert graph.values["shape"].content == (expr("batch"), expr("sequence"), 12, -1)
    assert str(graph.outputs[0]) == "%y: f32[batch, sequence, 12, 64]"
    assert not graph.requirements


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("splat -1", "splat 9223372036854775807", "1"),
        ("splat 0", "splat -1", "n - 1"),
        ("splat 1", "splat 2147483647", "n - 1"),
        ("splat 0", "splat 512", "min(512, n)"),
        ("splat 0", "splat 1000000000", "n"),
        ("splat 2", "splat 9223372036854775807", "-min(2, n) + n"),
    ],
)
def test_slices_of_symbolic_extents(start: str, end: str, expected: str) -> None:
    graph = parse(f"""graph g(%x: f32[n]) -> (%y) {{
      dim n in [1, inf]
      const %s: i64[1] = {start}
      const %e: i64[1] = {end}
      %y = Slice(%x, %s, %e)
    }}""")
    assert graph.outputs[0].shape == (expr(expected),)


@pytest.mark.parametrize(("start", "end"), [("splat 1", "splat 9223372036854775807"), ("splat 0", "splat -1")])
def test_a_slice_of_an_axis_with_one_more_has_the_plain_extent(start: str, end: str) -> None:
    """x joined to its first element less one end is as long as x, also when x is empty."""
    graph = parse(f"""graph g(%x: f32[n]) -> (%y) {{
      const %zero: i64[1] = splat 0
      const %one: i64[1] = splat 1
      const %s: i64[1] = {start}
      const %e: i64[1] = {end}
      %head = Slice(%x, %zero, %one)
      %long = Concat(%head, %x) {{axis=0}}
      %y = Slice(%long, %s, %e)
    }}""")
    assert graph.outputs[0].shape == (expr("n"),)


def test_an_axis_that_an_empty_dim_would_make_negative_says_that_the_dim_is_not_empty() -> None:
    """2*n - 1 relative positions around the centre: no model has them for n = 0, so the end of the slice is no -1."""
    graph = parse("""graph g(%x: f32[2*n - 1], %z: f32[n]) -> (%y) {
      dim n in [0, inf]
      const %s: i64[1] = splat 0
      const %two: i64[1] = splat 2
      const %one: i64[1] = splat 1
      %n = Shape(%z)
      %m = Mul(%n, %two)
      %e = Sub(%m, %one)
      %y = Slice(%x, %s, %e)
    }""")
    assert graph.outputs[0].shape == (expr("2*n - 1"),)
    assert graph.dims["n"] == (1, None)


def test_a_table_cut_to_a_length_is_1_only_where_the_length_is() -> None:
    n = expr("n")
    assert add("", "n", "min(512, n)") == ("%y: f32[n]", {Requirement(n, expr("min(512, n)"), "equal"): "sum"})
    assert add("", "n", "min(1, n)")[0] != "%y: f32[n]"


def test_a_detour_through_floats_keeps_the_size() -> None:
    graph = parse("""graph g(%x: f32[1, 3, h, w]) -> (%y) {
      dim h in [2, inf]
      dim w in [2, inf]
      const %two: f32[1] = splat 2.0
      const %at: i64[2] = dense [2, 3]
      const %lead: i64[2] = dense [1, 3]
      %s = Shape(%x)
      %hw = Gather(%s, %at)
      %f = Cast(%hw) {to=1}
      %d = Div(%f, %two)
      %floor = Floor(%d)
      %i = Cast(%floor) {to=7}
      %sizes = Concat(%lead, %i) {axis=0}
      %y = Resize(%x, _, _, %sizes)
    }""")
    assert str(graph.outputs[0]) == "%y: f32[1, 3, (h//2), (w//2)]"


def add(ranges: str, left: str, right: str) -> tuple[str, dict[Requirement, str]]:
    graph = parse(f"graph g(%a: f32[{left}], %b: f32[{right}]) -> (%y) {{\n{ranges}\n %y = Add(%a, %b) @sum\n}}")
    return str(graph.outputs[0]), graph.requirements


def test_broadcasting_symbolic_extents() -> None:
    n, m = expr("n"), expr("m")
    assert add("", "n", "n") == ("%y: f32[n]", {})
    assert add("", "n", "1") == ("%y: f32[n]", {})
    assert add("", "n", "5") == ("%y: f32[5]", {Requirement(5, n, "broadcast"): "sum"})
    assert add("", "n", "m") == ("%y: f32[min(m*n, max(m, n))]", {Requirement(n, m, "broadcast"): "sum"})
    assert add("", "n", "min(m*n, max(m, n))") == add("", "n", "m")
    assert add("dim n in [2, inf]", "n", "m") == ("%y: f32[n]", {Requirement(n, m, "broadcast"): "sum"})


def test_extents_that_must_be_equal_are_required_once() -> None:
    graph = parse("""graph g(%a: f32[2, k], %b: f32[n, 4]) -> (%y) {
      %y = MatMul(%a, %b) @mm
    }""")
    assert graph.requirements == {Requirement(expr("k"), expr("n"), "equal"): "mm"}
    infer_graph(graph)
    assert len(graph.requirements) == 1
    graph.inputs[0].shape = (2, 4)
    graph.inputs[1].shape = (4, 4)
    infer_graph(graph)
    assert not graph.requirements


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("%y = Add(%a, %b)", "extents 3 and 4 do not broadcast"),
        ("%y = MatMul(%a, %a)", "extents 3 and 2 do not agree"),
        ("%y = Add(%a, %i)", "different dtypes: f32, i64"),
        ("%y = Concat(%a, %b) {axis=0}", "extents 3 and 4 do not agree"),
        ("%y = Transpose(%a) {perm=[0, 0]}", "does not permute"),
        ("%y = Softmax(%a) {axis=2}", "axis 2 is outside rank 2"),
        ("%y = Add(%a)", "1 inputs given"),
        ("%y = Reshape(%a, %five)", "6 elements cannot take the shape"),
    ],
)
def test_contradictions_are_the_models_error_with_the_nodes_name(statement: str, message: str) -> None:
    with pytest.raises(InvalidModel, match=message) as caught:
        parse(f"""graph g(%a: f32[2, 3], %b: f32[2, 4], %i: i64[3]) -> (%y) {{
          const %five: i64[1] = splat 5
          {statement} @culprit
        }}""")
    assert caught.value.where["node"] == "culprit"


def test_an_unknown_operator_has_unknown_ranks() -> None:
    graph = parse("graph g(%a: f32[2]) -> (%y) {\n %y: f32[7] = Custom::Op(%a)\n}")
    infer_graph(graph)
    assert graph.outputs[0].shape is None


@pytest.mark.parametrize(
    ("statement", "expected", "dims"),
    [
        ("%y = NonZero(%x)", "i64[2, u0]", {"u0": (0, 12)}),
        ("%y = NonZero(%s)", "i64[2, u0]", {"u0": (0, None)}),
        ("%y = Compress(%x, %c) {axis=1}", "f32[3, u0]", {"u0": (0, 4)}),
        ("%y = Compress(%x, %c)", "f32[u0]", {"u0": (0, 12)}),
        ("%y = Unique(%x)", "f32[u0]", {"u0": (0, 12)}),
        ("%y = Reshape(%x, %t)", "f32[u0, u1, u2]", {"u0": (0, None), "u1": (0, None), "u2": (0, None)}),
        ("%y = Slice(%x, %p, %p)", "f32[u0, 4]", {"u0": (0, 3)}),
        ("%y = NonMaxSuppression(%b, %q, %m)", "i64[u0, 3]", {"u0": (0, 10)}),
    ],
)
def test_what_only_the_data_decides_gets_a_fresh_dim(statement: str, expected: str, dims: dict[str, object]) -> None:
    graph = parse(f"""graph g(%x: f32[3, 4], %s: f32[n, 4], %c: bool[4], %t: i64[3], %p: i64[1],
      %b: f32[1, 7, 4], %q: f32[1, 2, 7]) -> (%y) {{
      const %m: i64[1] = splat 5
      {statement}
    }}""")
    assert str(graph.outputs[0]) == f"%y: {expected}"
    assert graph.dims == dims
    infer_graph(graph)
    assert str(graph.outputs[0]) == f"%y: {expected}"
    assert graph.dims == dims


def test_a_number_put_into_a_shape_and_one_set_in_a_vector_are_known() -> None:
    graph = parse("""graph g(%x: f32[b, 2, 64, 16], %y: f32[n]) -> (%shape, %target) {
      const %two: i64[1] = splat 2
      const %last: i64[1] = splat -1
      const %one: i64[1] = splat 1
      const %three: i64[] = splat 3
      %count = Shape(%y)
      %s = Shape(%x)
      %shape = ScatterElements(%s, %two, %count) {axis=0}
      %values = Concat(%one, %count) {axis=0}
      %flat = OneHot(%last, %three, %values)
      %target = Reshape(%flat, %last)
    }""")
    assert graph.values["shape"].content == (expr("b"), 2, expr("n"), 16)
    assert graph.values["target"].content == (1, 1, expr("n"))
