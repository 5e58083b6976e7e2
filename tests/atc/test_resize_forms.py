"""Resize of every mode natively where sizes are numbers, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import atc
from acl_runtime import InferSession
from tests.atc.small_models import F32, N, array, info, model_of

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
    """Antialiasing over many elements, and a size that the run decides, are the AI CPU's."""
    held = [array("scales", np.array([0.11, 0.2], np.float32))]
    nodes = [N("Resize", ["x", "", "scales"], ["y"], "resize", axes=[2, 3], mode="linear", antialias=1)]
    model = model_of(nodes, [info("x", F32, [1, 2, 40, 30])], [info("y", F32, None)], held, opset=19)
    assert [n["op"] for n in atc.convert(model, tmp_path / "m.om").aicpu_nodes] == ["Resize"]
    x = np.random.default_rng(0).standard_normal((1, 2, 40, 30), np.float32)
    (found,) = InferSession(0, tmp_path / "m.om").infer([x])
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
