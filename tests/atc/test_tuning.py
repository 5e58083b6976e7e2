"""--tune: candidates, who wins, what is remembered, and a package that its file pins to the byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import atc
from acl_runtime import InferSession
from atc.tuning import search
from atc.tuning.candidates import neighbours
from atc.tuning.timing import Runnable
from codegen.kernels import tiling_of


def words(tiling: str) -> set[str]:
    return {str(t) for t in neighbours(tiling_of(tiling))}


def test_neighbours_differ_in_one_field() -> None:
    assert words("conv block=2x6 panel=16 split=1") == {
        "conv block=1x6 panel=16 split=1", "conv block=4x6 panel=16 split=1", "conv block=3x6 panel=16 split=1",
        "conv block=2x3 panel=16 split=1", "conv block=2x12 panel=16 split=1", "conv block=2x9 panel=16 split=1",
        "conv block=2x4 panel=16 split=1", "conv block=2x6 panel=8 split=1", "conv block=2x6 panel=32 split=1",
        "conv block=2x6 panel=24 split=1", "conv block=2x6 panel=16 split=2",
    }  # fmt: skip
    assert "winograd outputs=4x4 tiles=2x2 panel=16 split=1" in words("winograd outputs=4x4 tiles=1x2 panel=16 split=1")
    assert not any("outputs=2" in t for t in words("winograd outputs=4x4 tiles=1x2 panel=16 split=1"))
    assert any("pack=1" in t for t in words("matmul rows=8 columns=16"))


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENATC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(search, "_LEAST_SECONDS", 0.0)
    rng = np.random.default_rng(0)
    arrays = {"w": rng.normal(size=(16, 8, 3, 3)) / 9, "v": rng.normal(size=(12, 20)) / 4}
    weights = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv:0", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "v"], ["y"], name="fc"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8, 10, 12])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 16, 10, 20])
    path = tmp_path / "m.onnx"
    save(helper.make_model(helper.make_graph(nodes, "g", [x], [y], weights), ir_version=10), path)
    return path


def prefers(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    """Kernels of a tiling that holds these words win over those that do not; nothing else is faster."""
    liked: set[int] = set()
    made = search._runnable

    def remember(records, target):  # noqa: ANN001, ANN202
        runs = made(records, target)
        if any(wanted in r.tiling for r in records):
            liked.add(id(runs))
        return runs

    monkeypatch.setattr(search, "_runnable", remember)
    monkeypatch.setattr(search, "ratio", lambda one, other, pairs: 0.5 if {id(one), id(other)} & liked == {id(one)} else 2.0)
    monkeypatch.setattr(search, "neighbours", lambda tiling: iter(()))


FIXED = {"input_shape": "x:1,8,10,12"}


def test_the_file_pins_the_package(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefers(monkeypatch, "winograd outputs=4x4")
    tuned = atc.convert(model, tmp_path / "tuned.om", tune=True, **FIXED)
    text = (tmp_path / "tuned.tilings").read_text()
    assert "winograd outputs=4x4" in text and text.count("\n") == 1
    assert "1 nodes changed" in tuned.tuning
    atc.convert(model, tmp_path / "again.om", tiling=tmp_path / "tuned.tilings", **FIXED)
    assert (tmp_path / "tuned.om").read_bytes() == (tmp_path / "again.om").read_bytes()
    default = atc.convert(model, tmp_path / "default.om", **FIXED)
    assert default.tuning == "" and (tmp_path / "default.om").read_bytes() != (tmp_path / "again.om").read_bytes()

    x = np.random.default_rng(1).normal(size=(1, 8, 10, 12)).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
    np.testing.assert_allclose(InferSession(0, str(tmp_path / "tuned.om")).infer([x])[0], expected, 1e-4, 1e-5)

    # What was found is known for the next model that has the kernel, and nothing is tried any more.
    monkeypatch.setattr(search, "_play", lambda *_: pytest.fail("the cache knows the best"))
    again = atc.convert(model, tmp_path / "third.om", tune=True, **FIXED)
    assert again.tuning.startswith("2 kernels, 0 tilings tried, 2 known, 1 nodes")
    assert (tmp_path / "third.om").read_bytes() == (tmp_path / "tuned.om").read_bytes()


def test_what_loses_changes_nothing(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "ratio", lambda one, other, pairs: 0.5 if pairs < search._FINAL_PAIRS else 0.99)
    result = atc.convert(model, tmp_path / "m.om", tune=True, budget=1, high_precision=True, **FIXED)
    assert "0 nodes changed" in result.tuning and not (tmp_path / "m.tilings").read_text()


def test_a_given_tiling_stays(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "ratio", lambda one, other, pairs: 0.5)
    given = tmp_path / "given"
    given.write_text("fc: matmul rows=16 columns=8\n")
    atc.convert(model, tmp_path / "m.om", tune=True, budget=1, tiling=given, **FIXED)
    lines = (tmp_path / "m.tilings").read_text().splitlines()
    assert [line for line in lines if line.startswith("fc: ")] == [
        "fc: matmul rows=16 columns=8 panels_outside=1 pack=0 widen=0"
    ]


def test_open_sizes_are_left_alone(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Runnable, "turn", lambda self: pytest.fail("a size is not known"))
    result = atc.convert(model, tmp_path / "m.om", tune=True)
    assert result.tuning.startswith("0 kernels")
