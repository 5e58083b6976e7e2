"""Oracles that are inexact: float64 of the model's own nodes acquits a kernel, and only one that agrees with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import small_models
from onnx import TensorProto, helper

from atc.compare_model import compare_arrays
from atc.comparing.exact import exact_value
from atc.comparing.limits import Limits
from atc.judging import acquits

N, info = helper.make_node, small_models.info
F32 = TensorProto.FLOAT
LIMIT = Limits().of("f32")
assert LIMIT is not None


@pytest.mark.parametrize("shift", [16, 25])  # some are rounded to zero, all are
def test_a_sigmoid_that_onnxruntime_rounds_to_zero(shift: int, tmp_path: Path) -> None:
    nodes = [N("Sub", ["x", "c"], ["h"]), N("Sigmoid", ["h"], ["y"])]
    c = small_models.array("c", np.float32(shift))
    onnx.save(small_models.model_of(nodes, [info("x", F32, ["n"])], [info("y", F32, ["n"])], [c]), tmp_path / "m.onnx")
    found = compare_arrays(tmp_path / "m.onnx", None, {"x": np.linspace(-3, 3, 64, dtype=np.float32)})
    [output] = found.outputs
    assert output.verdict == "pass" and "onnxruntime is inexact here" in output.note
    assert output.found is not None and 0 < (output.found.rel_l2 or 0) < 1e-5


def test_float64_goes_through_constants_casts_and_bodies() -> None:
    third = helper.make_attribute("value", small_models.array("", np.array([1 / 3], np.float32)))
    constant = N("Constant", [], ["k"])
    constant.attribute.append(third)
    branches = [helper.make_graph([N(op, ["s", "k"], ["r"])], op, [], [info("r", F32, None)]) for op in ("Mul", "Div")]
    nodes = [
        N("Add", ["h", "w"], ["s"]), constant, N("If", ["on"], ["v"], then_branch=branches[0], else_branch=branches[1]),
        N("Cast", ["v"], ["y"], to=F32),
    ]  # fmt: skip
    w = np.array([1e-9, 1, 3], np.float32)
    model = small_models.model_of(nodes, [info("h", F32, [3]), info("on", TensorProto.BOOL, [])],
                                  [info("y", F32, [3])], [small_models.array("w", w)])  # fmt: skip
    h = np.array([1, 2, 3], np.float32)
    found = exact_value(model, "y", {"h": h, "on": np.array(False), "y": h})
    np.testing.assert_array_equal(found, (h.astype(np.float64) + w.astype(np.float64)) / np.float64(np.float32(1 / 3)))
    assert exact_value(model, "y", {"h": h}) is None, "nobody knows which branch runs"
    assert exact_value(model, "absent", {"h": h}) is None


def test_who_is_acquitted() -> None:
    exact = np.array([1.0, 2.0, 3.0])
    off, near = exact * 1.01, exact * (1 + 1e-6)
    assert acquits(exact, near, off, LIMIT)
    assert not acquits(exact, off, near, LIMIT), "the kernel is wrong"
    assert not acquits(exact, off, off * 1.02, LIMIT), "both are"
    assert not acquits(exact, near, near, LIMIT), "both are right: then something else is the matter"
    assert not acquits(exact[:2], near, off, LIMIT), "another shape"
