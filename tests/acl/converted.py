"""Small ONNX models, and packages that `atc.convert` makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import atc


def scaled_mean_model(path: Path) -> Path:
    """y = 2 x + 1 and z = mean of y over height and width, for x [n, 3, h, w]; `scaled_mean` is the same in numpy."""
    constants = [("two", 2.0), ("one", 1.0)]
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["t"]),
        helper.make_node("Add", ["t", "one"], ["y"]),
        helper.make_node("ReduceMean", ["y"], ["z"], axes=[2, 3], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "yz"],
        [numpy_helper.from_array(np.array(v, np.float32), n) for n, v in constants],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def scaled_mean(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y = 2 * x + 1
    return y, y.mean((2, 3), dtype=np.float64)


def converted(folder: Path, **flags: Any) -> str:
    """The package of `scaled_mean_model`."""
    model = scaled_mean_model(folder / "model.onnx")
    atc.convert(str(model), str(folder / "model.om"), **flags)
    return str(folder / "model.om")
