"""AveragePool that rounds up and counts its pads, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import atc
from acl_runtime import InferSession
from tests.atc.small_models import F32, N, info, model_of


@pytest.mark.parametrize("size", [4, 5, 7, 12, 57])
@pytest.mark.parametrize(("kernel", "stride", "pads"), [(3, 2, (1, 1)), (2, 2, (0, 1)), (4, 3, (2, 0)), (3, 3, (1, 2))])
def test_pads_that_count(kernel: int, stride: int, pads: tuple[int, int], size: int, tmp_path: Path) -> None:
    attrs = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pads[0]] * 2 + [pads[1]] * 2}
    nodes = [N("AveragePool", ["x"], ["y"], ceil_mode=1, count_include_pad=1, **attrs)]
    model = model_of(nodes, [info("x", F32, ["n", 3, size, 6])], [info("y", F32, None)], opset=19)
    atc.convert(model, tmp_path / "m.om")
    x = np.random.default_rng(0).standard_normal((2, 3, size, 6), np.float32)
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(InferSession(0, tmp_path / "m.om").infer([x])[0], wanted, rtol=1e-5, atol=1e-6)
