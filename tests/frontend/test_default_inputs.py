"""Inputs for which the model has a value: constants, or fed where the user gives them a shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import atc
from acl_runtime import InferSession
from frontend import read_model

X = np.arange(6, dtype=np.float32).reshape(2, 3)
DEFAULT = np.full((3, 4), 5, np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    ends = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", ["n", 3]), ("w", [3, 4]))]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", ends, [onnx.ValueInfoProto(name="y")], [numpy_helper.from_array(DEFAULT, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_a_value_that_is_not_asked_for_is_a_constant(path: Path) -> None:
    graph = read_model(path)
    assert [v.name for v in graph.inputs] == ["x"]
    assert any("values for its inputs w" in warning and "--input_shape" in warning for warning in graph.warnings)


def test_an_input_with_a_shape_of_the_user_is_fed(path: Path, tmp_path: Path) -> None:
    atc.convert(path, tmp_path / "m.om", input_shape={"w": [3, 4]})
    fed = {"x": X, "w": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)}
    [ours] = InferSession(0, tmp_path / "m.om").infer(fed)
    [theirs] = onnxruntime.InferenceSession(path).run(None, fed)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_until_ir_version_3_all_are_constants(path: Path) -> None:
    model = onnx.load(path)
    model.ir_version = 3
    onnx.save(model, path)
    graph = read_model(path)
    assert [v.name for v in graph.inputs] == ["x"] and not graph.warnings
