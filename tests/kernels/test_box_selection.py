"""NonMaxSuppression through its native table of boxes, against onnxruntime: ties, limits, flipped corners, no box."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import atc
from acl_runtime import InferSession

rng = np.random.default_rng(11)


def boxes_of(images: int, count: int, center: bool) -> np.ndarray:
    """f32 [images, count, 4]; corners in any order, some boxes alike and some without area."""
    middle, size = rng.random((images, count, 2)), rng.random((images, count, 2)) * 0.4
    if center:
        return np.concatenate([middle, size], -1).astype(np.float32)
    corners = np.concatenate([middle - size / 2, middle + size / 2], -1).astype(np.float32)
    corners[:, ::3] = corners[:, ::3][..., [2, 3, 0, 1]]
    corners[:, 1::7] = corners[:, :1]
    corners[:, 2::9, 2:] = corners[:, 2::9, :2]
    return corners


@pytest.mark.parametrize(
    ("images", "kinds", "count", "most", "overlap", "least", "center"),
    [(1, 1, 1, 5, 0.5, 0.0, 0), (2, 3, 61, 10, 0.4, 0.3, 0), (1, 2, 40, 100, 0.6, None, 1), (2, 2, 33, 7, 0.0, 0.2, 1),
     (1, 3, 200, 4, 1.0, 0.5, 0), (1, 2, 20, 5, 0.5, 2.0, 0)],
)  # fmt: skip
def test_against_onnxruntime(
    images: int, kinds: int, count: int, most: int, overlap: float, least: float | None, center: int, tmp_path: Path
) -> None:
    constants = {"most": np.array([most]), "overlap": np.array([overlap], np.float32)}
    if least is not None:
        constants["least"] = np.array([least], np.float32)
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", *constants], ["rows"], center_point_box=center)
    shapes = {"boxes": ["images", count, 4], "scores": ["images", "kinds", count]}
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info("rows", TensorProto.INT64, [None, 3])],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "m.onnx")
    converted = atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    assert [n["op"] for n in converted.aicpu_nodes] == ["SelectedBoxes"]  # what decides the size
    scores = np.round(rng.random((images, kinds, count)) * 16).astype(np.float32) / 16
    feeds = {"boxes": boxes_of(images, count, bool(center)), "scores": scores}
    wanted = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, feeds)[0]
    np.testing.assert_array_equal(InferSession(0, tmp_path / "m.om").infer(feeds)[0], wanted)


def test_sizes_and_limits_that_only_the_run_knows(tmp_path: Path) -> None:
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap"], ["rows"])
    inputs = {"boxes": [1, "n", 4], "scores": [1, 2, "n"], "overlap": [1]}
    graph = helper.make_graph(
        [node], "g", [*(helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()),
                      helper.make_tensor_value_info("most", TensorProto.INT64, [1])],
        [helper.make_tensor_value_info("rows", TensorProto.INT64, [None, 3])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "m.onnx")
    atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    session, reference = InferSession(0, tmp_path / "m.om"), onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for count in (0, 1, 30):
        feeds = {"boxes": boxes_of(1, max(count, 1), False)[:, :count], "scores": rng.random((1, 2, count), np.float32),
                 "overlap": np.array([0.5], np.float32), "most": np.array([4])}  # fmt: skip
        np.testing.assert_array_equal(session.infer(feeds)[0], reference.run(None, feeds)[0])
