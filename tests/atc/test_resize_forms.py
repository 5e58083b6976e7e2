"""Resize of every mode natively, where sizes are numbers and where a run decides them, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

import atc
from acl_runtime import InferSession
from tests.atc.small_models import F32, I64, N, array, info, model_of

FORMS = {
    "nearest by a fraction": {"mode": "nearest", "sizes": (3, 25)},
    "nearest, asymmetric, ceil": {
        "mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil", "scales": (0.625, 2.25),
    },
    "linear up": {"mode": "linear", "sizes": (23, 31)},
    "linear, corners": {"mode": "linear", "coordinate_transformation_mode": "align_corners", "sizes": (5, 33)},
    "linear down": {"mode": "linear", "coordinate_transformation_mode": "asymmetric", "scales": (0.5, 0.31)},
    "cubic": {"mode": "cubic", "sizes": (18, 6)},
    "cubic, outside excluded": {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5, "scales": (2.0, 1.7)},
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_resize(name: str, tmp_path) -> None:
    form = dict(FORMS[name])
    sizes, scales = form.pop("sizes", None), form.pop("scales", None)
    held = [array("sizes", np.array(sizes))] if sizes else [array("scales", np.array(scales, np.float32))]
    inputs = ["x", "", "", "sizes"] if sizes else ["x", "", "scales"]
    nodes = [N("Relu", ["x"], ["r"], "relu"), N("Resize", ["r", *inputs[1:]], ["y"], "resize", axes=[2, 3], **form)]
    model = model_of(nodes, [info("x", F32, ["b", 3, 9, 14])], [info("y", F32, None)], held, opset=19)
    result = atc.convert(model, tmp_path / "m.om", soc_version="Ascend310P3")
    assert result.aicpu_nodes == [] == result.chips["Ascend310P3"]["aicpu_nodes"]
    x = np.random.default_rng(0).standard_normal((2, 3, 9, 14), np.float32)
    (found,) = InferSession(0, tmp_path / "m.om").infer([x])
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


def test_what_needs_more_stays_right(tmp_path) -> None:
    """Antialiasing over many elements is the AI CPU's."""
    held = [array("scales", np.array([0.11, 0.2], np.float32))]
    nodes = [N("Resize", ["x", "", "scales"], ["y"], "resize", axes=[2, 3], mode="linear", antialias=1)]
    model = model_of(nodes, [info("x", F32, [1, 2, 40, 30])], [info("y", F32, None)], held, opset=19)
    assert [n["op"] for n in atc.convert(model, tmp_path / "m.om").aicpu_nodes] == ["Resize"]
    x = np.random.default_rng(0).standard_normal((1, 2, 40, 30), np.float32)
    (found,) = InferSession(0, tmp_path / "m.om").infer([x])
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FORMS)
def test_sizes_that_a_run_decides(name: str, tmp_path) -> None:
    """Fed as data, or those of another tensor: the AI CPU finds places and weights, kernels move the elements."""
    form = dict(FORMS[name])
    sizes, scales = form.pop("sizes", None), form.pop("scales", None)
    fed = info("n", I64, [2]) if sizes else info("n", F32, [2])
    given = ["", "", "n"] if sizes else ["", "n"]
    nodes = [
        N("Relu", ["x"], ["r"], "relu"), N("Resize", ["r", *given], ["y"], "resize", axes=[2, 3], **form),
        N("Exp", ["y"], ["e"], "exp"), N("Shape", ["other"], ["like"], "shape", start=2),
        N("Resize", ["x", "", "", "like"], ["z"], "as_other", axes=[-2, -1], **form),
    ]  # fmt: skip
    inputs = [info("x", F32, ["b", 3, "h", "w"]), fed, info("other", F32, [1, 1, "p", "q"])]
    outputs = [info("e", F32, None), info("z", F32, None)]
    model = model_of(nodes, inputs, outputs, opset=19)
    result = atc.convert(model, tmp_path / "m.om", soc_version="Ascend310P3")
    assert {n["op"] for n in result.aicpu_nodes} == {"ResizeTaps"}
    oracle, session = onnxruntime.InferenceSession(model.SerializeToString()), InferSession(0, tmp_path / "m.om")
    for b, h, w, p, q in ((2, 9, 14, 5, 31), (1, 9, 14, 9, 14), (1, 2, 3, 1, 1)):
        x = np.random.default_rng(0).standard_normal((b, 3, h, w), np.float32)
        n = np.array(sizes) if sizes else np.array(scales, np.float32)
        feeds = {"x": x, "n": n, "other": np.zeros((1, 1, p, q), np.float32)}
        for found, wanted in zip(session.infer(feeds), oracle.run(None, feeds), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=5e-5)


def test_whole_numbers_take_their_nearest_at_run_time(tmp_path) -> None:
    nodes = [N("Resize", ["x", "", "", "n"], ["y"], "resize")]
    inputs, outputs = [info("x", TensorProto.INT32, ["a", 5]), info("n", I64, [2])], [info("y", TensorProto.INT32, None)]
    model = model_of(nodes, inputs, outputs, opset=19)
    atc.convert(model, tmp_path / "m.om")
    x = np.arange(15, dtype=np.int32).reshape(3, 5)
    for n in ((4, 7), (1, 1), (3, 5)):
        (found,) = InferSession(0, tmp_path / "m.om").infer({"x": x, "n": np.array(n)})
        (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x, "n": np.array(n)})
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_nothing_resized_is_nothing(mode: str, tmp_path) -> None:
    held = [array("scales", np.array([2, 1.5], np.float32))]
    nodes = [N("Resize", ["x", "", "scales"], ["y"], "resize", axes=[2, 3], mode=mode)]
    model = model_of(nodes, [info("x", F32, ["b", 3, 9, "w"])], [info("y", F32, None)], held, opset=19)
    atc.convert(model, tmp_path / "m.om")
    for width, made in ((0, 0), (5, 7)):
        (found,) = InferSession(0, tmp_path / "m.om").infer([np.ones((2, 3, 9, width), np.float32)])
        assert found.shape == (2, 3, 18, made)
    np.testing.assert_allclose(found, 1, rtol=1e-6)
