"""`atc run --on CHIP` and `atc inspect --soc CHIP`: the chip's own programs run and are shown."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import small_models
from onnx import helper
from onnx.reference import ReferenceEvaluator

from acl_runtime.om import open_package, write_package
from acl_runtime.package_layout import chip_instance, section

CHIPS = ("Ascend910B2", "Ascend310P3")
ROUNDING = {"Ascend910B2": 2e-5, "Ascend310P3": 5e-3}
"""Relative L2 error: products of the second chip have operands of 11 bits."""
DIMS = {"batch": 2, "sequence": 7, "n": 3}


def lstm() -> onnx.ModelProto:
    """x f32 [5, 2, 8] → y f32 [5, 1, 2, 16], h f32 [1, 2, 16]."""
    info = small_models.info
    nodes = [helper.make_node("LSTM", ["x", "w", "r", "b"], ["y", "h"], "lstm", hidden_size=16)]
    constants = [
        small_models.array("w", 0.3 * small_models.random(1, 64, 8)),
        small_models.array("r", 0.3 * small_models.random(1, 64, 16, seed=1)),
        small_models.array("b", 0.3 * small_models.random(1, 128, seed=2)),
    ]
    outputs = [info("y", small_models.F32, [5, 1, 2, 16]), info("h", small_models.F32, [1, 2, 16])]
    return small_models.model_of(nodes, [info("x", small_models.F32, [5, 2, 8])], outputs, constants)


MODELS = {**small_models.BUILDERS, "lstm": lstm}
QUICK = ("demo", "branches", "integers", "quantised", "llama", "lstm")
SLOW = [n for n in MODELS if n not in (*QUICK, "sequence")]


def _wanted(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """onnxruntime's results; those of onnx.reference for bytes, whose sums saturate in onnxruntime on some processors."""
    names = [o.name for o in model.graph.output]
    if any(n.op_type == "MatMulInteger" for n in model.graph.node):
        return dict(zip(names, ReferenceEvaluator(model).run(None, feeds), strict=True))
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(None, feeds), strict=True))


def _feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    feeds, draw = {}, np.random.default_rng(0)
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [d.dim_value or DIMS.get(d.dim_param, 4) for d in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        floats = np.issubdtype(dtype, np.floating)
        made = draw.standard_normal(shape) if floats else draw.integers(0, 2, shape)
        feeds[value.name] = np.asarray(made).astype(dtype)
    return feeds


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(n, marks=pytest.mark.long) for n in SLOW)])
def test_a_model_runs_on_every_chip(atc, tmp_path, name):
    proto = MODELS[name]()
    model = tmp_path / "m.onnx"
    onnx.save(proto, str(model))
    code, _, err = atc("convert", model, "--soc_version", ",".join(CHIPS))
    assert code == 0, err
    feeds, words = _feeds(proto), []
    for key, array in feeds.items():
        np.save(tmp_path / f"in_{len(words)}.npy", array)
        words += ["--input", f"{key}={tmp_path / f'in_{len(words)}.npy'}"]
    wanted = _wanted(proto, feeds)
    for chip in CHIPS:
        folder = tmp_path / chip
        code, out, err = atc("run", tmp_path / "m.om", "--on", chip, *words, "--output-dir", folder, "--json")
        assert code == 0, err
        found = json.loads(out)
        assert found["on"] == chip and set(found["outputs"]) == set(wanted)
        for key, want in wanted.items():
            got = np.load(found["outputs"][key]["file"])
            assert got.shape == want.shape and got.dtype == want.dtype
            if want.dtype.kind != "f":
                np.testing.assert_array_equal(got, want)
                continue
            got, want = got.astype(np.float64), want.astype(np.float64)
            limit = 1e-2 if name == "half_cast" else ROUNDING[chip]
            assert np.linalg.norm(got - want) <= limit * np.linalg.norm(want), (chip, key)


def test_what_runs_are_the_chips_own_programs(atc, tmp_path):
    """A program that is changed changes the result; one that is not sound for the chip is refused."""
    model = small_models.save("mlp", tmp_path)
    assert atc("convert", model, "--soc_version", ",".join(CHIPS))[0] == 0
    package = open_package(tmp_path / "mlp.om")
    name = section(chip_instance("Ascend910B2"), "programs")

    def changed(old: str, new: str):
        sections = {s.name: package.section(s.name) for s in package.sections() if s.name not in ("header", "model_def")}
        text = bytes(sections[name]).decode()
        assert old in text
        sections[name] = text.replace(old, new).encode()
        path = tmp_path / "changed.om"
        write_package(path, package.graph(), sections, package.header)
        return path

    np.save(tmp_path / "x.npy", np.full((1, 8), -1, np.float32))
    words = ("--input", f"x={tmp_path / 'x.npy'}", "--output-dir", tmp_path / "o", "--json")
    path = changed("TRELU", "TNEG")
    code, out, err = atc("run", path, "--on", "Ascend910B2", *words)
    assert code == 0, err
    got = np.load(json.loads(out)["outputs"]["y"]["file"])
    assert (got != 0).all()  # a Relu would have left zeros
    assert atc("run", path, "--on", "Ascend310P3", *words)[0] == 0
    code, out, _ = atc("run", changed(" L0A", " UB"), "--on", "Ascend910B2", *words)
    assert code == 3 and json.loads(out)["error"]["code"]


def test_a_chip_that_is_not_in_the_package_is_told(atc, tmp_path):
    model = small_models.save("mlp", tmp_path)
    assert atc("convert", model, "--soc_version", "Ascend910B2")[0] == 0
    for words in (("run", tmp_path / "mlp.om", "--on", "310P3"), ("inspect", tmp_path / "mlp.om", "--soc", "310P3")):
        code, out, _ = atc(*words, "--json")
        error = json.loads(out)["error"]
        assert code == 3 and "Ascend910B2" in error["message"] and "--soc_version=Ascend310P3" in error["remedy"]
    code, out, _ = atc("run", tmp_path / "mlp.om", "--on", "Ascend999", "--json")
    assert code == 2 and json.loads(out)["error"]["where"]["flag"] == "--on"


def test_inspect_shows_kernels_memory_and_the_ai_cpu(atc, tmp_path):
    model = small_models.save("integers", tmp_path)
    assert atc("convert", model, "--soc_version", ",".join(CHIPS))[0] == 0
    code, out, err = atc("inspect", tmp_path / "integers.om", "--soc", "ascend910b2", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["chip"] == "Ascend910B2" and found["scopes"]["UB"] == 192 * 1024
    assert len(found["layers"]) == found["kernels"]
    assert [n["op"] for n in found["aicpu_nodes"]] == ["NonZero"] and found["aicpu_nodes"][0]["why"]
    code, out, _ = atc("inspect", tmp_path / "integers.om", "--soc", "Ascend910B2")
    assert code == 0 and "NonZero" in out and "196608" in out
