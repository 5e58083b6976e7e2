"""Pools at the edge, against onnxruntime: pads that count, a window that is larger than the map."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import atc
from acl_runtime import InferSession
from tests.atc.small_models import F32, I64, N, info, model_of


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


@pytest.mark.parametrize(("kernel", "stride", "size"), [(2, 2, (1, 4)), (5, 3, (3, 4)), (4, 4, (1, 1))])
@pytest.mark.parametrize("ceil", [0, 1])
def test_a_window_larger_than_the_map(kernel: int, stride: int, size: tuple[int, int], ceil: int, tmp_path: Path) -> None:
    """Less than a stride short of a window there is one position, with the maximum of what there is."""
    attrs = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "ceil_mode": ceil}
    nodes = [N("Tanh", ["x"], ["t"]), N("MaxPool", ["t"], ["y"], **attrs), N("MaxPool", ["x"], ["z", "i"], **attrs)]
    outputs = [info("y", F32, None), info("z", F32, None), info("i", I64, None)]
    model = model_of(nodes, [info("x", F32, ["n", 2, *size])], outputs)
    atc.convert(model, tmp_path / "m.om")
    x = np.random.default_rng(0).standard_normal((3, 2, *size), np.float32)
    oracle = onnxruntime.InferenceSession(model.SerializeToString())
    for a, b in zip(InferSession(0, tmp_path / "m.om").infer([x]), oracle.run(None, {"x": x}), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-6)
