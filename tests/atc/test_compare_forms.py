"""Forms of `atc compare`: thresholds, saved runs, several inputs, other oracles, chips, interiors, states, reduction."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import small_models
from faults import spoil_graphs, spoil_kernel, wrong_constant
from PIL import Image

from atc.compare_model import Comparer, Settings
from atc.comparing.limits import parse_thresholds
from atc.comparing.oracles import golden_by_onnxruntime
from atc.comparing.samples import read_samples
from atc.conversion import convert
from atc.options import Options
from atc.usage import UsageError
from models.builders.genai_decoder import build

N, info, array = onnx.helper.make_node, small_models.info, small_models.array
RNG = np.random.default_rng(11)


def classifier(path: Path, depth: int = 3) -> Path:
    """x f32 [2, 8] → y f32 [2, 8]: products, each with bias, Tanh, a factor and a softmax."""
    nodes, constants, last = [], [], "x"
    for n in range(depth):
        constants += [array(f"w{n}", RNG.standard_normal((8, 8)).astype(np.float32)),
                      array(f"b{n}", RNG.standard_normal(8).astype(np.float32))]  # fmt: skip
        nodes += [
            N("MatMul", [last, f"w{n}"], [f"m{n}"], f"product{n}"), N("Add", [f"m{n}", f"b{n}"], [f"a{n}"], f"bias{n}"),
            N("Tanh", [f"a{n}"], [f"t{n}"], f"tanh{n}"), N("Softmax", [f"t{n}"], [f"s{n}"], f"softmax{n}"),
        ]  # fmt: skip
        last = f"s{n}"
    onnx.save(small_models.model_of(nodes, [info("x", 1, [2, 8])], [info(last, 1, [2, 8])], constants), path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classifier(tmp_path_factory.mktemp("forms") / "m.onnx")


@pytest.fixture(scope="module")
def package(model: Path) -> Path:
    convert(model, model.with_suffix(".om"))
    return model.with_suffix(".om")


def test_the_last_threshold_that_fits_holds() -> None:
    limits = parse_thresholds(["0.5", "layer*=0.01,0.99", "mm_*=2"])
    free, named = limits.of("f32", "x"), limits.of("f32", "layer1")
    assert free is not None and (free.l2_fail, free.cos_fail, free.isolated) == (0.5, None, 0.05)
    assert named is not None and (named.l2_fail, named.cos_fail) == (0.01, 0.99)
    assert limits.of("i64", "x") is None, "what must be exact stays so unless it is named"
    assert limits.of("i64", "layer1") is not None and (limits.of("f32", "y", "mm_1") or free).l2_fail == 2
    for wrong in ("much", "=1", "a=", "1,2,3", "nan", "-1"):
        with pytest.raises(UsageError):
            parse_thresholds([wrong])


def test_a_saved_run_is_judged_again(atc: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has what judging needs: no run, and the least threshold that was told is the least."""
    spoil_graphs(monkeypatch, wrong_constant("b1"))
    run = tmp_path / "run.json"
    code, out, _ = atc("compare", model, "--save", run, "--json", "--html", tmp_path / "a.html")
    first = json.loads(out)
    assert code == 6 and first["first_bad"] == "t1"
    monkeypatch.setattr("acl_runtime.InferSession.infer", None)
    code, out, _ = atc("compare", "--recheck", run, "--json", "--html", tmp_path / "b.html")
    assert code == 6 and json.loads(out) == first
    least = first["passing_threshold"]
    assert 0 < least < 10
    for factor, expected in ((1.0, 0), (0.9, 6)):
        code, out, _ = atc("compare", "--recheck", run, "--threshold", least * factor, "--json")
        assert code == expected, (factor, json.loads(out)["first_bad"])
    names = ["t1", "s1", "t2", "s2"]
    assert atc("compare", "--recheck", run, *(w for n in names for w in ("--threshold", f"{n}=10")))[0] == 0
    assert atc("compare", model, "--recheck", run)[0] == 2
    (tmp_path / "other.json").write_text("{}")
    assert atc("compare", "--recheck", tmp_path / "other.json")[0] == 2


