"""The text form: parse and print are inverse to each other, and errors name the line."""

import numpy as np
import pytest

from graph_opt.ir.text import parse, to_text
from graph_opt.ir.verifier import verify
from tensor_types.formats import channels_last
from tensor_types.recipes import Source

FULL = """graph g(%x: f32[batch, 3, h, w], %"odd name:0": i64[]) -> (%y, %s) {
  dim batch in [1, inf]
  dim h in [8, 64]
  const %w: f32[10, 3, 1, 1] = random seed 7 scale 0.1
  const %b: f32[3] = dense [0.1, -2.5, 1e-05]
  const %big: f16[128] = elided "0123abcd"
  const %mask: bool[2] = dense [true, false]
  const %half: f32[] = splat 0.5
  const %many: i64[2] = splat -1
  %t: f32[batch, 10, ((h + 1)//2), ((w + 1)//2)] {perm(0,2,3,1)} = Conv(%x, %w, _) {strides=[2, 2]} @conv1
  %y: f32[batch, 10, ((h + 1)//2), ((w + 1)//2)] = Mul(%t, %half) @"a b"
  %s: i64[4] <batch, 10, ((h + 1)//2), ((w + 1)//2)> = Shape(%y)
  %o: f32[?], %i: i64[min(batch, h)] = Custom::Op(%s) {ATTRS}
  origin "src:0" = same %t
  origin "gone" = dead
}
"""

FULL = FULL.replace("ATTRS", 'a=1.5, b="q\\"", c=["k", "l"], d=tensor f32[2] [1.0, nan], e=-3, f=null, g=1e-05')

NESTED = """graph g(%c: bool[], %x: f32[n, 4]) -> (%y) {
  %y: f32[n, 4] = If(%c)
    then_branch = graph then() -> (%a) {
      %a: f32[n, 4] = Relu(%x)
    }
    else_branch = graph other() -> (%b) {
      const %two: f32[] = splat 2.0
      %b: f32[n, 4] = Mul(%x, %two)
    }
}
"""


GUARDED = """graph g(%x: f32[n], %"a b": bool[], %d: bool[1]) -> (%y) {
  %t: f32[n] = Elu(%x) {alpha=0.5} if %"a b", !%d @elu
  %m: f32[n] = IfMerge(%d, %x, %t) if %"a b"
  %y: f32[n] = IfMerge(%"a b", %m, %x)
}
"""


@pytest.mark.parametrize("text", [FULL, NESTED, GUARDED])
def test_printing_what_was_read_gives_the_text(text: str) -> None:
    assert to_text(parse(text)) == text


def test_reading_builds_what_the_text_says() -> None:
    graph = parse(FULL)
    conv = graph.nodes[0]
    assert (conv.op, conv.name, conv.attrs["strides"], conv.inputs[2]) == ("Conv", "conv1", (2, 2), None)
    assert conv.output.format == channels_last(4)
    assert graph.dims == {"batch": (1, None), "h": (8, 64)}
    np.testing.assert_array_equal(graph.values["b"].data, np.array([0.1, -2.5, 1e-5], np.float32))
    assert graph.values["mask"].data.tolist() == [True, False]
    assert np.isnan(graph.nodes[-1].attrs["d"][1])
    assert graph.nodes[-1].attrs["f"] is None


def test_missing_types_are_inferred() -> None:
    graph = parse("graph g(%x: f32[n, 3]) -> (%y) {\n  const %w: f32[3, 5] = splat 0.5\n  %y = MatMul(%x, %w)\n}\n")
    assert str(graph.outputs[0]) == "%y: f32[n, 5]"


def test_subgraphs_read_values_of_the_outer_graph() -> None:
    graph = parse(NESTED)
    verify(graph)
    users = {node.op for node, _ in graph.values["x"].uses}
    assert users == {"Relu", "Mul"}


def test_large_constants_are_elided_by_content() -> None:
    graph = parse("graph g() -> () {\n  const %w: f32[2, 40] = splat 0.0\n}\n")
    graph.values["w"].recipe = Source(np.arange(80, dtype=np.float32).reshape(2, 40))
    first = to_text(graph)
    assert "elided" in first
    assert to_text(parse(first)) == first
    graph.values["w"].recipe = Source(graph.values["w"].recipe.array() + 1)
    assert to_text(graph) != first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph g() -> (%y) {\n}\n", "%y is not defined"),
        ("graph g(%x: f32[2]) -> () {\n  %x = Relu(%x)\n}\n", "%x is defined twice"),
        ("graph g() -> () {\n  const %w: f32[2] = maybe 3\n}\n", "line 2: expected dense"),
        ("graph g() -> () {\n  %y = Relu(%z)\n}\n", "%z is not defined"),
        ("graph g() -> () {\n} more", "line 2: expected the end"),
    ],
)
def test_errors_say_where(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)
