"""What packages promise: the same bytes whatever the circumstances, life after strip, and what viewers count."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import small_models

from acl_runtime.om import open_package

ROOT = Path(__file__).parents[2]
OM_TESTS = ROOT / "tests" / "om"


def in_fresh_process(arguments: list[str], cwd: Path, cache: Path, cores: int = 2, hash_seed: str = "0") -> str:
    """Standard output of `atc` in a process of its own with an object cache of its own and one worker a core."""
    environment = {"OPENATC_CACHE": str(cache), "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
    variables = {**os.environ, **environment}
    start = f"import os; os.cpu_count = lambda: {cores}; from atc.command_line import main; main()"
    command = [sys.executable, "-c", start, *arguments]
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_conversion_gives_the_same_bytes_everywhere(tmp_path):
    """Hash seed, working directory, model path and number of compile workers differ; both caches are empty."""
    made = []
    for number, folder in enumerate(("one", "deep/er/two")):
        place = tmp_path / folder
        place.mkdir(parents=True)
        model = small_models.save("bert", place).rename(place / f"model{number}.onnx")
        arguments = ["convert", str(model) if number else model.name, "-o", str(place / "out.om"), "--json"]
        cwd = ROOT if number else place
        found = in_fresh_process(arguments, cwd, place / "cache", cores=3 - 2 * number, hash_seed=str(number + 1))
        assert json.loads(found)["cached_kernels"] == 0
        made.append((place / "out.om").read_bytes())
    assert made[0] == made[1]


def test_stripped_package_runs_with_an_empty_cache(atc, tmp_path):
    model = small_models.save("demo", tmp_path)
    package, stripped = tmp_path / "demo.om", tmp_path / "stripped.om"
    image = small_models.random(1, 3, 64, 64, seed=9)
    np.save(tmp_path / "image.npy", image)
    assert atc("convert", model, "-q")[0] == 0
    code, out, _ = atc("strip", package, "-o", stripped, "--json")
    assert code == 0 and json.loads(out)["package_bytes"] == stripped.stat().st_size < package.stat().st_size
    feed = ["--input", f"image={tmp_path / 'image.npy'}", "--output-dir", str(tmp_path / "out"), "--json"]
    ran = json.loads(in_fresh_process(["run", str(stripped), *feed], tmp_path, tmp_path / "empty"))
    assert ran["compiled_at_run"] > 0
    again = json.loads(in_fresh_process(["run", str(stripped), *feed], tmp_path, tmp_path / "empty"))
    assert again["compiled_at_run"] == 0
    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    [expected] = session.run(None, {"image": image})
    np.testing.assert_allclose(np.load(tmp_path / "out" / "probabilities.npy"), expected, rtol=1e-4, atol=1e-6)
    before = stripped.read_bytes()
    assert atc("strip", stripped)[0] == 0 and stripped.read_bytes() == before


def test_cache_clear_empties_the_cache(atc, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENATC_CACHE", str(tmp_path / "cache"))
    model = small_models.save("mlp", tmp_path)
    first = json.loads(atc("convert", model, "--json")[1])
    second = json.loads(atc("convert", model, "--json")[1])
    assert (first["cached_kernels"], second["compiled_kernels"]) == (0, 0)
    assert json.loads(atc("cache", "clear", "--json")[1])["removed"] >= first["compiled_kernels"]
    assert json.loads(atc("convert", model, "--json")[1])["compiled_kernels"] == first["compiled_kernels"]


def _netron() -> Path:
    spec = importlib.util.spec_from_file_location("fetch_netron", OM_TESTS / "fetch_netron.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.folder()


@pytest.mark.skipif(
    not shutil.which("node") or not (_netron() / "om.js").exists(), reason="needs node and tests/om/fetch_netron.py"
)
@pytest.mark.parametrize("name", ["demo", "branches", "moe_sparse", "integers", "with_function"])
def test_netron_shows_a_node_for_each_kernel_and_host_task(atc, tmp_path, name):
    model, package = small_models.save(name, tmp_path), tmp_path / "m.om"
    made = json.loads(atc("convert", model, "-o", package, "--json")[1])
    command = ["node", str(OM_TESTS / "netron_nodes.mjs"), str(_netron()), str(package)]
    shown = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
    [graph] = shown["graphs"]
    tasks = [n for n in graph["nodes"] if n["type"] not in ("Data", "NetOutput", "Const")]
    assert len(tasks) == made["kernels"] + len(made["aicpu_nodes"])


def test_viewers_see_ascend_types_and_the_nodes_of_the_model(atc, tmp_path):
    """Nodes have the types of Ascend's tools, and say which nodes of the model they compute."""
    path = small_models.save("mlp", tmp_path)
    names = {n.name or None for n in onnx.load(str(path)).graph.node}
    assert atc(f"--model={path}", "--framework=5", f"--output={tmp_path / 'o'}", "--soc_version=Ascend310P3", "--log=null")[0] == 0
    graph = open_package(tmp_path / "o.om").graph()
    assert graph.attrs["soc_version"] == "Ascend310P3"
    assert graph.attrs["atc_cmdline"] == "atc --framework=5 --soc_version=Ascend310P3"
    assert any(node.type == "MatMulV2" and node.attrs["family"] == "matmul" for node in graph.nodes)
    found = {name for node in graph.nodes for name in node.source_names}
    assert found and (None in names or found <= names)
