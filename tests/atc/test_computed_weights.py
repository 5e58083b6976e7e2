"""Convolutions whose weights the run makes, natively, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import atc
from acl_runtime import InferSession
from tests.atc.small_models import F32, N, info, model_of

FORMS = {
    "plain": ((3, 9, 8), (4, 3, 3, 3), {}),
    "one tap": ((3, 5, 7), (2, 3, 1, 1), {"strides": [2, 3]}),
    "pads, strides, dilations": ((4, 11, 13), (6, 4, 3, 2), {"pads": [1, 0, 2, 3], "strides": [2, 1], "dilations": [2, 3]}),
    "groups": ((6, 7, 7), (4, 3, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    "depthwise": ((5, 6, 9), (5, 1, 3, 3), {"group": 5, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "same, lower": ((2, 6, 5), (3, 2, 2, 4), {"auto_pad": "SAME_LOWER"}),
    "a line": ((3, 70), (33, 3, 5), {"auto_pad": "VALID"}),
    "a space": ((2, 4, 5, 3), (3, 2, 2, 3, 1), {"pads": [1, 1, 0, 0, 1, 0]}),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_weight_that_the_run_makes(name: str, tmp_path: Path) -> None:
    space, kernel, attrs = FORMS[name]
    nodes = [N("Tanh", ["k"], ["w"]), N("Conv", ["x", "w", "b"], ["c"], **attrs), N("Relu", ["c"], ["y"]),
             N("Conv", ["x", "w"], ["z"], **attrs)]  # fmt: skip
    inputs = [info("x", F32, ["n", *space]), info("k", F32, list(kernel)), info("b", F32, [kernel[0]])]
    model = model_of(nodes, inputs, [info("y", F32, None), info("z", F32, None)])
    result = atc.convert(model, tmp_path / "m.om", soc_version="Ascend910B2")
    assert result.aicpu_nodes == [] == result.chips["Ascend910B2"]["aicpu_nodes"]
    ours, oracle = InferSession(0, tmp_path / "m.om"), onnxruntime.InferenceSession(model.SerializeToString())
    draw = np.random.default_rng(0)
    for n in (1, 3, 0):
        feeds = {"x": draw.standard_normal((n, *space), np.float32), "k": draw.standard_normal(kernel, np.float32),
                 "b": draw.standard_normal(kernel[0], np.float32)}  # fmt: skip
        for found, wanted in zip(ours.infer(feeds), oracle.run(None, feeds), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5)
