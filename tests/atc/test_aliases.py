"""What the AI CPU makes as a view of its operand is the caller's own: no later run and no input changes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper
from small_models import F32, N, array, info, model_of

from acl_runtime import InferSession
from atc.conversion import convert


def session(folder: Path, nodes: list[onnx.NodeProto]) -> InferSession:
    outputs = [helper.make_tensor_sequence_value_info("s", F32, None)]
    onnx.save(model_of(nodes, [info("x", F32, [4, 3])], outputs, [array("c", np.float32(0.1))]), folder / "m.onnx")
    convert(folder / "m.onnx", folder / "m.om")
    return InferSession(0, folder / "m.om")


def test_a_sequence_is_no_view_of_the_input(tmp_path: Path) -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    (rows,) = session(tmp_path, [N("SplitToSequence", ["x"], ["s"], axis=0, keepdims=1)]).infer({"x": x})
    kept = x.copy()
    x[:] = -1
    np.testing.assert_array_equal(np.concatenate(rows), kept)


def test_a_second_run_leaves_the_results_of_the_first(tmp_path: Path) -> None:
    nodes = [
        N("NonZero", ["x"], ["z"]),
        N("Cast", ["z"], ["f"], to=F32),
        N("Mul", ["f", "c"], ["a"]),
        N("Exp", ["a"], ["b"]),
        N("SplitToSequence", ["b"], ["s"], axis=0, keepdims=1),
    ]
    runs = session(tmp_path, nodes)
    x = np.zeros((4, 3), np.float32)
    x[2, 1] = x[3, 0] = 1
    (first,) = runs.infer({"x": x})
    runs.infer({"x": np.ones((4, 3), np.float32)})
    np.testing.assert_allclose(np.concatenate(first), np.exp(np.array([[2, 3], [1, 0]]) * 0.1), rtol=1e-6)
