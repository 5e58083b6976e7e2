"""GridSample and RoiAlign natively, against onnxruntime: modes, edges, one pixel, points far away, run-time sizes."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import atc
from acl_runtime import InferSession
from tensor_types.errors import OpenAtcError
from tests.atc.small_models import F32, I64, N, info, model_of

PADDINGS = ("zeros", "border", "reflection")
rng = np.random.default_rng(0)


def sessions(model, folder: Path) -> tuple[InferSession, onnxruntime.InferenceSession]:
    result = atc.convert(model, folder / "m.om", soc_version="Ascend910B2")
    assert result.aicpu_nodes == [] == result.chips["Ascend910B2"]["aicpu_nodes"]
    return InferSession(0, folder / "m.om"), onnxruntime.InferenceSession(model.SerializeToString())


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_samples_of_a_plane(mode: str, tmp_path: Path) -> None:
    forms = [(p, c) for p, c in product(PADDINGS, (0, 1)) if (mode, p) != ("cubic", "reflection")]
    nodes = [
        N("GridSample", ["x", "g"], [f"y{k}"], mode=mode, padding_mode=padding, align_corners=corners)
        for k, (padding, corners) in enumerate(forms)
    ]
    inputs = [info("x", F32, ["n", "c", "h", "w"]), info("g", F32, ["n", "p", "q", 2])]
    model = model_of(nodes, inputs, [info(f"y{k}", F32, None) for k in range(len(forms))], opset=20)
    ours, oracle = sessions(model, tmp_path)
    for n, c, h, w, p, q in ((2, 3, 5, 7, 4, 6), (1, 1, 1, 1, 3, 3), (3, 33, 2, 9, 1, 70)):
        x = rng.standard_normal((n, c, h, w), np.float32)
        grid = (rng.random((n, p, q, 2), np.float32) * 3.6 - 1.8).astype(np.float32)
        grid[0, 0, 0] = -1, 1
        for form, a, b in zip(forms, ours.infer([x, grid]), oracle.run(None, {"x": x, "g": grid}), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=f"{form} {h} {w}")


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_samples_of_a_space(mode: str, tmp_path: Path) -> None:
    nodes = [N("GridSample", ["x", "g"], ["y"], mode=mode)]
    inputs = [info("x", F32, [2, 3, 4, 1, 6]), info("g", F32, [2, 3, 2, 5, 3])]
    ours, oracle = sessions(model_of(nodes, inputs, [info("y", F32, None)], opset=20), tmp_path)
    x = rng.standard_normal((2, 3, 4, 1, 6), np.float32)
    grid = (rng.random((2, 3, 2, 5, 3)) * 2.4 - 1.2).astype(np.float32)
    np.testing.assert_allclose(ours.infer([x, grid])[0], oracle.run(None, {"x": x, "g": grid})[0], rtol=1e-5, atol=1e-5)


def test_points_of_no_place(tmp_path: Path) -> None:
    """What lies outside counts as 0, whatever the pixels of the edge are; NaN is no fault."""
    nodes = [N("GridSample", ["x", "g"], ["y"])]
    model = model_of(nodes, [info("x", F32, [1, 1, 2, 2]), info("g", F32, [1, 1, 4, 2])], [info("y", F32, None)], opset=20)
    ours, _ = sessions(model, tmp_path)
    x = np.full((1, 1, 2, 2), np.inf, np.float32)
    grid = np.array([[[[9, 9], [np.inf, 0], [-1e30, 3], [np.nan, 0]]]], np.float32)
    np.testing.assert_array_equal(ours.infer([x, grid])[0].reshape(-1)[[0, 2]], [0, 0])


@pytest.mark.parametrize("half", [True, False])
def test_regions(half: bool, tmp_path: Path) -> None:
    transform = "half_pixel" if half else "output_half_pixel"
    nodes = [N("RoiAlign", ["x", "r", "b"], ["y"], output_height=3, output_width=2, sampling_ratio=2, spatial_scale=0.5,
               coordinate_transformation_mode=transform)]  # fmt: skip
    inputs = [info("x", F32, ["n", 5, "h", "w"]), info("r", F32, ["k", 4]), info("b", I64, ["k"])]
    ours, oracle = sessions(model_of(nodes, inputs, [info("y", F32, None)], opset=16), tmp_path)
    for n, h, w, k in ((2, 9, 14, 11), (1, 1, 1, 1), (2, 5, 5, 0), (3, 20, 4, 40)):
        x = rng.standard_normal((n, 5, h, w), np.float32)
        corners = np.sort(rng.random((k, 2, 2)) * [2.2 * w, 2.2 * h], 1).astype(np.float32).reshape(k, 4) - 1
        feeds = {"x": x, "r": corners, "b": rng.integers(0, n, k)}
        np.testing.assert_allclose(ours.infer(feeds)[0], oracle.run(None, feeds)[0], rtol=1e-4, atol=3e-5)
    feeds["b"] = np.full(k, n)
    with pytest.raises(OpenAtcError, match="out of range"):
        ours.infer(feeds)
