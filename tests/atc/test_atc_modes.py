"""ATC's modes and the lines that it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
import small_models
from onnx import TensorProto, helper

from acl_runtime.om import open_package
from acl_runtime.om.writer import PARTS
from atc.atc_command import FAILURE, START, SUCCESS


@pytest.fixture
def mlp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return small_models.save("mlp", tmp_path)


def words(mlp, *more):
    return [f"--model={mlp}", "--framework=5", "--output=out", "--soc_version=Ascend910B2", "--log=error", *more]


def test_the_first_and_the_last_lines(atc, mlp):
    code, out, err = atc(*words(mlp))
    assert code == 0 and not err
    assert out.splitlines() == [START, "...", SUCCESS]
    code, out, err = atc(*words(mlp, "--input_shape=nothing:1"))
    assert code == 3 and out.splitlines() == [START, "...", FAILURE] and err.startswith("E10016")
    code, out, err = atc(*words(mlp, "--framework=0"))
    assert code == 2 and out.splitlines()[-1] == FAILURE and err.startswith("E10007")
    assert atc("--help")[0] == 0
    code, out, _ = atc("--model=x", "--help")
    assert code == 0 and out.splitlines()[0] == START


def test_what_a_package_holds(atc, mlp):
    assert atc(*words(mlp))[0] == 0
    code, out, _ = atc("--mode=6", "--om=out.om")
    assert code == 0 and "soc_version[Ascend910B2]" in out and "weight_size[" in out
    code, out, _ = atc(*words(mlp, "--display_model_info=1"))
    assert code == 0 and "Display Model Info start" in out


def test_a_package_and_a_model_as_json(atc, mlp, tmp_path):
    assert atc(*words(mlp))[0] == 0
    for source, spelled in (("out.om", ["--json=shown.json"]), (str(mlp), ["--json", "shown.json"])):
        code, out, err = atc("--mode=1", f"--om={source}", *spelled)
        assert code == 0 and SUCCESS in out, err
        (graph,) = json.loads((tmp_path / "shown.json").read_text())["graph"]
        assert graph["op"] and graph["input"] and graph["output"]
        (tmp_path / "shown.json").unlink()


def test_only_a_check(atc, mlp, tmp_path):
    assert atc("--mode=3", f"--model={mlp}", "--framework=5")[0] == 0
    assert json.loads((tmp_path / "check_result.json").read_text())["result"] == "success"
    assert not (tmp_path / "out.om").exists()
    node = helper.make_node("Frobnicate", ["x"], ["y"], name="fr")
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, [2])] for n in "xy"]
    onnx.save(helper.make_model(helper.make_graph([node], "g", *ends)), tmp_path / "u.onnx")
    code, _, err = atc("--mode=3", "--model=u.onnx", "--framework=5")
    assert code == 4 and "E16002" in err and "Frobnicate" in err and "of node fr" in err
    assert json.loads((tmp_path / "check_result.json").read_text())["fail"] == 1


@pytest.mark.parametrize(
    ("given", "code", "flag"),
    [
        (["--mode=7"], "E10055", "--mode"),
        (["--mode=30"], "E10055", "--mode"),
        (["--mode=2"], "E10001", "--mode"),
        (["--mode=6"], "E10054", "--om"),
        (["--mode=1", "--om=out.om"], "E10054", "--json"),
        (["--log"], "E10001", "--log"),
        (["--log=loud"], "E10010", "--log"),
        (["--display_model_info=2"], "E10006", "--display_model_info"),
        (["--output=" + "x/" * 2100 + "m"], "E10021", "--output"),
        (["--output=folder/"], "E10022", "--output"),
    ],
)
def test_flags_of_the_modes_that_are_wrong(atc, mlp, given, code, flag):
    full = given if given[0].startswith("--mode=6") or given[0].startswith("--mode=1") else [*words(mlp), *given]
    ended, out, err = atc(*full)
    assert ended == 2 and FAILURE in out and code in err and flag in err, (out, err)


def test_the_python_name_of_the_command(tmp_path, mlp):
    ran = subprocess.run(
        [sys.executable, "-m", "ge.pyatc", *words(mlp)], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )  # fmt: skip
    assert ran.returncode == 0 and ran.stdout.splitlines() == [START, "...", SUCCESS], ran.stderr
    assert (tmp_path / "out.om").exists()


PROTO = """# a dump
name: 'graph' version: 1
op { name: "conv" type: "Conv2D" attr { key: "pad" value { i: -3 } } attr { key: "x" value < f: 1.5 b: true > } }
op { name: "a\\"b" "c" input: ["x:0", "y:0"]; list { } }
"""


def test_a_dumped_graph_as_json(atc, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ge_proto_1.txt").write_text(PROTO)
    code, out, err = atc("--mode=5", "--om=ge_proto_1.txt", "--json=shown.json")
    assert code == 0 and out.splitlines()[-1] == SUCCESS, err
    assert json.loads((tmp_path / "shown.json").read_text()) == {
        "name": "graph", "version": 1,
        "op": [
            {"name": "conv", "type": "Conv2D",
             "attr": [{"key": "pad", "value": {"i": -3}}, {"key": "x", "value": {"f": 1.5, "b": True}}]},
            {"name": 'a"bc', "input": ["x:0", "y:0"], "list": {}},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a {\n b: 1", "line 2: it ends within a message"),
        ("a: 1\n} ", "line 2: } stands where"),
        ("a\n b", "line 2: behind a stands b"),
        ('a: "x\n"', "line 1: a string does not end"),
        ("a {" * 300, "more than 200 deep"),
    ],
)
def test_a_file_that_is_no_dump(atc, tmp_path, monkeypatch, text, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.txt").write_text(text)
    code, _, err = atc("--mode=5", "--om=d.txt", "--json=shown.json")
    assert code == 2 and "E13018" in err and said in err
    assert atc("--mode=5", "--om=none.txt", "--json=shown.json")[2].startswith("E10410")


def test_what_fused_stands_beside_the_package(atc, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    weights = [small_models.array("w", small_models.random(4, 3, 3, 3))]
    weights += [small_models.array(name, abs(small_models.random(4))) for name in ("scale", "bias", "mean", "var")]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("BatchNormalization", ["a", "scale", "bias", "mean", "var"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    ends = [small_models.info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [1, 3, 8, 8]), ("y", [1, 4, 6, 6]))]
    onnx.save(small_models.model_of(nodes, ends[:1], ends[1:], weights), tmp_path / "cnn.onnx")
    code, _, err = atc(*words(tmp_path / "cnn.onnx", "--output=deep/out"))
    assert code == 0, err
    (found,) = json.loads((tmp_path / "deep" / "fusion_result.json").read_text()).values()
    once = {"effect_times": "1", "match_times": "1"}
    assert found == {"graph_fusion": {"ConvBatchnormFusionPass": once}, "ub_fusion": {"conv": {**once, "repository_hit_times": "0"}}}
    code, _, err = atc(*words(tmp_path / "cnn.onnx", "--output=deep/out", "--optimization_switch=ConvBatchnormFusionPass:off"))
    assert code == 0, err
    (found,) = json.loads((tmp_path / "deep" / "fusion_result.json").read_text()).values()
    assert not found["graph_fusion"]


def test_the_package_says_its_sizes_where_ascends_tools_look(atc, mlp, tmp_path):
    assert atc(*words(mlp))[0] == 0
    attrs = open_package(tmp_path / "out.om").graph().attrs
    assert attrs["soc_version"] == "Ascend910B2" and attrs["memory_size"] >= 0 == attrs["event_num"] and "--framework=5" in attrs["atc_cmdline"]
    sizes = dict(zip(PARTS, attrs["om_info_list"], strict=True))
    parts = {s.name: s.size for s in open_package(tmp_path / "out.om").sections()}
    assert sizes["modeldef"] == parts["model_def"] and sizes["weight_data"] == parts["weights"] == attrs["weight_size"]
    assert sizes["tbe_kernels"] == sum(size for name, size in parts.items() if name.endswith("objects"))
    assert f"tbe_kernels_size[{sizes['tbe_kernels']} B]" in atc("--mode=6", "--om=out.om")[1]
