"""A branch of an If that cannot run need not make sense for the shapes at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from frontend import read_model
from graph_opt.ir.verifier import verify
from graph_opt.simplify import EliminateDeadCode, FoldShapes, SelectBranches
from tests.graph_opt.simplify.graph_to_onnx import run


@pytest.mark.parametrize("size", [1, 3])
def test_squeeze_of_an_axis_that_is_not_one(tmp_path: Path, size: int) -> None:
    """torch writes `squeeze(-1)` as: if the extent is 1, Squeeze, else Identity."""
    axes = numpy_helper.from_array(np.array([-1], np.int64), "axes")
    one = numpy_helper.from_array(np.array([1], np.int64), "one")
    out = [helper.make_empty_tensor_value_info("r")]
    then = helper.make_graph([helper.make_node("Squeeze", ["x", "axes"], ["r"])], "t", [], out)
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["r"])], "e", [], out)
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=1),
        helper.make_node("Equal", ["s", "one"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"])]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")], [axes, one])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)

    read = read_model(path, {"x": [-1, size]})
    verify(read)
    SelectBranches().apply(read)
    FoldShapes().apply(read)
    EliminateDeadCode().apply(read)
    verify(read)
    assert [n.op for n in read.nodes] == ["Squeeze" if size == 1 else "Identity"]
    x = np.arange(2 * size, dtype=np.float32).reshape(2, size)
    np.testing.assert_array_equal(run(read, {"x": x})["y"], x[:, 0] if size == 1 else x)
