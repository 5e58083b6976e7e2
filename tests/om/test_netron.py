"""Netron opens our packages and shows the fused graph node for node. Needs node and `fetch_netron.py`."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from acl_runtime.om import ConstDesc, FusedGraph, NodeDesc, TensorDesc, outer, strip, write_package

_HERE = Path(__file__).parent


def _load(name: str):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, _HERE / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


sample = _load("sample")
NETRON = _load("fetch_netron").folder()

pytestmark = pytest.mark.skipif(
    not shutil.which("node") or not (NETRON / "om.js").exists(), reason="needs node and tests/om/fetch_netron.py"
)


def shown(path: Path) -> list[dict]:
    command = ["node", str(_HERE / "netron_nodes.mjs"), str(NETRON), str(path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["format"] == "DaVinci OM" and len(found["graphs"]) == 1
    return found["graphs"][0]["nodes"]


def kernels(nodes: list[dict]) -> list[dict]:
    return [n for n in nodes if n["type"] not in ("Data", "NetOutput", "Const")]


@pytest.mark.parametrize("limit", [outer.LIMIT_32BIT, 0])
def test_nodes_edges_and_weights_are_shown(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(outer, "LIMIT_32BIT", limit)
    path = tmp_path / "sample.om"
    write_package(path, sample.graph(), sample.sections(), sample.HEADER)
    nodes = shown(path)
    assert len(kernels(nodes)) == len(sample.graph().nodes)
    assert [n["type"] for n in nodes if n not in kernels(nodes)] == ["Data", "NetOutput"]
    matmul, region = kernels(nodes)
    assert (matmul["name"], matmul["type"]) == ("x", "MatMulV2")
    assert [v["type"] for v in matmul["inputs"]] == ["float32[-1,3]", "float32[3,4]"]
    weight = matmul["inputs"][1]["data"]
    assert [float(v) for v in weight.strip("[]").replace("[", "").replace("]", "").split(",")] == pytest.approx(
        sample.WEIGHT.ravel().tolist()
    )
    assert matmul["attributes"]["_datadump_original_op_names"] == "Gemm_0, Relu_1"
    assert matmul["attributes"]["note"] == "a\\nb \\xe9"
    assert matmul["attributes"]["pads"] == [0, -1, 2**40]
    assert region["inputs"][0]["name"] == matmul["outputs"][0]["name"]
    assert [v["type"] for v in region["outputs"]] == ["float16[-1,4]", "int64"]
    assert region["inputs"][1]["data"] == "[0,1,2,3]"


def test_stripped_package_is_shown_alike(tmp_path):
    path, stripped = tmp_path / "sample.om", tmp_path / "stripped.om"
    write_package(path, sample.graph(), sample.sections(), sample.HEADER)
    strip(path, stripped)
    assert shown(stripped) == shown(path)


def test_large_graph_of_all_dtypes(tmp_path):
    dtypes = "f32 f16 bf16 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool str c64 c128 i4 u4 f8e4m3fn handle".split()
    inputs = tuple(TensorDesc(f"in_{d}", d, (0, -1, 7)) for d in dtypes)
    types = ("ConcatD", "Relu", "Conv2D", "Constant", "Concat", "If")  # some have schemas in the viewer's tables
    nodes, previous = [], inputs
    for i in range(300):
        out = tuple(TensorDesc(f"t{i}_{d}", d, (0, -1, 7)) for d in dtypes)
        nodes.append(NodeDesc(f"Node/名 {i}", types[i % 6], tuple(t.name for t in previous) + ("", "c"), out, {}))
        previous = out
    graph = FusedGraph("g", inputs, previous, tuple(nodes), (ConstDesc("c", "f32", (0,), 0, 0),))
    write_package(tmp_path / "g.om", graph, {}, {})
    found = kernels(shown(tmp_path / "g.om"))
    assert [n["name"] for n in found] == [n.name for n in nodes]
    assert all(len(n["outputs"]) == len(dtypes) for n in found)
