"""Run-time extents of 0, of 1 and of several from one package, against onnxruntime."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import atc
from acl_runtime import InferSession

rng = np.random.default_rng(5)
N = "n"


def f(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


Case = tuple[str, list[Any], dict[str, Any], int]
"""op, inputs (a shape with N is fed, an array is constant, None is absent), attributes, opset."""
CASES: dict[str, Case] = {
    "relu": ("Relu", [(N, 4)], {}, 17),
    "add": ("Add", [(N, 4), f(4)], {}, 17),
    "add two": ("Add", [(N, 4), (N, 4)], {}, 17),
    "matmul": ("MatMul", [(N, 4), f(4, 3)], {}, 17),
    "matmul inner": ("MatMul", [(2, N), (N, 3)], {}, 17),
    "matmul batch": ("MatMul", [(N, 2, 4), (N, 4, 3)], {}, 17),
    "gemm": ("Gemm", [(N, 4), f(4, 3), f(3)], {}, 17),
    "conv": ("Conv", [(N, 2, 6, 6), f(3, 2, 3, 3), f(3)], {"pads": [1, 1, 1, 1]}, 17),
    "conv transpose": ("ConvTranspose", [(N, 2, 4, 4), f(2, 3, 2, 2)], {"strides": [2, 2]}, 17),
    "conv of pads": ("Conv", [(1, 2, N, 6), f(3, 2, 2, 3), f(3)], {"pads": [1, 1, 1, 1]}, 17),
    "depthwise conv of pads": ("Conv", [(1, 3, N, 6), f(3, 1, 2, 3), f(3)], {"pads": [1, 1, 1, 1], "group": 3}, 17),
    "pixelwise conv of pads": ("Conv", [(1, 2, N, 6), f(3, 2, 1, 1), f(3)], {"pads": [1, 0, 0, 0]}, 17),
    "conv transpose of no row": ("ConvTranspose", [(1, 2, N, 4), f(2, 3, 2, 2)], {}, 17),
    "max pool": ("MaxPool", [(N, 2, 6, 6)], {"kernel_shape": [2, 2], "strides": [2, 2]}, 17),
    "average pool": ("AveragePool", [(N, 2, 6, 6)], {"kernel_shape": [2, 2]}, 17),
    "global pool": ("GlobalAveragePool", [(N, 2, 6, 6)], {}, 17),
    "softmax": ("Softmax", [(N, 4)], {"axis": 1}, 17),
    "softmax over n": ("Softmax", [(3, N)], {"axis": 1}, 17),
    "layer norm": ("LayerNormalization", [(N, 4), f(4), f(4)], {}, 17),
    "reduce sum": ("ReduceSum", [(3, N), np.array([1])], {"keepdims": 0}, 17),
    "reduce mean": ("ReduceMean", [(3, N)], {"axes": [1]}, 17),
    "reduce rows": ("ReduceMax", [(N, 4)], {"axes": [1]}, 17),
    "transpose": ("Transpose", [(N, 4, 2)], {"perm": [1, 0, 2]}, 17),
    "concat": ("Concat", [(N, 4), f(2, 4)], {"axis": 0}, 17),
    "concat two": ("Concat", [(N, 4), (N, 4)], {"axis": 0}, 17),
    "slice": ("Slice", [(N, 4), np.array([1]), np.array([4]), np.array([0])], {}, 17),
    "slice back": ("Slice", [(N, 4), np.array([-1]), np.array([-1000]), np.array([0]), np.array([-1])], {}, 17),
    "slice every second": ("Slice", [(N, 4), np.array([0]), np.array([99]), np.array([0]), np.array([2])], {}, 17),
    "slice every second back": (
        "Slice", [(N, 4), np.array([-1]), np.array([-99]), np.array([0]), np.array([-2])], {}, 17,
    ),
    "slice the last": ("Slice", [(N, 4), np.array([-2]), np.array([99]), np.array([0])], {}, 17),
    "gather": ("Gather", [f(5, 4), ("i", N)], {}, 17),
    "reshape": ("Reshape", [(N, 4), np.array([-1, 2])], {}, 17),
    "flatten": ("Flatten", [(N, 4, 2)], {"axis": 1}, 17),
    "expand": ("Unsqueeze", [(N, 4), np.array([1])], {}, 17),
    "tile": ("Tile", [(N, 4), np.array([2, 3])], {}, 17),
    "pad": ("Pad", [(N, 4), np.array([1, 1, 1, 1])], {}, 17),
    "top k": ("TopK", [(N, 8), np.array([3])], {"axis": 1}, 17),
    "argmax": ("ArgMax", [(N, 4)], {"axis": 1}, 17),
    "cumsum": ("CumSum", [(N, 4), np.array(0)], {}, 17),
    "resize": ("Resize", [(N, 2, 4, 4), None, np.array([1, 1, 2, 2], np.float32)],
               {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}, 17),
    "lstm": ("LSTM", [(3, N, 4), f(1, 20, 4), f(1, 20, 5)], {"hidden_size": 5}, 17),
    "instance norm": ("InstanceNormalization", [(N, 2, 8), f(2), f(2)], {}, 17),
    "hardmax": ("Hardmax", [(N, 4)], {"axis": 1}, 17),
    "nonzero": ("NonZero", [(N, 4)], {}, 17),
    "split": ("Split", [(N, 4), np.array([1, 3])], {"axis": 1}, 17),
}  # fmt: skip
NO_ORACLE = {"lstm", "reduce mean"}
"""Where onnxruntime ends the process for an empty batch, or gives 0 for the mean of nothing, which is no number."""


def build(case: Case) -> tuple[onnx.ModelProto, dict[str, tuple[Any, ...]]]:
    op, inputs, attrs, opset = case
    names, fed, values, constants = [], {}, [], []
    for k, given in enumerate(inputs):
        names.append("" if given is None else f"x{k}")
        if isinstance(given, tuple):
            is_index = given[0] == "i"
            shape = given[1:] if is_index else given
            fed[f"x{k}"] = given
            values.append(helper.make_tensor_value_info(f"x{k}", TensorProto.INT64 if is_index else 1, shape))
        elif given is not None:
            constants.append(numpy_helper.from_array(given, f"x{k}"))
    count = {"TopK": 2, "Split": 2}.get(op, 1)
    outputs = [f"y{k}" for k in range(count)]
    graph = helper.make_graph([helper.make_node(op, names, outputs, **attrs)], "g", values,
                              [onnx.ValueInfoProto(name=o) for o in outputs], constants)  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), fed


def feeds(fed: dict[str, tuple[Any, ...]], n: int) -> dict[str, np.ndarray]:
    local = np.random.default_rng(n)
    found = {}
    for name, given in fed.items():
        shape = [n if d == N else d for d in (given[1:] if given[0] == "i" else given)]
        found[name] = local.integers(0, 5, shape) if given[0] == "i" else local.standard_normal(shape).astype(np.float32)
    return found


def test_static_extents_of_0() -> None:
    """Sums over nothing with results that have elements."""
    for op, shapes, attrs, want in (
        ("ReduceMean", [(2, 0)], {"axes": [1]}, np.full((2, 1), np.nan)), ("ReduceSum", [(2, 0)], {}, np.zeros((1, 1))),
        ("MatMul", [(N, 0), (0, 4)], {}, np.zeros((3, 4))), ("GlobalAveragePool", [(2, 3, 0, 4)], {}, np.full((2, 3, 1, 1), np.nan)),
        ("ReduceProd", [(0, 3)], {"axes": [0]}, np.ones((1, 3))),
    ):  # fmt: skip
        model, fed = build((op, shapes, attrs, 13))
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "m.onnx").write_bytes(model.SerializeToString())
            atc.convert(Path(folder) / "m.onnx", Path(folder) / "m.om")
            [got] = InferSession(0, Path(folder) / "m.om").infer(feeds(fed, 3))
        assert got.shape == want.shape
        np.testing.assert_array_equal(got, want)


def test_a_slice_from_the_end_by_a_run_time_length(tmp_path: Path) -> None:
    """x[:, -n:] where n is another input's length: a kernel, which takes n from 1 on."""
    nodes = [
        helper.make_node("Shape", ["y"], ["s"]), helper.make_node("Neg", ["s"], ["b"]),
        helper.make_node("Slice", ["x", "b", "e", "a"], ["part"]), helper.make_node("Add", ["part", "y"], ["z"]),
    ]  # fmt: skip
    constants = [numpy_helper.from_array(np.array([v]), n) for n, v in (("e", 1 << 40), ("a", 1))]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [2, "m"]), helper.make_tensor_value_info("y", 1, [N])],
                              [onnx.ValueInfoProto(name="z")], constants)  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert not atc.convert(tmp_path / "m.onnx", tmp_path / "m.om").aicpu_nodes
    session = InferSession(0, tmp_path / "m.om")
    for m, n in ((5, 3), (5, 5), (4, 1)):
        x, y = f(2, m), f(n)
        np.testing.assert_allclose(session.infer([x, y])[0], x[:, m - n :] + y, rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_one_package_takes_every_extent(tmp_path: Path, name: str) -> None:
    model, fed = build(CASES[name])
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    session = InferSession(0, tmp_path / "m.om")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    oracle = onnxruntime.InferenceSession(model.SerializeToString(), options)
    for n in (0, 3, 1, 0):
        data = feeds(fed, n)
        if not n and name in NO_ORACLE:
            assert all(0 in np.shape(y) or np.isnan(y).all() for y in session.infer(data))
            continue
        for got, expected in zip(session.infer(data), oracle.run(None, data), strict=True):
            assert got.shape == expected.shape and got.dtype == expected.dtype
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