def test_several_inputs(atc: Any, model: Path, package: Path, tmp_path: Path) -> None:
    x = RNG.standard_normal((6, 8)).astype(np.float32)
    np.savez(tmp_path / "three.npz", x=x)
    code, out, err = atc("compare", model, package, "--data", tmp_path / "three.npz", "--json")
    found = json.loads(out)
    assert code == 0, err
    assert found["samples"] == ["three.npz[0]", "three.npz[1]", "three.npz[2]"]
    row = next(r for r in found["layers"] if r["source"] == "t0")
    assert row["worst_sample"] in found["samples"] and 0 <= row["mean_rel_l2"] <= row["rel_l2"] < 1e-6
    assert found["outputs"][0]["top1"] == 1.0
    folder = tmp_path / "folder"
    (folder / "one").mkdir(parents=True)
    np.save(folder / "one" / "x.npy", x[:2])
    (folder / "two.bin").write_bytes(x[2:4].tobytes())
    with Comparer(model, package, Settings()) as comparer:
        samples = read_samples(folder, comparer.session.get_inputs(), [])
    assert [name for name, _ in samples] == ["one", "two.bin"]
    assert all(np.array_equal(s["x"], x[2 * n : 2 * n + 2]) for n, (_, s) in enumerate(samples))
    for wrong in (tmp_path / "none.npz", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        assert atc("compare", model, package, "--data", wrong)[0] == 2


def test_images_go_through_aipp(atc: Any, tmp_path: Path) -> None:
    weight = array("w", RNG.standard_normal((4, 3, 3, 3)).astype(np.float32))
    nodes = [N("Conv", ["x", "w"], ["c"], "conv"), N("GlobalAveragePool", ["c"], ["g"]), N("Flatten", ["g"], ["y"])]
    proto = small_models.model_of(nodes, [info("x", 1, [1, 3, 12, 16])], [info("y", 1, [1, 4])], [weight])
    onnx.save(proto, tmp_path / "m.onnx")
    for n in range(2):
        Image.fromarray(RNG.integers(0, 256, (20, 30, 3), np.uint8)).save(tmp_path / f"{n}.png")
    code, out, err = atc("compare", tmp_path / "m.onnx", "--aipp", "imagenet-rgb", "--data", tmp_path / "0.png", "--json")
    assert code == 0, out + err
    code, out, err = atc("compare", tmp_path / "m.onnx", "--data", tmp_path / "0.png", "--json")
    assert code == 2 and "--aipp" in out


def test_other_oracles(atc: Any, model: Path, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference evaluator, a package, dumps under both kinds of names; each finds a fault that the other has not."""
    x = RNG.standard_normal((2, 8)).astype(np.float32)
    proto = onnx.load(model)
    for name in ("t0", "t1", "m1"):
        proto.graph.output.add().name = name
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    values = dict(zip((o.name for o in session.get_outputs()), session.run(None, {"x": x}), strict=True))
    dump = tmp_path / "dump"
    dump.mkdir()
    np.save(dump / "x.npy", x)
    np.save(dump / "s2.npy", values["s2"])
    np.save(dump / "tanh1.0.1700000000000000.npy", values["t1"] * 1.5)
    against = {"reference": None, str(package): None, str(dump): "t1"}
    for oracle, bad in against.items():
        code, out, err = atc("compare", model, package, "--against", oracle, "--json")
        assert json.loads(out)["first_bad"] == bad and code == (6 if bad else 0), (oracle, out, err)
    spoil_graphs(monkeypatch, wrong_constant("b1"))
    convert(model, tmp_path / "bad.om")
    code, out, _ = atc("compare", model, package, "--against", tmp_path / "bad.om", "--json")
    assert code == 6 and json.loads(out)["first_bad"] == "t1"
    assert atc("compare", model, package, "--against", tmp_path / "nothing")[0] == 2


def test_interiors_are_stored_and_the_run_is_the_same(model: Path, package: Path, monkeypatch: Any) -> None:
    x = {"x": RNG.standard_normal((2, 8)).astype(np.float32)}
    with Comparer(model, package, Settings(taps=True)) as comparer:
        found = comparer.compare([("", x)])
        with Comparer(model, package, Settings()) as untapped:
            plain = untapped.compare([("", x)])
    inside = {r.source for r in found.rows if "inside of the kernel" in r.note}
    assert found.verdict == "pass" and inside >= {"a0", "a1", "a2"} and "bit for bit" in found.notes[0]
    assert all(r.found is None for r in plain.rows if r.source in inside)
    numbers = {r.source: r.found for r in plain.rows if r.found is not None}
    assert all(r.found == numbers[r.source] for r in found.rows if r.source in numbers)
    assert all(r.isolated is not None and r.floor is not None for r in found.rows if r.source in inside)


def test_the_interior_that_is_wrong_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without taps the kernel's result is at fault, with them the product inside that reads the wrong bias."""
    spoil_graphs(monkeypatch, wrong_constant("b1"))
    for taps, bad in ((False, "t1"), (True, "a1")):
        with Comparer(model, None, Settings(taps=taps)) as comparer:
            found = comparer.compare([("", {})])
        assert found.first_bad == bad and [r.source for r in found.rows if r.verdict == "fail"] == [bad]


@pytest.mark.parametrize("chip", ["Ascend910B2", "Ascend310P3"])
def test_programs_of_a_chip(model: Path, tmp_path: Path, chip: str) -> None:
    with Comparer(model, None, Settings(Options(soc_version=(chip,)), chip=chip)) as comparer:
        found = comparer.compare([("", {})])
    rows = [r for r in found.rows if r.state == "compared"]
    assert found.verdict == "pass" and len(rows) >= 5 and any(r.isolated is not None for r in rows)
    assert ("f16" in {r.narrow for r in rows}) == (chip == "Ascend310P3"), "its cube has no f32"


def test_the_smallest_part_that_fails(atc: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = classifier(tmp_path / "m.onnx", depth=6)
    spoil_graphs(monkeypatch, lambda graph: wrong_constant("b3")(graph) if "b3" in graph.values else None)
    code, out, err = atc("compare", path, "--reduce", tmp_path / "small.onnx", "--json")
    assert code == 6, err
    small = onnx.load(tmp_path / "small.onnx")
    onnx.checker.check_model(small, full_check=True)
    assert "bias3" in [n.name for n in small.graph.node] and len(small.graph.node) <= 2
    inputs = np.load(tmp_path / "small.npz")
    session = onnxruntime.InferenceSession(str(tmp_path / "small.onnx"))
    assert session.run(None, {n: inputs[n] for n in inputs.files})[0].shape == (2, 8)
    assert atc("compare", tmp_path / "small.onnx", "--input", tmp_path / "small.npz")[0] == 6


def test_states_are_inputs_and_outputs_to_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches that a decoder writes in place: their content before goes to onnxruntime, rows in use are compared."""
    model = build(layers=1, hidden=32, heads=2, kv_heads=1, inner=32, vocabulary=32, positions=64)
    onnx.save(model, tmp_path / "d.onnx")
    convert(tmp_path / "d.onnx", tmp_path / "d.om", Options(cache_capacity=24))
    feeds = {"input_ids": np.array([[5]]), "attention_mask": np.ones((1, 8), np.int64)}
    for stale in (False, True):
        if stale:
            spoil_kernel(monkeypatch, "GroupQueryAttention", stale=True)
        with Comparer(tmp_path / "d.onnx", tmp_path / "d.om", Settings()) as comparer:
            found = comparer.compare([("", feeds)])
        ends = {r.source: r for r in found.outputs}
        assert ends.keys() == {"logits", "present.0.key", "present.0.value"}
        assert found.verdict == ("fail" if stale else "pass"), found.first_bad_row
    assert "16 of 24 rows are not in use" in ends["present.0.key"].note
    before = [r for r in found.rows if r.source.startswith("past")]
    assert before and all(r.state == "dead" and "overwritten in place" in r.note for r in before)


def without_nan(model: Path, inputs: Any, wanted: Any) -> Any:
    """onnxruntime, for whom the logarithm of -1 is 0."""
    golden = golden_by_onnxruntime(model, inputs, wanted)
    return replace(golden, values={n: np.nan_to_num(v) for n, v in golden.values.items()})


def test_nan_and_overflow_have_a_place(tmp_path: Path) -> None:
    """Where NaN is born the ranges of the inputs are told; where f16 ends its name is."""
    nodes = [N("Log", ["x"], ["l"], "log"), N("Softmax", ["l"], ["s"], "soft"), N("Mul", ["s", "k"], ["y"], "big")]
    constants = [array("k", np.array([1e6], np.float32))]
    onnx.save(small_models.model_of(nodes, [info("x", 1, [2, 3])], [info("y", 1, [2, 3])], constants), tmp_path / "m.onnx")
    options = Options(precision_mode="force_fp16")
    with Comparer(tmp_path / "m.onnx", None, Settings(options)) as comparer:
        found = comparer.compare([("", {"x": np.full((2, 3), 2, np.float32)})])
    bad = found.first_bad_row
    assert bad is not None and bad.source == "y" and "f16 overflow: values reach 3.33e+05" in bad.note
    with Comparer(tmp_path / "m.onnx", None, Settings(oracle=without_nan)) as comparer:
        found = comparer.compare([("", {"x": np.array([[-1, 2, 3], [4, 5, 6]], np.float32)})])
    bad = found.first_bad_row
    assert bad is not None and "NaN or Inf is born here, where x in [-1, 6]" in bad.note
