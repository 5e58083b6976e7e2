"""What `atc compare` says besides numbers: non-finite elements, each tensor once, models that onnxruntime refuses."""

from __future__ import annotations

import io
import json

import numpy as np
import onnx
import pytest
import small_models
from onnx import helper
from rich.console import Console

from atc.compare_model import compare_arrays
from atc.comparing.rows import Comparison, Row, difference
from atc.tables import table

N, info = helper.make_node, small_models.info


def test_counts_of_what_is_not_finite():
    golden = np.array([1.0, -70000.0, 3.0, np.inf, np.nan, 2.0], np.float32)
    ours = np.array([1.0, -np.inf, np.nan, np.inf, np.nan, 2.0], np.float32)
    found = difference(ours, golden)
    assert (found.nonfinite, found.mismatched) == (2, 2)
    for part in ("6 elements", "ours has 2 NaN and 2 Inf", "onnxruntime 1 NaN and 1 Inf", "2 agree", "7e+04"):
        assert part in found.note, found.note
    assert difference(golden[:3], golden[:3]).note == ""
    assert "onnxruntime none" in difference(ours[:3], golden[:3]).note


@pytest.mark.parametrize("dtype", [np.complex64, np.int32, np.bool_])
def test_dtypes_without_a_note(dtype):
    assert difference(np.ones(3, dtype), np.ones(3, dtype)).note == ""


def test_complex_numbers_are_counted():
    golden = np.array([1 + 1j, 2], np.complex64)
    assert "ours has 1 Inf" in difference(np.array([complex(np.inf, 1), 2], np.complex64), golden).note


def test_overflow_in_f16_is_explained(atc, tmp_path):
    weight = np.eye(4, dtype=np.float32) * 60000
    nodes = [N("MatMul", ["x", "w"], ["h"]), N("MatMul", ["h", "w"], ["y"])]
    model = small_models.model_of(
        nodes, [info("x", 1, ["n", 4])], [info("y", 1, ["n", 4])], [small_models.array("w", weight)]
    )
    onnx.save(model, tmp_path / "m.onnx")
    assert atc("convert", tmp_path / "m.onnx", "--precision_mode", "force_fp16", "-q")[0] == 0
    np.save(tmp_path / "x.npy", np.full((1, 4), 2, np.float32))
    feed = f"x={tmp_path / 'x.npy'}"
    code, out, _ = atc("compare", tmp_path / "m.onnx", tmp_path / "m.om", "--input", feed, "--json")
    notes = {row["source"]: row["note"] for row in json.loads(out)["layers"]}
    assert code == 6 and "of 4 elements ours has 4 Inf, onnxruntime none" in notes["h"] and "1.2e+05" in notes["h"]


def test_each_tensor_is_shown_once():
    rows = [Row("h", "fused", "", "f32", None, "pass"), Row("y", "compared", "", "f32", None, "fail")]
    outputs = [Row("y", "compared", "", "f32", None, "fail")]
    found = Comparison(rows, outputs)
    assert [r.source for r in found.shown()] == ["y"]
    assert [r.source for r in found.shown(passing=True)] == ["h", "y"]


@pytest.mark.parametrize("width", [30, 60, 80, 120])
def test_a_narrow_screen_breaks_no_number(width):
    rows = [["/encoder/layer.0/attention/self/MatMul_output_0", "compared", "1.0000000", "2.00e-07", "a long note " * 5]]
    shown = io.StringIO()
    Console(file=shown, width=width, soft_wrap=True).print(table("", ["tensor", "state", "cosine", "rel L2", ""], rows))
    words = shown.getvalue().split()
    assert {"tensor", "state", "cosine", "compared", "1.0000000", "2.00e-07"} <= set(words)


def outer_value_returned():
    returned = helper.make_graph([], "t", [], [info("h", 1, [2, 2])])
    computed = helper.make_graph([N("Neg", ["h"], ["e"])], "e", [], [info("e", 1, [2, 2])])
    nodes = [N("Abs", ["x"], ["h"]), N("If", ["c"], ["y"], then_branch=returned, else_branch=computed)]
    return small_models.model_of(nodes, [info("x", 1, [2, 2]), info("c", 9, [])], [info("y", 1, [2, 2])])


def repeated_names():
    nodes = [N("Neg", ["x"], ["a"], name="op"), N("Abs", ["a"], ["b"], name="op"), N("Exp", ["b"], ["c"], name="")]
    nodes.append(N("Mul", ["c", "b"], ["y"], name="op"))
    return small_models.model_of(nodes, [info("x", 1, [2, 2])], [info("y", 1, [2, 2])])


@pytest.mark.parametrize(("build", "feeds"), [
    (outer_value_returned, {"c": np.array(True)}),
    (outer_value_returned, {"c": np.array(False)}),
    (repeated_names, {}),
])  # fmt: skip
def test_valid_models_that_onnxruntime_refuses(tmp_path, build, feeds):
    onnx.save(build(), tmp_path / "m.onnx")
    x = np.array([[-1, 2], [-3, 4]], np.float32)
    found = compare_arrays(tmp_path / "m.onnx", None, {"x": x, **feeds})
    assert found.verdict == "pass"
    assert [(r.source, r.found is not None) for r in found.outputs] == [("y", True)]
