"""`atc diff` pairs kernels by what they compute; `atc bench` tells ratios that its turns support."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import small_models

from atc.benchmarking.statistics_of_turns import paired, spread
from atc.conversion import convert
from atc.diffing import Kernel, grouped
from atc.options import Options

N, info, array = onnx.helper.make_node, small_models.info, small_models.array


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("diff") / "m.onnx"
    w = np.random.default_rng(5).standard_normal((8, 8)).astype(np.float32)
    nodes = [N("MatMul", ["x", "w"], ["m"], "product"), N("Softmax", ["m"], ["s"], "softmax"),
             N("Erf", ["s"], ["e"], "erf"), N("Exp", ["e"], ["y"], "exp")]  # fmt: skip
    onnx.save(small_models.model_of(nodes, [info("x", 1, [4, 8])], [info("y", 1, [4, 8])], [array("w", w)]), path)
    return path


def test_kernels_are_paired_by_the_nodes_that_they_share() -> None:
    def kernel(name: str, *nodes: str) -> Kernel:
        return Kernel(name, "region", name, nodes, 1.0)

    a = [kernel("k1", "conv", "relu"), kernel("k2", "add"), kernel("k3", "exp"), kernel("k4", "old")]
    b = [kernel("k1", "conv", "relu"), kernel("k5", "add", "exp"), kernel("k6", "new")]
    found = {g.nodes: g for g in grouped(a, b)}
    assert {nodes: g.change for nodes, g in found.items()} == {
        ("conv", "relu"): "same", ("add", "exp"): "fusion", ("old",): "only a", ("new",): "only b"
    }  # fmt: skip
    both = found["add", "exp"]
    assert (both.ms(both.a), both.ms(both.b)) == (2.0, 1.0)


def test_packages_and_profiles(atc: Any, model: Path, tmp_path: Path) -> None:
    """What a mode and a pass change is told; a package does not differ from itself."""
    files = {"a": Options(), "b": Options(precision_mode="force_fp16"), "c": Options()}
    for name, options in files.items():
        convert(model, tmp_path / f"{name}.om", options)
    code, out, err = atc("diff", tmp_path / "a.om", tmp_path / "b.om", "--runs", 2, "--json")
    found = json.loads(out)
    assert code == 0, err
    assert found["dtypes"]["m"] == ["f32", "f16"] and found["memory"]["precision_mode"][1] == "force_fp16"
    assert found["memory"]["weights_bytes"][1] < found["memory"]["weights_bytes"][0]
    assert found["time"]["a_ms"] > 0 and found["time"]["b_ms"] > 0
    assert any("product" in g["source_nodes"] and g["change"] == "kernel" for g in found["fusions"])
    same = json.loads(atc("diff", tmp_path / "a.om", tmp_path / "c.om", "--runs", 0, "--json")[1])
    assert not same["fusions"] and not same["dtypes"] and same["time"]["a_ms"] is None
    for name in "ab":
        (tmp_path / f"{name}.json").write_text(atc("profile", tmp_path / f"{name}.om", "--runs", 1, "--json")[1])
    code, out, _ = atc("diff", tmp_path / "a.json", tmp_path / "b.json", "--json")
    assert code == 0 and json.loads(out)["kernels"]["a"] == found["kernels"]["a"]
    assert atc("diff", tmp_path / "a.json", tmp_path / "b.om")[0] == 2
    assert atc("diff", tmp_path / "a.om", tmp_path / "b.om", "--runs", 0)[0] == 0


def test_confidence_of_paired_turns() -> None:
    """With 6 turns all of them enclose the median with 97 %; with 15 the 4th and the 12th do with 96 %."""
    assert paired([1.0] * 5, [1.0] * 5).word == "too few turns to say"
    six = paired([2, 4, 6, 8, 10, 12], [2] * 6)
    assert (six.low, six.high) == (1.0, 6.0)
    fifteen = paired(list(range(1, 16)), [10] * 15)
    assert (fifteen.low, fifteen.high, fifteen.ratio) == (0.4, 1.2, 0.8)
    assert fifteen.word == "no difference that counts"
    assert paired([1] * 9, [2] * 9).word == "faster" and paired([3] * 9, [2] * 9).word == "slower"
    assert spread([1.0, 1.0]).std == 0 and spread([1.0, 2.0]).is_unstable


def test_bench_refuses_what_it_cannot_do(atc: Any, model: Path) -> None:
    assert atc("bench", model, "--against", "tensorrt")[0] == 2
    assert atc("bench", model, "--clock", "cpu", "--threads", 2)[0] == 2


@pytest.mark.long
def test_bench(atc: Any, model: Path) -> None:
    code, out, err = atc("bench", model, "--rounds", 6, "--slice", 1, "--json")
    found = json.loads(out)["contenders"]
    assert code == 0, err
    assert found.keys() == {"ours", "onnxruntime"} and all(r["state"] == "ok" for r in found.values())
    assert found["ours"]["low"] <= found["ours"]["ratio"] <= found["ours"]["high"] and found["ours"]["turns"] == 6
