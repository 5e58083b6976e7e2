"""The main road on small models: convert, run, compare, with onnxruntime as the judge of every figure."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import small_models

from acl_runtime import InferSession
from atc import convert
from atc.exact_products import make_products_exact
from tests.graph_opt.families import OWN

SHAPES = {"bert": "input_ids:2,9;attention_mask:2,9;token_type_ids:2,9", "llama": "input_ids:1,7;position_ids:1,7"}


def reference(model: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    exact = onnx.load(model)
    make_products_exact(exact)
    return ort.InferenceSession(exact.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)


def test_an_output_without_elements(tmp_path):
    cut = small_models.helper.make_node("Slice", ["x", "at", "at", "axis"], ["empty"])
    kept = small_models.helper.make_node("Relu", ["x"], ["y"])
    floats = small_models.TensorProto.FLOAT
    constants = [small_models.array("at", np.array([2])), small_models.array("axis", np.array([1]))]
    model = small_models.model_of(
        [cut, kept],
        [small_models.info("x", floats, [3, 4])],
        [small_models.info("empty", floats, [3, 0]), small_models.info("y", floats, [3, 4])],
        constants,
    )
    path = tmp_path / "empty.onnx"
    small_models.onnx.save(model, path)
    package = tmp_path / "empty.om"
    convert(path, package)
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    empty, y = InferSession(0, package).infer([x])
    assert empty.shape == (3, 0)
    np.testing.assert_array_equal(y, np.maximum(x, 0))


@pytest.mark.parametrize("name", list(small_models.BUILDERS))
def test_compare_passes_and_accounts_for_every_tensor(atc, tmp_path, name):
    model = small_models.save(name, tmp_path)
    shape = ["--input_shape", SHAPES[name]] if name in SHAPES else []
    code, out, err = atc("compare", model, "--json", *shape)
    found = json.loads(out)
    assert code == 0, (found, err)
    assert found["verdict"] == "pass" and found["first_bad"] is None
    states = {row["state"] for row in found["layers"]}
    assert states <= {"compared", "fused", "folded", "dead"} and "compared" in states
    from atc.option_values import shapes
    from atc.pipeline import passes
    from frontend import read_model
    from graph_opt.ir.passes import run_passes

    graph = read_model(model, shapes("input_shape", SHAPES.get(name, "")))
    run_passes(graph, passes(OWN))
    assert [row["source"] for row in found["layers"]] == list(graph.origins)
    measured = [row for row in found["layers"] if row["state"] == "compared"]
    assert all(row["rel_l2"] is not None for row in measured)
    assert {o["name"] for o in found["outputs"]} == {o.name for o in graph.outputs}
    assert all(o["rel_l2"] < (1e-2 if name in ("half_cast", "quantised") else 1e-4) for o in found["outputs"])


def test_convert_run_and_outputs(atc, tmp_path):
    model, package = small_models.save("mlp", tmp_path), tmp_path / "m.om"
    code, out, _ = atc("convert", model, "-o", package, "--json")
    made = json.loads(out)
    keys = {
        "package", "soc_version", "nodes_in", "kernels", "aicpu_nodes", "arena_bytes", "arena_lower_bound_bytes",
        "arena_without_reuse_bytes", "package_bytes", "seconds", "fused", "compiled_kernels", "cached_kernels",
        "estimate_ms",
    }  # fmt: skip
    assert code == 0 and keys <= made.keys()
    assert made["nodes_in"] == 3 and made["kernels"] == 1 and made["aicpu_nodes"] == []
    assert made["package_bytes"] == package.stat().st_size
    assert made["seconds"]["total"] == pytest.approx(sum(v for k, v in made["seconds"].items() if k != "total"))
    x = small_models.random(5, 8, seed=3)
    np.save(tmp_path / "x.npy", x)
    folder = tmp_path / "outputs"
    code, out, _ = atc("run", package, "--input", f"x={tmp_path / 'x.npy'}", "--loop", 3, "--output-dir", folder, "--json")
    ran = json.loads(out)
    assert code == 0
    assert ran["outputs"] == {"y": {"shape": [5, 4], "dtype": "float32", "file": str(folder / "y.npy")}}
    assert ran["threads"] == 1 and ran["compiled_at_run"] == 0 and ran["aicpu_share"] == 0
    assert 0 < ran["latency_ms"]["min"] <= ran["latency_ms"]["median"] <= ran["latency_ms"]["p99"]
    [expected] = reference(model, {"x": x})
    np.testing.assert_allclose(np.load(folder / "y.npy"), expected, rtol=1e-5, atol=1e-6)


def test_one_package_serves_every_batch(tmp_path, atc):
    model, package = small_models.save("mlp", tmp_path), tmp_path / "m.om"
    assert atc("convert", model, "-o", package, "-q") == (0, "", "")
    session = InferSession(0, package)
    for batch in (1, 3, 64, 7):
        x = small_models.random(batch, 8, seed=batch)
        np.testing.assert_allclose(session.infer([x])[0], reference(model, {"x": x})[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_one_open_package_is_compared_at_several_shapes(atc, tmp_path, name):
    model, package = small_models.save(name, tmp_path), tmp_path / "m.om"
    assert atc("convert", model, "-o", package, "-q")[0] == 0
    for batch, length in ((1, 1), (2, 17), (1, 33)):
        code, out, _ = atc("compare", model, package, "--json", "--input_shape", f"input_ids:{batch},{length}")
        found = json.loads(out)
        assert code == 0 and found["verdict"] == "pass"
        assert all(o["rel_l2"] < 1e-5 for o in found["outputs"])


@pytest.mark.parametrize("mode", ["allow_mix_precision_bf16", "force_fp16"])
def test_narrow_modes_have_the_limits_of_their_dtype(atc, tmp_path, mode):
    model, package = small_models.save("demo", tmp_path), tmp_path / "m.om"
    assert atc("convert", model, "-o", package, "-q", "--precision_mode", mode)[0] == 0
    found = json.loads(atc("compare", model, package, "--json")[1])
    assert found["verdict"] == "pass", found["first_bad"]
    assert 1e-6 < found["outputs"][0]["rel_l2"] < 0.1


def test_text_of_a_conversion_is_short(atc, tmp_path):
    model = small_models.save("demo", tmp_path)
    code, out, err = atc("convert", model)
    stages = [line for line in out.splitlines() if line.startswith("  ")]
    summary = [line for line in out.splitlines() if not line.startswith("  ")]
    assert code == 0 and not err and len(stages) == 7 and 6 <= len(summary) <= 12
    assert (tmp_path / "demo.om").exists()


def test_both_branches_of_an_if_are_compared_when_they_run(atc, tmp_path):
    model, package = small_models.save("branches", tmp_path), tmp_path / "b.om"
    assert atc("convert", model, "-o", package)[0] == 0
    for taken, own, other in ((True, "then_", "else_"), (False, "else_", "then_")):
        np.save(tmp_path / "flag.npy", np.array(taken))
        code, out, _ = atc("compare", model, package, "--input", f"flag={tmp_path / 'flag.npy'}", "--json")
        found = json.loads(out)
        assert code == 0 and found["verdict"] == "pass"
        state = {row["source"]: row["state"] for row in found["layers"]}
        assert "compared" in {s for n, s in state.items() if n.startswith(own)}
        assert "compared" not in {s for n, s in state.items() if n.startswith(other)}


def test_tensors_of_functions_are_compared(atc, tmp_path):
    model = small_models.save("with_function", tmp_path)
    _, out, _ = atc("compare", model, "--json")
    compared = [row["source"] for row in json.loads(out)["layers"] if row["state"] == "compared"]
    assert any("inner" in name or "middle" in name for name in compared)


def test_a_wrong_weight_is_found_and_named(atc, tmp_path):
    """The package of one model against another that differs in one bias: exit code 6, the place and the CSV say so."""
    model, package, other = small_models.save("demo", tmp_path), tmp_path / "d.om", tmp_path / "other.onnx"
    assert atc("convert", model, "-o", package)[0] == 0
    proto = small_models.build_demo_model()
    weight = next(t for t in proto.graph.initializer if t.name == "stem2.weight")
    changed = small_models.numpy_helper.to_array(weight) * np.float32(1.02)
    weight.CopyFrom(small_models.array("stem2.weight", changed))
    small_models.onnx.save(proto, str(other))
    code, out, _ = atc("compare", other, package, "--json", "--csv", tmp_path / "rows.csv")
    found = json.loads(out)
    assert code == 6 and found["verdict"] == "fail" and found["first_bad"].startswith("stem2.")
    rows = list(csv.DictReader((tmp_path / "rows.csv").open()))
    assert [r["source"] for r in rows] == [r["source"] for r in found["layers"]]
    assert next(r for r in rows if r["verdict"] == "fail")["source"] == found["first_bad"]
    code, out, _ = atc("compare", other, package)
    assert code == 6 and "fail" in out and found["first_bad"] in out


def test_inspect_shows_parts_layers_and_memory(atc, tmp_path):
    model, package = small_models.save("demo", tmp_path), tmp_path / "d.om"
    made = json.loads(atc("convert", model, "-o", package, "--json")[1])
    code, out, _ = atc("inspect", package, "--json")
    found = json.loads(out)
    assert code == 0 and found["package_bytes"] == made["package_bytes"]
    assert sum(p["bytes"] for p in found["parts"]) <= found["package_bytes"]
    assert len(found["layers"]) == made["kernels"] + len(made["aicpu_nodes"])
    assert found["memory"]["arena_bytes"] == made["arena_bytes"]
    assert found["inputs"] == [{"name": "image", "dtype": "float32", "shape": [1, 3, 64, 64]}]
    code, out, _ = atc("inspect", package, "--layers", "--memory")
    assert code == 0 and all(t["node"] in out for t in found["layers"]) and str(made["arena_bytes"]) in out
    for path, stage, word in ((package, "optimised", "Fused("), (package, "programs", "program "), (model, "read", "Conv(")):
        code, out, _ = atc("inspect", path, "--ir", stage)
        assert code == 0 and word in out


def test_env_and_version(atc):
    found = json.loads(atc("env", "--json")[1])
    assert found["onnxruntime"] == ort.__version__ and found["cores"] >= 1 and found["cache"].endswith("objects")
    assert atc("--version")[1].startswith("openatc ")


def test_demo(atc, tmp_path):
    folder = tmp_path / "demo"
    code, out, err = atc("demo", "--folder", folder)
    assert code == 0 and not err
    assert "verdict    pass" in out and str((folder / "demo.om").resolve()) in out
    assert (folder / "demo.onnx").exists() and (folder / "demo.om").exists()
