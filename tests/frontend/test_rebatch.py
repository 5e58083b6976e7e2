"""Another batch for a model exported with a fixed one: results are those of the single images, or it is refused."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

import atc
from acl_runtime import InferSession
from frontend import read_model
from tensor_types.errors import InvalidModel


def save(nodes, constants, shape=(1, 3, 8, 8), path="m.onnx"):
    weights = [nh.from_array(np.asarray(v), n) for n, v in constants.items()]
    ins, outs = [h.make_tensor_value_info("x", T.FLOAT, shape)], [h.make_tensor_value_info("y", T.FLOAT, None)]
    graph = h.make_graph(
        [h.make_node(*n[:3], name=f"n{i}", **(n[3] if n[3:] else {})) for i, n in enumerate(nodes)],
        "g",
        ins,
        outs,
        weights,
    )
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 13)], ir_version=8), path)


K = np.random.default_rng(0).standard_normal((6, 3, 3, 3)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((54, 5)).astype(np.float32)
CLASSIFIER = [
    ("Conv", ["x", "k"], ["c"], {"strides": [3, 3], "pads": [1, 1, 1, 1]}),
    ("Reshape", ["c", "s"], ["f"]),
    ("MatMul", ["f", "w"], ["y"]),
]


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        (CLASSIFIER, {"k": K, "w": W, "s": [1, 54]}),
        (CLASSIFIER, {"k": K, "w": W, "s": [1, -1]}),
        (
            [
                ("Reshape", ["x", "s"], ["r"]),
                ("Transpose", ["r"], ["t"], {"perm": [0, 2, 1]}),
                ("Reshape", ["t", "u"], ["y"]),
            ],
            {"s": [1, 3, 64], "u": [1, 8, 8, 3]},
        ),
        ([("ReduceMean", ["x"], ["m"], {"axes": [2, 3]}), ("Sub", ["x", "m"], ["y"])], {}),
    ],
)
def test_every_image_gets_the_result_that_it_had(tmp_path, monkeypatch, nodes, constants):
    monkeypatch.chdir(tmp_path)
    save(nodes, constants)
    images = np.random.default_rng(2).standard_normal((4, 3, 8, 8)).astype(np.float32)
    single = ort.InferenceSession("m.onnx", providers=["CPUExecutionProvider"])
    wanted = np.concatenate([single.run(None, {"x": image[None]})[0] for image in images])
    atc.convert("m.onnx", "m.om", input_shape="x:4,3,8,8")
    np.testing.assert_allclose(InferSession(0, "m.om").infer([images])[0], wanted, rtol=1e-5, atol=1e-5)
    atc.convert("m.onnx", "g.om", input_shape="x:-1,3,8,8", dynamic_batch_size="1,4")
    session = InferSession(0, "g.om")
    assert session.dims == {"batch": (1, 4)}
    np.testing.assert_allclose(session.infer([images])[0], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("nodes", "constants", "node"),
    [
        ([("Concat", ["x", "p"], ["y"], {"axis": 1})], {"p": np.zeros((1, 1, 8, 8), np.float32)}, "n0"),
        ([("Reshape", ["x", "s"], ["y"])], {"s": [3, 64]}, None),
    ],
)
def test_a_graph_that_holds_on_to_its_batch_is_refused(tmp_path, monkeypatch, nodes, constants, node):
    monkeypatch.chdir(tmp_path)
    save(nodes, constants)
    with pytest.raises(InvalidModel) as caught:
        read_model("m.onnx", {"x": [4, 3, 8, 8]})
    error = caught.value
    assert error.code == "E10050" and "fixed batch" in error.message and error.where["tensor"] == "x"
    assert node is None or error.where["node"] == node


def test_the_model_s_own_batch_and_other_axes_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save([("Neg", ["x"], ["y"])], {}, (2, 3))
    assert read_model("m.onnx", {"x": [-1, 3]}).dims == {} and not read_model("m.onnx", {"x": [2, 3]}).warnings
    graph = read_model("m.onnx", {"x": [7, 3]})
    assert graph.inputs[0].shape == (7, 3) and "was 2 in the model" in graph.warnings[0]
    with pytest.raises(InvalidModel, match="axis 1 is 3 in the model"):
        read_model("m.onnx", {"x": [7, 4]})
