"""Loop and Scan with any number of steps: what one without a step collects has the dtype and shape of the body."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from small_models import BOOL, F32, I64, N, info, model_of

from acl_runtime import InferSession
from atc.conversion import convert


def loop() -> onnx.ModelProto:
    body = helper.make_graph(
        [N("Identity", ["go"], ["on"]), N("Add", ["s", "x"], ["t"]), N("Cast", ["t"], ["row"], to=I64)], "body",
        [info("i", I64, []), info("go", BOOL, []), info("s", F32, [3])],
        [info("on", BOOL, []), info("t", F32, [3]), info("row", I64, [3])],
    )  # fmt: skip
    nodes = [N("Loop", ["n", "", "x"], ["last", "rows"], body=body)]
    return model_of(nodes, [info("n", I64, []), info("x", F32, [3])], [info("last", F32, [3]), info("rows", I64, None)])


def scan() -> onnx.ModelProto:
    body = helper.make_graph(
        [N("Add", ["s", "r"], ["t"]), N("Cast", ["t"], ["row"], to=TensorProto.DOUBLE)], "body",
        [info("s", F32, ["m"]), info("r", F32, ["m"])],
        [info("t", F32, ["m"]), info("row", TensorProto.DOUBLE, ["m"])],
    )  # fmt: skip
    nodes = [N("Scan", ["x", "xs"], ["last", "rows"], body=body, num_scan_inputs=1, scan_output_axes=[1])]
    outputs = [info("last", F32, ["m"]), info("rows", TensorProto.DOUBLE, ["m", "n"])]
    return model_of(nodes, [info("x", F32, ["m"]), info("xs", F32, ["n", "m"])], outputs)


@pytest.mark.parametrize(("build", "steps"), [(loop, 0), (loop, 1), (loop, 4), (scan, 1), (scan, 4)])
def test_any_number_of_steps(build: object, steps: int, tmp_path: Path) -> None:
    model = build()  # type: ignore[operator]
    x = np.array([1, -2, 3], np.float32)
    rows = np.arange(3 * steps, dtype=np.float32).reshape(steps, 3)
    inputs = {"n": np.array(steps), "x": x} if build is loop else {"x": x, "xs": rows}
    onnx.save(model, tmp_path / "m.onnx")
    convert(tmp_path / "m.onnx", tmp_path / "m.om")
    ours = InferSession(0, tmp_path / "m.om").infer(inputs)
    theirs = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_a_scan_without_steps(tmp_path: Path) -> None:
    """onnxruntime refuses it; the state passes through, what would be stacked has the extents that ONNX states."""
    onnx.save(scan(), tmp_path / "m.onnx")
    x = np.array([1, -2, 3], np.float32)
    last, rows = InferSession(0, tmp_path / "m.onnx").infer({"x": x, "xs": np.zeros((0, 3), np.float32)})
    np.testing.assert_array_equal(last, x)
    assert rows.shape == (3, 0) and rows.dtype == np.float64
