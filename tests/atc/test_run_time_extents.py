"""Extents that only the run decides: they may be 1, or shorter than what is padded."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import atc
from acl_runtime import InferSession
from tests.atc.small_models import BOOL, F32, N, array, info, model_of


def test_a_late_extent_of_one_broadcasts(tmp_path) -> None:
    """x f32 [n], keep bool [n], other f32 [w] → other + the kept ones, and the larger of the two."""
    nodes = [
        N("Compress", ["x", "keep"], ["kept"], "take", axis=0),
        N("Add", ["other", "kept"], ["sum"], "add"),
        N("Greater", ["kept", "other"], ["flag"], "greater"),
        N("Where", ["flag", "kept", "other"], ["most"], "choose"),
    ]
    inputs = [info("x", F32, ["n"]), info("keep", BOOL, ["n"]), info("other", F32, ["w"])]
    onnx.save(model_of(nodes, inputs, [info("sum", F32, ["m"]), info("most", F32, ["m"])]), tmp_path / "m.onnx")
    atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    session = InferSession(0, tmp_path / "m.om")
    rng = np.random.default_rng(0)
    for n, kept, w in ((5, 1, 3), (5, 3, 3), (5, 3, 1), (2, 1, 1), (4, 0, 1)):
        x, other = rng.standard_normal(n, np.float32), rng.standard_normal(w, np.float32)
        found = session.infer([x, np.arange(n) < kept, other])
        for ours, wanted in zip(found, (x[:kept] + other, np.maximum(x[:kept], other)), strict=True):
            np.testing.assert_array_equal(ours, wanted, err_msg=f"{kept} against {w}")


@pytest.mark.parametrize("mode", ["wrap", "reflect", "edge"])
def test_pads_of_a_run_time_extent(mode: str, tmp_path) -> None:
    """Pads of 2 and 1 on an axis of any extent; numpy is the reference."""
    nodes = [N("Pad", ["x", "pads"], ["y"], "pad", mode=mode)]
    pads = [array("pads", np.array([2, 0, 1, 0], np.int64))]
    proto = model_of(nodes, [info("x", F32, ["n", 3])], [info("y", F32, ["m", 3])], pads, opset=19)
    onnx.save(proto, tmp_path / "m.onnx")
    atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    for n in (1, 2, 3, 5) if mode != "reflect" else (3, 5):
        x = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
        (found,) = InferSession(0, tmp_path / "m.om").infer([x])
        np.testing.assert_array_equal(found, np.pad(x, [(2, 1), (0, 0)], mode))


def test_pads_that_the_run_decides_may_crop(tmp_path) -> None:
    """x f32 [5, 3] with n - 4 rows put in front and n - 6 behind: both signs of both."""
    nodes = [
        N("Shape", ["z"], ["n"], "length"),
        N("Sub", ["n", "cut"], ["before_after"], "pads"),
        N("Split", ["before_after"], ["before", "after"], "parts", num_outputs=2),
        N("Concat", ["before", "zero", "after", "zero"], ["all"], "join", axis=0),
        N("Pad", ["x", "all"], ["y"], "pad"),
    ]
    held = [array("cut", np.array([4, 6], np.int64)), array("zero", np.array([0], np.int64))]
    inputs = [info("x", F32, [5, 3]), info("z", F32, ["n"])]
    onnx.save(model_of(nodes, inputs, [info("y", F32, ["m", 3])], held, opset=19), tmp_path / "m.onnx")
    result = atc.convert(tmp_path / "m.onnx", tmp_path / "m.om", soc_version="Ascend910B2")
    session = InferSession(0, tmp_path / "m.om")
    x = np.arange(1, 16, dtype=np.float32).reshape(5, 3)
    for n in (3, 4, 5, 6, 9):
        wide = np.pad(x, [(max(n - 4, 0), max(n - 6, 0)), (0, 0)])
        wanted = wide[max(4 - n, 0) : len(wide) - max(6 - n, 0)]
        np.testing.assert_array_equal(session.infer([x, np.zeros(n, np.float32)])[0], wanted, err_msg=str(n))
    assert not [row for row in result.aicpu_nodes if row["op"] == "Pad"]
