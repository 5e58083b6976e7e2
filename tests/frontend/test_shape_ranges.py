"""Ranges, names and positions in the shapes that a user gives."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

from frontend import read_model
from tensor_types.dims import evaluate
from tensor_types.errors import InvalidModel


@pytest.fixture
def model(tmp_path):
    """Two inputs that share a dim, and one with a fixed shape."""
    ins = [h.make_tensor_value_info(n, T.FLOAT, d) for n, d in (("a:0", ["n", "t", 8]), ("b", ["n"]), ("c", [5]))]
    nodes = [h.make_node("Neg", [n], [f"y{i}"]) for i, n in enumerate(("a:0", "b", "c"))]
    outs = [h.make_tensor_value_info(f"y{i}", T.FLOAT, None) for i in range(3)]
    onnx.save(h.make_model(h.make_graph(nodes, "g", ins, outs), opset_imports=[h.make_opsetid("", 13)]), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.mark.parametrize(
    ("wishes", "dims"),
    [
        ({"a:0": [-1, (2, 9), 8]}, {"n": (0, None), "t": (2, 9)}),
        ({"a:0": [(2, 9), (3, None), 8], "b": [(4, 20)]}, {"n": (4, 9), "t": (3, None)}),
        ({"a:0": [(2, 9), 7, 8], "b": [4]}, {}),
        ({0: [(2, 9), -1, 8], 1: [(9, 9)]}, {"t": (0, None)}),
        ({"c": [(6, 9)]}, {"n": (0, None), "t": (0, None), "batch": (6, 9)}),
    ],
)
def test_dims_get_the_ranges(model, wishes, dims):
    assert read_model(model, wishes).dims == dims


@pytest.mark.parametrize(
    ("wishes", "code", "said"),
    [
        ({"a:0": [(2, 3), -1, 8], "b": [(4, 5)]}, "E10050", "2~3 in another place, not 4~5"),
        ({"a:0": [4, -1, 8], "b": [5]}, "E10050", "4 in another place, not 5"),
        ({"a:0": [-1, -1, (9, 20)]}, "E10050", "8 in the model, not 9~20"),
        ({0: [-1, -1, 8], 1: [1], 2: [5], 3: [1]}, "E10016", "4 inputs, the model has 3"),
        ({"a0": [-1, -1, 8]}, "E10016", "did you mean 'a:0'?"),
        ({"b": [(1, 2), 3]}, "E10049", "2 dims"),
    ],
)
def test_wishes_that_cannot_be(model, wishes, code, said):
    with pytest.raises(InvalidModel) as caught:
        read_model(model, wishes)
    assert caught.value.code == code and said in caught.value.message
    assert "a:0: f32[n, t, 8]" in caught.value.remedy


def test_placeholders_are_no_names(tmp_path):
    """What exporters write where a dim has no name does not tie dims to each other."""
    node = h.make_node("Neg", ["x"], ["y"])
    ends = [h.make_tensor_value_info("x", T.FLOAT, ["-1", 3, "-1", "None"])], [h.make_tensor_value_info("y", T.FLOAT, None)]
    onnx.save(h.make_model(h.make_graph([node], "g", *ends), opset_imports=[h.make_opsetid("", 13)]), tmp_path / "m.onnx")
    (x,) = read_model(tmp_path / "m.onnx", {"x": [1, 3, 48, -1]}).inputs
    assert [str(d) for d in x.shape] == ["1", "3", "48", "x_3"]


def _saved(path, nodes, inputs, outputs, constants=()):
    ins = [h.make_tensor_value_info(n, T.FLOAT, d) for n, d in inputs]
    kept = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants]
    graph = h.make_graph(nodes, "g", ins, [onnx.ValueInfoProto(name=o) for o in outputs], kept)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_windows_that_must_fit_raise_a_range(tmp_path):
    """Two convolutions of samples, and their length as exporters compute it from the size of the input, in front."""
    nodes = [
        h.make_node("Shape", ["x"], ["s"], start=2), h.make_node("Sub", ["s", "ten"], ["a"]), h.make_node("Div", ["a", "five"], ["b"]),
        h.make_node("Sub", ["b", "two"], ["c"]), h.make_node("Div", ["c", "two"], ["d"]), h.make_node("Add", ["d", "one"], ["length"]),
        h.make_node("Conv", ["x", "w"], ["p"], strides=[5]), h.make_node("Conv", ["p", "v"], ["q"], strides=[2]),
    ]  # fmt: skip
    numbers = [("ten", [10]), ("five", [5]), ("two", [2]), ("one", [1])]
    weights = [("w", np.zeros((4, 1, 10), np.float32)), ("v", np.zeros((4, 4, 3), np.float32))]
    path = _saved(tmp_path / "m.onnx", nodes, [("x", [1, 1, "n"])], ["q", "length"], [*numbers, *weights])
    graph = read_model(path)
    fits = next(n for n in range(100) if n >= 10 and (n - 10) // 5 + 1 >= 3)
    assert graph.dims == {"n": (fits, None)} and not graph.requirements
    convolved, length = graph.outputs
    assert length.content == convolved.shape[2:]
    # A range of the user that allows no such size stays, and the run is refused.
    assert read_model(path, {"x": [1, 1, (1, 9)]}).dims == {"n": (1, 9)}


def test_an_axis_that_may_be_empty_raises_nothing(tmp_path):
    """A window of 2 over nothing has no position."""
    node = h.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], strides=[2])
    graph = read_model(_saved(tmp_path / "m.onnx", [node], [("x", [1, 1, "n"])], ["y"]))
    assert graph.dims == {"n": (0, None)} and len(graph.requirements) == 1


def test_quotients_of_either_sign(tmp_path):
    """Div of integers rounds towards zero."""
    nodes = [h.make_node("Shape", ["x"], ["s"]), h.make_node("Sub", ["s", "five"], ["a"]), h.make_node("Div", ["a", "three"], ["y"])]
    path = _saved(tmp_path / "m.onnx", nodes, [("x", ["n"])], ["y"], [("five", [5]), ("three", [3])])
    [quotient] = read_model(path).outputs[0].content
    assert [evaluate(quotient, {"n": n}) for n in range(12)] == [int((n - 5) / 3) for n in range(12)]
