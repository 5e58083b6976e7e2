"""What `atc` shows of fusion, and norms that used to run on the AI CPU, in kernels, against onnxruntime."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from small_models import F32, N, array, info, model_of, random

from acl_runtime import InferSession
from atc import convert

MICROSOFT = "com.microsoft"
GROUP = [array("gamma", random(6, seed=1)), array("beta", random(6, seed=2))]
EXPORTED = [
    array("gamma", random(6, 1, 1, seed=1)), array("beta", random(6, 1, 1, seed=2)),
    array("ones", np.ones(3, np.float32)), array("zeros", np.zeros(3, np.float32)), array("split", np.array([0, 3, -1])),
]  # fmt: skip
TOKENS = [array(n, random(17, seed=i)) for i, n in enumerate(("gamma", "beta", "bias"))]
MODELS = {
    "group norm": (21, [N("GroupNormalization", ["x", "gamma", "beta"], ["y"], num_groups=3)], GROUP, (2, 6, 5, 7)),
    "exported group norm and SiLU": (
        18,
        [
            N("Shape", ["x"], ["shape"]), N("Reshape", ["x", "split"], ["r"]),
            N("InstanceNormalization", ["r", "ones", "zeros"], ["i"]), N("Reshape", ["i", "shape"], ["s"]),
            N("Mul", ["s", "gamma"], ["m"]), N("Add", ["m", "beta"], ["a"]),
            N("Sigmoid", ["a"], ["g"]), N("Mul", ["a", "g"], ["y"]),
        ],
        EXPORTED,
        (3, 6, 1, 13),
    ),
    "skip norm": (
        18,
        [
            N("SkipLayerNormalization", ["x", "x", "gamma", "beta", "bias"], ["n", "", "", "t"], domain=MICROSOFT),
            N("BiasGelu", ["n", "bias"], ["g"], domain=MICROSOFT),
            N("Add", ["g", "t"], ["y"]),
        ],
        TOKENS,
        (2, 3, 17),
    ),
    "lp norm": (18, [N("LpNormalization", ["x"], ["y"], axis=1, p=1)], [], (2, 3, 17)),
}  # fmt: skip


def written(name: str, folder: Path) -> Path:
    opset, nodes, constants, shape = MODELS[name]
    dims = ["batch", *shape[1:]]
    model = model_of(nodes, [info("x", F32, dims)], [info("y", F32, dims)], constants, opset, domains=[MICROSOFT])
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


@pytest.mark.parametrize("name", MODELS)
def test_norms_run_in_kernels(tmp_path: Path, name: str) -> None:
    model, package = written(name, tmp_path), tmp_path / "m.om"
    made = convert(model, package)
    assert made.aicpu_nodes == []
    assert made.kernels == (1 if "group" in name else 2)
    x = random(*MODELS[name][3], seed=7) * 2 + 1
    expected = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_allclose(InferSession(0, package).infer([x])[0], expected[0], rtol=2e-5, atol=2e-5)


def test_notes_are_shown_by_convert_and_inspect(atc, tmp_path: Path) -> None:
    nodes = [
        N("MatMul", ["x", "w"], ["p"], "first"), N("Relu", ["p"], ["r"], "act"), N("MatMul", ["r", "w"], ["y"], "second"),
        N("Div", ["p", "root2"], ["d"], "divide"), N("Erf", ["d"], ["e"], "erf"), N("Add", ["e", "one"], ["a"], "plus"), N("Mul", ["a", "p"], ["h"], "gate"),
        N("Mul", ["h", "three"], ["z"], "nearly"),
    ]  # fmt: skip
    constants = [array("w", random(8, 8)), array("one", np.float32([1])), array("three", np.float32([3]))]
    constants.append(array("root2", np.sqrt(np.float32([2]))))
    outputs = [info("y", F32, [4, 8]), info("z", F32, [4, 8])]
    onnx.save(model_of(nodes, [info("x", F32, [4, 8])], outputs, constants), tmp_path / "m.onnx")
    code, out, _ = atc("convert", tmp_path / "m.onnx", "-o", tmp_path / "m.om", "--json")
    notes = json.loads(out)["fusion_notes"]
    assert code == 0
    assert {"node": "nearly", "step": "erf-gelu", "reason": "the factor is 3, not 0.5"} in notes
    assert {"node": "act", "step": "fuse-regions", "reason": "before MatMul: matmul takes no such prologue"} in notes
    assert json.loads(atc("inspect", tmp_path / "m.om", "--json")[1])["fusion_notes"] == notes
    for words in (("inspect", tmp_path / "m.om", "--fusion"), ("convert", tmp_path / "m.onnx", "-v")):
        assert "the factor is 3, not 0.5" in atc(*words)[1]
    assert "the factor is 3" not in atc("convert", tmp_path / "m.onnx")[1]
