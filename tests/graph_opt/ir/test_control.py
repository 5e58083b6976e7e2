"""Control flow: branches that agree or not, decided conditions, carried states, scan outputs; a Loop by onnxruntime."""

import numpy as np
import onnx.parser
import onnxruntime
import pytest

from graph_opt.ir.infer import infer_graph
from graph_opt.ir.text import parse
from graph_opt.ir.verifier import verify


def branch_text(condition: str, then: str, other: str) -> str:
    return f"""graph g(%c: bool[], %x: f32[n, 1, m], %n: i64[]) -> (%y) {{
      dim n in [1, inf]
      const %axis: i64[1] = splat 1
      const %one: i64[] = splat 1
      const %two: i64[] = splat 2
      %s = Shape(%x)
      %e = Gather(%s, %one)
      %known = Equal(%e, %one)
      %never = Equal(%e, %two)
      %y = If({condition})
        then_branch = graph t() -> (%t) {{
          {then}
        }}
        else_branch = graph e() -> (%o) {{
          {other}
        }}
    }}"""


SQUEEZE, KEEP = "%t = Squeeze(%x, %axis)", "%o = Identity(%x)"


@pytest.mark.parametrize(
    ("condition", "then", "other", "expected"),
    [
        ("%known", SQUEEZE, KEEP, "f32[n, m]"),
        ("%never", SQUEEZE, KEEP, "f32[n, 1, m]"),
        ("%c", SQUEEZE, KEEP, "f32[?]"),
        ("%c", "%t = Exp(%x)", KEEP, "f32[n, 1, m]"),
        ("%c", "%t = Concat(%x, %x) {axis=1}", KEEP, "f32[n, u0, m]"),
    ],
)
def test_branches(condition: str, then: str, other: str, expected: str) -> None:
    graph = parse(branch_text(condition, then, other))
    verify(graph)
    assert str(graph.outputs[0]) == f"%y: {expected}"
    infer_graph(graph)
    assert str(graph.outputs[0]) == f"%y: {expected}"


def test_a_branch_never_taken_may_be_wrong() -> None:
    wrong = "%t = Reshape(%x, %bad)".replace("%bad", "%s")
    graph = parse(branch_text("%never", f"const %p: i64[1] = splat 0\n %q = Squeeze(%x, %p)\n {wrong}", KEEP))
    graph.inputs[1].shape = (5, 1, 3)
    infer_graph(graph)
    assert graph.outputs[0].shape == (5, 1, 3)


LOOP = """<ir_version: 10, opset_import: ["" : 21]>
g (int64 trips, float[2, 3] x) => (float grown, float same, float stacked)
{
  c = Constant <value_int = 1> ()
  cond = Cast <to = 9> (c)
  grown, same, stacked = Loop (trips, cond, x, x) <body = b (int64 i, bool go, float[r, 3] a, float[2, 3] s)
     => (bool go_out, float[q, 3] a_out, float[2, 3] s_out, float[2, 3] row) {
       go_out = Identity (go)
       a_out = Concat <axis = 0> (a, s)
       s_out = Exp (s)
       row = Neg (s)
  }>
}"""

LOOP_TEXT = """graph g(%trips: i64[], %x: f32[2, 3]) -> (%grown, %same, %stacked) {
  const %cond: bool[] = splat true
  %grown, %same, %stacked = Loop(%trips, %cond, %x, %x)
    body = graph b(%i: i64[], %go: bool[], %a: f32[?], %s: f32[?]) -> (%go_out, %a_out, %s_out, %row) {
      %go_out = Identity(%go)
      %a_out = Concat(%a, %s) {axis=0}
      %s_out = Exp(%s)
      %row = Neg(%s)
    }
}"""


def test_loop_shapes_hold_for_what_onnxruntime_gives() -> None:
    graph = parse(LOOP_TEXT)
    verify(graph)
    model = onnx.parser.parse_model(LOOP)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for trips in (0, 1, 4):
        found = session.run(None, {"trips": np.array(trips, np.int64), "x": np.ones((2, 3), np.float32)})
        for value, array in zip(graph.outputs, found, strict=True):
            assert value.shape is not None and len(value.shape) == array.ndim
            for inferred, extent in zip(value.shape, array.shape, strict=True):
                assert not isinstance(inferred, int) or inferred == extent
    assert graph.values["same"].shape == (2, 3)
    assert graph.values["stacked"].shape is not None and graph.values["stacked"].shape[1:] == (2, 3)
    assert graph.values["grown"].shape is not None and graph.values["grown"].shape[1] == 3
    before = [str(v) for v in graph.outputs]
    infer_graph(graph)
    assert [str(v) for v in graph.outputs] == before


def test_a_loop_of_known_length_stacks_to_it() -> None:
    text = LOOP_TEXT.replace("(%trips: i64[], %x", "(%x").replace(
        "  const %cond", "  const %trips: i64[] = splat 5\n  const %cond"
    )
    assert str(parse(text).values["stacked"]) == "%stacked: f32[5, 2, 3]"


def test_scan_runs_along_an_axis_of_its_inputs() -> None:
    graph = parse("""graph g(%h: f32[4], %xs: f32[n, t, 4]) -> (%last, %all) {
      %last, %all = Scan(%h, %xs) {num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1]}
        body = graph b(%s: f32[?], %x: f32[?]) -> (%next, %copy) {
          const %axes: i64[1] = splat 0
          const %no: i64[0] = dense []
          %m = ReduceSum(%x, %axes) {keepdims=0}
          %next = Add(%s, %m)
          %copy = Mul(%next, %x)
        }
    }""")
    verify(graph)
    assert [str(v) for v in graph.outputs] == ["%last: f32[4]", "%all: f32[n, t, 4]"]


def test_fused_nodes_infer_through_their_body() -> None:
    graph = parse("""graph g(%x: f32[n, 3]) -> (%y) {
      %y: f32[n, 3] = Fused(%x) {family="region"}
        body = graph region(%x: f32[n, 3]) -> (%y) {
          %y: f32[n, 3] = Exp(%x)
        }
    }""")
    graph.inputs[0].shape = (7, 3)
    infer_graph(graph)
    verify(graph)
    assert graph.outputs[0].shape == (7, 3)
