"""ScatterND by positions, as exporters write x[..., a:b] = y: a Concat around what is written."""

from __future__ import annotations

import numpy as np
import pytest

from graph_opt.simplify import ScatterByPosition
from tests.graph_opt.simplify.graph_to_onnx import run
from tests.graph_opt.simplify.texts import after, graph_of


def written(start: int = 2, rows: str = "0, 1, 2", reduction: str = "none") -> str:
    """x[:, start : start + 2] = y, rows counted by the run or as numbers."""
    return f"""\
graph g(%x: f32[3, 5, n], %y: f32[3, 2, n]) -> (%z) {{
  const %zero: i64[] = splat 0
  const %one: i64[] = splat 1
  const %last: i64[1] = splat -1
  const %shape: i64[2] = dense [3, 2]
  const %rows: i64[3, 1] = dense [{rows}]
  const %columns: i64[3, 2, 1] = dense [{", ".join([str(start), str(start + 1)] * 3)}]
  %i: i64[3, 2] = Expand(%rows, %shape)
  %iu: i64[3, 2, 1] = Unsqueeze(%i, %last)
  %at: i64[3, 2, 2] = Concat(%iu, %columns) {{axis=-1}}
  %s: f32[3, 5, n] = ScatterND(%x, %at, %y) {{reduction="{reduction}"}}
  %z: f32[3, 5, n] = Neg(%s)
}}"""


@pytest.mark.parametrize(("start", "pieces"), [(0, 2), (2, 3), (3, 2)])
def test_a_box_is_joined_with_what_is_around_it(start: int, pieces: int) -> None:
    text = after(ScatterByPosition(), written(start))
    assert "ScatterND" not in text and text.count("Slice(") == pieces - 1
    arrays = {"x": np.arange(60, dtype=np.float32).reshape(3, 5, 4), "y": -np.ones((3, 2, 4), np.float32)}
    graph = graph_of(written(start))
    want = arrays["x"].copy()
    want[:, start : start + 2] = -1
    np.testing.assert_array_equal(run(graph, arrays)["z"], -want)
    assert ScatterByPosition().apply(graph)
    np.testing.assert_array_equal(run(graph, arrays)["z"], -want)


@pytest.mark.parametrize("text", [written(rows="0, 2, 1"), written(rows="1, 2, 3"), written(4), written(reduction="add")])
def test_other_places_stay(text: str) -> None:
    """Rows in another order or beyond the end, columns that do not fit, sums."""
    after(ScatterByPosition(), text, changed=False)


def test_two_boxes_that_fill_a_tensor_are_their_join() -> None:
    text = after(ScatterByPosition(), """\
        graph g(%y: f32[2, 3], %w: f32[2, 1]) -> (%z) {
          const %x: f32[2, 4] = splat 0.0
          const %left: i64[2, 3, 2] = dense [0, 0, 0, 1, 0, 2, 1, 0, 1, 1, 1, 2]
          const %right: i64[2, 1, 2] = dense [0, 3, 1, 3]
          %s: f32[2, 4] = ScatterND(%x, %left, %y)
          %t: f32[2, 4] = ScatterND(%s, %right, %w)
          %z: f32[2, 4] = Neg(%t)
        }""")  # fmt: skip
    assert "Concat(%y, %w) {axis=1}" in text
