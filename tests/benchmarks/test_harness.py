"""The benchmark judges outputs rightly, survives a contender that fails, and pairs its figures. Nothing here is timed."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from atc.benchmarking import contenders, rounds, worker
from atc.benchmarking.messages import load_arrays, save_arrays
from atc.benchmarking.verify import EXACT, REDUCED, difference
from benchmarks import __main__ as command
from benchmarks import probe_models
from models.builders import genai_decoder

ROW = np.linspace(-1, 1, 1000, dtype=np.float32)


@pytest.mark.parametrize(
    "actual,problem",
    [
        (ROW, ""),
        (ROW + 1e-6, ""),
        (ROW * 1.01, "relative L2"),
        (-ROW, "cosine"),
        (ROW[:-1], "shape"),
        (np.where(ROW > 0.9, np.nan, ROW), "NaN"),
        (None, "missing"),
    ],
)
def test_floats_are_judged_by_direction_and_size(actual, problem):
    found = difference("y", ROW, actual, EXACT).problem
    assert problem in found
    assert bool(found) == bool(problem)


def test_wider_limits_for_fewer_bits():
    assert difference("y", ROW, ROW * 1.01, REDUCED).problem == ""


def test_halves_may_differ_by_some_of_their_own_roundings():
    halves = ROW.astype(np.float16)
    assert difference("y", halves, (ROW * 1.002).astype(np.float16), EXACT).problem == ""
    assert difference("y", halves, (ROW * 1.01).astype(np.float16), EXACT).problem
    assert difference("y", ROW, ROW * np.float32(1.002), EXACT).problem


def test_infinities_must_stand_at_the_same_place():
    with_infinity = ROW.copy()
    with_infinity[3] = -np.inf
    assert difference("y", with_infinity, with_infinity.copy(), EXACT).problem == ""
    assert difference("y", with_infinity, ROW, EXACT).problem
    assert difference("y", ROW, with_infinity, EXACT).problem


def test_integers_must_be_equal():
    ids = np.arange(5)
    assert difference("ids", ids, ids.copy(), EXACT).problem == ""
    assert difference("ids", ids, ids + (ids == 4), EXACT).problem


def test_arrays_keep_names_that_are_no_file_names(tmp_path):
    arrays = {"/a:0": ROW, "b/../c": np.array(3)}
    save_arrays(tmp_path / "arrays.npz", arrays)
    loaded = load_arrays(tmp_path / "arrays.npz")
    assert list(loaded) == list(arrays)
    assert all(
        np.array_equal(loaded[name], arrays[name]) and loaded[name].shape == arrays[name].shape for name in arrays
    )


def test_the_reference_beside_itself(tmp_path):
    out = tmp_path / "figures.json"
    arguments = ["--probes", "gemm_512", "--contenders", "onnxruntime,onnxruntime", "--rounds", "2", "--slice", "1"]
    assert command.main([*arguments, "--json", str(out)]) == 0
    (case,) = json.loads(out.read_text())["cases"]
    assert list(case["contenders"]) == ["onnxruntime", "onnxruntime#2"]
    for record in case["contenders"].values():
        assert record["state"] == "ok"
        assert len(record["slices_ms"]) == 2
        assert record["outputs"][0]["relative_l2"] == 0
        assert record["options"]["graph_optimization_level"] == "ORT_ENABLE_ALL"
    assert case["contenders"]["onnxruntime"]["ratio_median"] == 1
    assert len(case["machine_gflops_by_round"]) == 2


class Scripted:
    """A worker whose answers are given here."""

    def __init__(self, contender: str, threads: int) -> None:
        self.contender = contender

    def ask(self, message):
        if message["do"] == "time":
            return {"seconds": [{"onnxruntime": 2.0, "ours": 1.0}.get(self.contender, 4.0)]}
        if self.contender == "openvino":
            return {"state": "not available", "reason": "No module named 'openvino'"}
        wrong = self.contender == "ours-dynamic"
        save_arrays(message["outputs"], {"y": -ROW if wrong else ROW})
        return {"load_seconds": 0.0, "options": {}}

    def __exit__(self, *_):
        pass


def test_wrong_or_absent_contenders_get_no_figure(monkeypatch, tmp_path):
    monkeypatch.setattr(rounds, "Worker", Scripted)
    case = probe_models.make("gemm_512", tmp_path)
    found = rounds.measure(case, ["ours", "ours-dynamic", "openvino"], rounds.Settings(rounds=3))["contenders"]
    assert {name: record["state"] for name, record in found.items()} == {
        "onnxruntime": "ok",
        "ours": "ok",
        "ours-dynamic": "wrong",
        "openvino": "not available",
    }
    assert found["ours"]["ratio_median"] == 0.5
    assert "ratio_median" not in found["ours-dynamic"]
    assert "cosine" in found["ours-dynamic"]["reason"]


def test_a_decoder_with_caches_of_its_own_checks_itself(monkeypatch, tmp_path):
    """It says the next tokens behind a prompt, begins it again, and is not held against what the case's caches give."""
    model = tmp_path / "decoder.onnx"
    onnx.save(genai_decoder.build(), model)
    inputs = {"input_ids": np.zeros((1, 1), np.int64), "attention_mask": np.ones((1, 8), np.int64)}
    ours = contenders.CONTENDERS["ours-generating"]
    assert not ours.compares
    run = ours.load(model, inputs, 1).run
    assert [run() for _ in range(40)] == [{}] * 40
    monkeypatch.setattr("acl_runtime.generation.Decoder.step", lambda self, seq, tokens: (np.zeros((1, 256)), seq))
    with pytest.raises(ValueError, match="behind the prompt"):
        ours.load(model, inputs, 1)


def test_a_contender_that_raises_answers_with_the_reason(monkeypatch, tmp_path):
    class Broken:
        def load(self, model, inputs, threads):
            raise ValueError("no such thing")

    monkeypatch.setitem(contenders.CONTENDERS, "ours", Broken())
    asked = iter([{"do": "load", "model": "m", "inputs": "", "outputs": ""}, {"do": "time"}])
    answers = []
    monkeypatch.setattr(worker, "receive", lambda pipe: next(asked, None))
    monkeypatch.setattr(worker, "send", lambda pipe, message: answers.append(message))
    worker.serve(None, None, "ours", 1)
    assert answers[0] == {"state": "failed", "reason": "ValueError: no such thing"}
    assert answers[1]["state"] == "failed"


@pytest.mark.parametrize("name", probe_models.names())
def test_probes_are_valid_and_count_their_operations(name, tmp_path):
    case = probe_models.make(name, tmp_path)
    model = onnx.shape_inference.infer_shapes(onnx.load(case.path), strict_mode=True)
    onnx.checker.check_model(model)
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in [*model.graph.value_info, *model.graph.input, *model.graph.output]
    }
    shapes |= {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    flops = 0
    for node in model.graph.node:
        if node.op_type in ("MatMul", "Conv"):
            # Multiply-adds: every output element takes one for each element of its row or filter.
            depth = shapes[node.input[0]][-1:] if node.op_type == "MatMul" else shapes[node.input[1]][1:]
            flops += 2 * np.prod(shapes[node.output[0]]) * np.prod(depth)
    assert case.flops == flops
    assert {key: list(array.shape) for key, array in case.inputs.items()} == {
        value.name: shapes[value.name] for value in model.graph.input
    }
