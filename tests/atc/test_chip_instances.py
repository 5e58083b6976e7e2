"""A conversion makes one instance for each chip: own passes, own programs, own verdicts, all in the package."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
import small_models
from onnx import TensorProto

from acl_runtime.om import open_package
from acl_runtime.package_layout import chip_instance, section
from acl_runtime.plan_format import read_plan
from acl_runtime.stored_constants import ConstantTable
from codegen.targets import target
from codegen.tile.text import parse_program
from codegen.tile.verifier import verify

CHIPS = ("Ascend910B2", "Ascend310P3")
QUICK = ("demo", "branches", "integers", "quantised", "llama", "sequence")
SLOW = [n for n in small_models.BUILDERS if n not in QUICK]


def _converted(atc, model, *words):
    code, out, err = atc("convert", model, "--soc_version", ",".join(CHIPS), "--json", *words)
    assert code == 0, err
    return json.loads(out)


def _section(package, chip, part):
    return json.loads(bytes(package.section(section(chip_instance(chip), part))))


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(n, marks=pytest.mark.long) for n in SLOW)])
def test_no_chip_leaves_more_to_the_ai_cpu_than_the_host(atc, tmp_path, name):
    found = _converted(atc, small_models.save(name, tmp_path))
    assert list(found["chips"]) == list(CHIPS) and found["soc_version"] == ",".join(CHIPS)
    package = open_package(tmp_path / f"{name}.om")
    assert package.header["chips"] == sorted(CHIPS)
    for chip, verdict in found["chips"].items():
        assert len(verdict["aicpu_nodes"]) <= len(found["aicpu_nodes"]), verdict["aicpu_nodes"]
        assert all(n["why"] and n["op"] for n in verdict["aicpu_nodes"])
        plan = read_plan(_section(package, chip, "plan"), _section(package, chip, "programs"))
        assert sum(t.program is not None and t.family != "guard" for s in plan.segments for t in s.tasks) == verdict["kernels"]
        for text in plan.programs:
            verify(parse_program(text), target(chip))
        report = _section(package, chip, "report")
        assert len(report["layers"]) == verdict["kernels"]
        for layer in report["layers"]:
            assert all(0 < used <= report["scopes"][scope] for scope, used in layer["memory"].items())


def _product(dtype, n, path):
    info = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("MatMul", ["a", "b"], ["y"], "mm")
    ends = [info("a", dtype, n), info("b", dtype, n)], [info("y", dtype, n)]
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", *ends), opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9
    )
    onnx.save(model, path)
    return path


def test_estimates_are_those_of_the_chip_and_not_of_the_host(atc, tmp_path):
    found = _converted(atc, _product(TensorProto.FLOAT16, [2048, 2048], tmp_path / "m.onnx"))
    peak = {"Ascend910B2": 353.9, "Ascend310P3": 69.5}  # Tera operations a second
    for chip, verdict in found["chips"].items():
        at_peak = 2 * 2048**3 / peak[chip] / 1e9
        assert at_peak <= verdict["estimate_ms"] < 1.5 * at_peak
    assert found["estimate_ms"] == found["chips"]["Ascend910B2"]["estimate_ms"]
    symbolic = _converted(atc, _product(TensorProto.FLOAT16, ["n", "n"], tmp_path / "s.onnx"))
    assert all(verdict["estimate_ms"] is None for verdict in symbolic["chips"].values())


def test_products_are_made_legal_and_the_report_says_so(atc, tmp_path):
    found = _converted(atc, _product(TensorProto.FLOAT, [64, 64], tmp_path / "m.onnx"))
    assert found["chips"]["Ascend910B2"]["changes"] == {}
    [(reason, times)] = found["chips"]["Ascend310P3"]["changes"].items()
    assert "no f32" in reason and times == 1


def test_a_mode_that_the_chip_cannot_mean_is_refused(atc, tmp_path):
    model = _product(TensorProto.FLOAT, [64, 64], tmp_path / "m.onnx")
    words = ("--soc_version", "Ascend910B2,Ascend310P3", "--precision_mode", "allow_mix_precision_bf16", "--json")
    code, out, _ = atc("convert", model, *words)
    error = json.loads(out)["error"]
    assert code == 2 and error["code"] == "E10058" and "Ascend310P3" in error["message"]
    assert not (tmp_path / "m.om").exists()
    code, _, err = atc("convert", model, "--soc_version", "Ascend910B2", "--precision_mode", "allow_mix_precision_bf16")
    assert code == 0, err


def test_weights_of_a_chip_are_made_of_the_hosts_and_cost_no_bytes(atc, tmp_path):
    model = small_models.save("mlp", tmp_path)
    _converted(atc, model)
    package = open_package(tmp_path / "mlp.om")
    table = json.loads(bytes(package.section("constants")))
    halves = [name for name, row in table.items() if row["dtype"] == "f16"]
    assert len(halves) == 1 and table[halves[0]]["shape"] == [8, 4]
    first = (tmp_path / "mlp.om").read_bytes()
    _converted(atc, model)
    assert (tmp_path / "mlp.om").read_bytes() == first
    assert table[halves[0]]["steps"] == [["cast", "f16"]] and "offset" not in table[halves[0]]
    made = ConstantTable(package, table).canonical(halves[0])
    np.testing.assert_array_equal(made, small_models.random(8, 4).astype(np.float16))


def test_the_text_of_a_graph_stands_once(atc, tmp_path):
    """The graph of the chip with f32 products is the host's; the other one's has casts."""
    _converted(atc, _product(TensorProto.FLOAT, [64, 64], tmp_path / "m.onnx"))
    package = open_package(tmp_path / "m.om")
    own = [chip for chip in CHIPS if section(chip_instance(chip), "graph") in package]
    assert own == ["Ascend310P3"]
    texts = [bytes(package.section(name)).decode() for name in ("graph", section(chip_instance(own[0]), "graph"))]
    assert ["f16" in text for text in texts] == [False, True]
