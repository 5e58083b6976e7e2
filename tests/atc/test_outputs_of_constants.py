"""Outputs that constants alone decide, or that are inputs, constants and parts of each other."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import atc
from acl_runtime import InferSession
from tests.atc.small_models import F32, N, array, info, model_of

FIVE, FOUR = np.array(5, np.int32), np.array(4, np.int32)
TABLE = np.arange(6, dtype=np.float32).reshape(1, 6)
CODES = np.array([[-3, 0, 7]], np.int8)
NODES = {
    "compare": ("Greater", ["five", "four"], {}, np.array(True)),
    "compare with itself": ("Less", ["five", "five"], {}, np.array(False)),
    "arithmetic": ("Sub", ["five", "four"], {}, np.array(1, np.int32)),
    "choice": ("Where", ["flag", "five", "four"], {}, FOUR),
    "cast": ("Cast", ["five"], {"to": F32}, np.array(5, np.float32)),
    "same bytes": ("Transpose", ["table"], {"perm": [1, 0]}, TABLE.T),
    "copy": ("Identity", ["table"], {}, TABLE),
    "codes": ("DequantizeLinear", ["codes", "scale"], {}, CODES.astype(np.float32) / 4),
}


@pytest.mark.parametrize("names", [*([n] for n in NODES), list(NODES)], ids=lambda n: n[0] if len(n) == 1 else "all")
def test_constants_alone(names: list[str], tmp_path) -> None:
    nodes = [N(NODES[n][0], NODES[n][1], [f"y{i}"], f"node{i}", **NODES[n][2]) for i, n in enumerate(names)]
    constants = [
        array("five", FIVE), array("four", FOUR), array("flag", np.array(False)), array("table", TABLE),
        array("codes", CODES), array("scale", np.array(0.25, np.float32)),
    ]  # fmt: skip
    expected = [NODES[n][3] for n in names]
    outputs = [info(f"y{i}", helper.np_dtype_to_tensor_dtype(e.dtype), e.shape) for i, e in enumerate(expected)]
    proto = model_of(
        [N("Neg", ["x"], ["z"]), *nodes], [info("x", F32, ["n"])], [info("z", F32, ["n"]), *outputs], constants
    )
    onnx.save(proto, tmp_path / "m.onnx")
    atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    for n in (1, 7):
        x = np.arange(n, dtype=np.float32)
        negated, *found = InferSession(0, tmp_path / "m.om").infer([x])
        np.testing.assert_array_equal(negated, -x)
        for name, array_, wanted in zip(names, found, expected, strict=True):
            assert array_.dtype == wanted.dtype, name
            np.testing.assert_array_equal(array_, wanted, err_msg=name)


def test_outputs_that_are_other_tensors(tmp_path) -> None:
    """An input, a constant, a value used inside, and one tensor under two names."""
    nodes = [
        N("Mul", ["x", "k"], ["inner"]), N("Identity", ["x"], ["same"]), N("Identity", ["inner"], ["again"]),
        N("Exp", ["inner"], ["end"]), N("Reshape", ["inner", "flat"], ["row"]), N("Identity", ["same"], ["third"]),
    ]  # fmt: skip
    constants = [array("k", np.array([2, 3, 4], np.float32)), array("flat", np.array([-1], np.int64))]
    outputs = [info(n, F32, ["n", 3]) for n in ("end", "inner", "same", "again", "third")]
    outputs += [info("row", F32, ["m"]), info("k", F32, [3]), info("x", F32, ["n", 3])]
    onnx.save(model_of(nodes, [info("x", F32, ["n", 3])], outputs, constants), tmp_path / "m.onnx")
    atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    for n in (1, 5):
        x = np.linspace(-1, 1, 3 * n, dtype=np.float32).reshape(n, 3)
        inner = x * np.array([2, 3, 4], np.float32)
        expected = [np.exp(inner), inner, x, inner, x, inner.reshape(-1), np.array([2, 3, 4], np.float32), x]
        for wire, found, wanted in zip(outputs, InferSession(0, tmp_path / "m.om").infer([x]), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6, err_msg=wire.name)
