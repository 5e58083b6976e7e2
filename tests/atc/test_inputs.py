"""Values that a run makes up: within range, the same every time, with sizes that fit each other."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
import small_models

from acl_runtime.plan_format import PlanRequirement
from atc.input_sizes import concrete_shape, free_dims
from atc.inputs import index_bounds, seeded
from frontend import read_model
from tensor_types.dims import dim, dmin
from tensor_types.dtypes import F32, I64


def test_ids_stay_within_the_table_and_masks_are_ones(tmp_path):
    graph = read_model(small_models.save("bert", tmp_path))
    bounds = index_bounds(graph)
    assert bounds == {"input_ids": 97, "token_type_ids": 2}
    ids = seeded("input_ids", I64, (4, 200), bounds["input_ids"])
    assert ids.dtype == np.int64 and 0 <= ids.min() and 80 < ids.max() < 97
    assert (seeded("attention_mask", I64, (2, 5), None) == 1).all()
    np.testing.assert_array_equal(ids, seeded("input_ids", I64, (4, 200), bounds["input_ids"]))


def test_free_dims_suit_their_place_and_range():
    tensors = [(F32, ("batch", 3, "height", "width")), (I64, ("batch", "sequence")), (F32, ("batch", "past + sequence"))]
    ranges = {"batch": (1, None), "height": (1, 100), "width": (300, None), "sequence": (1, None), "past": (2, None)}
    found = free_dims(tensors, {"batch": 5}, ranges)
    assert found == {"batch": 5, "height": 100, "width": 300, "sequence": 16, "past": 2}
    assert concrete_shape(("batch", "past + sequence", 7), found) == [5, 18, 7]


PAST, NEW, TOTAL = dim("past"), dim("new"), dim("total")


def _needs(left, right, broadcast=False):
    return PlanRequirement(left, right, "broadcast" if broadcast else "equal", "node", None)


@pytest.mark.parametrize(
    ("known", "requirement", "sizes"),
    [
        ({}, _needs(TOTAL, PAST + NEW), {"past": 16, "new": 16, "total": 32}),
        ({"total": 40}, _needs(PAST + NEW, TOTAL), {"past": 16, "new": 24, "total": 40}),
        ({"past": 3, "total": 5}, _needs(TOTAL, PAST + NEW), {"past": 3, "new": 2, "total": 5}),
        ({"past": 3, "new": 7, "total": 5}, _needs(TOTAL, PAST + NEW), {"past": 3, "new": 7, "total": 5}),
        ({}, _needs(TOTAL % 64, 0), {"past": 16, "new": 16, "total": 64}),
        ({"total": 1}, _needs(TOTAL, PAST, True), {"past": 16, "new": 16, "total": 1}),
    ],
)  # fmt: skip
def test_sizes_that_nobody_gave_fit_what_the_plan_requires(known, requirement, sizes):
    caches = [(F32, ("batch", 12, "past", 64))] * 4
    tensors = [(I64, ("batch", "new")), (I64, ("batch", "new")), (I64, ("batch", "total")), *caches]
    ranges = {name: (1, None) for name in ("batch", "new", "total", "past")}
    assert free_dims(tensors, known, ranges, [requirement]) == {"batch": 1, **sizes}


def _window(left, reach):
    return PlanRequirement(left, reach, "window", "node", None)


@pytest.mark.parametrize(
    ("requirements", "size"),
    [
        ([_window(dim("n"), 320 * dmin(dim("n"), 1))], 512),  # beyond what is tried step by step
        ([_window(dim("n"), 20), _window(dim("n") + dmin(119, dim("n") - 1) + 313, 512)], 100),  # grows twice
        ([_window(dim("n"), 9), _needs(dim("n") % 4, 0)], 12),
    ],
)
def test_signals_are_as_long_as_windows_reach(requirements, size):
    assert free_dims([(F32, ("b", "n"))], {}, {"b": (1, None), "n": (0, None)}, requirements)["n"] == size


@pytest.mark.parametrize("shape", [(1, 3, "h", "w"), ("n", "h", "w", 3), ("n", "c", "h", "w")])
def test_only_the_sides_of_images_are_those_of_images(shape):
    found = free_dims([(F32, shape)], {}, {name: (1, None) for name in shape if isinstance(name, str)})
    assert {found["h"], found["w"]} == {224} and found.get("n", 1) == found.get("c", 1) == 1


def test_sizes_by_name(atc, tmp_path):
    model = small_models.save("llama", tmp_path)
    package = tmp_path / "m.om"
    assert atc("convert", model, "-o", package)[0] == 0
    code, out, _ = atc("run", package, "--dims", "batch=2,sequence=7", "--duration", 0.01, "--warmup", 0, "--json")
    found = json.loads(out)
    assert code == 0 and found["outputs"]["logits"]["shape"] == [2, 7, 89] and found["runs"] >= 1
    for wrong, words in (("bach=2", "did you mean batch"), ("batch", "batch=2,past=128"), ("batch=2,batch=2", "batch")):
        code, _, err = atc("run", package, "--dims", wrong)
        assert code == 2 and words in err and "--dims" in err


def test_inputs_from_one_npz_and_from_raw_bytes(atc, tmp_path):
    nodes = [small_models.N("Sub", ["a", "b"], ["y"], "n")]
    inputs = [small_models.info(name, small_models.F32, ["rows", 2]) for name in "ab"]
    model = small_models.model_of(nodes, inputs, [small_models.info("y", small_models.F32, ["rows", 2])])
    onnx.save(model, str(tmp_path / "m.onnx"))
    a, b = np.arange(6, dtype=np.float32).reshape(3, 2), np.full((3, 2), 0.5, np.float32)
    np.savez(tmp_path / "all.npz", a=a, b=b)
    a.tofile(tmp_path / "a.bin")
    np.save(tmp_path / "b.npy", b)
    given = (["--input", tmp_path / "all.npz"],
             ["--input", f"a={tmp_path / 'a.bin'}", "--input", f"b={tmp_path / 'b.npy'}"])  # fmt: skip
    for words in given:
        assert atc("run", tmp_path / "m.onnx", *words, "--output-dir", tmp_path / "out")[0] == 0
        np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"), a - b)
        (tmp_path / "out" / "y.npy").unlink()
    code, _, err = atc("run", tmp_path / "m.onnx", "--input", f"a={tmp_path / 'a.bin'}", "--dims", "rows=2")
    assert code == 2 and "24 bytes" in err and "takes 16" in err


def test_run_of_an_open_model_without_any_input(atc, tmp_path):
    model = small_models.save("llama", tmp_path)
    code, out, _ = atc("run", model, "--json")
    assert code == 0 and json.loads(out)["outputs"] == {"logits": {"shape": [1, 16, 89], "dtype": "float32"}}
    code, out, _ = atc("run", model, "--input_shape", "input_ids:2,5", "--loop", 2, "--threads", 2)
    assert code == 0 and "float32[2, 5, 89]" in out and "2 threads" in out


def test_output_files_have_safe_names_of_their_own(atc, tmp_path):
    nodes = [small_models.N("Relu", ["x"], ["a/b:0"], "r"), small_models.N("Neg", ["x"], ["a.b.0"], "n")]
    outputs = [small_models.info(name, small_models.F32, [3]) for name in ("a/b:0", "a.b.0")]
    model = small_models.model_of(nodes, [small_models.info("x", small_models.F32, [3])], outputs)
    onnx.save(model, str(tmp_path / "m.onnx"))
    np.save(tmp_path / "x.npy", np.array([-1, 0, 2], np.float32))
    words = ["--input", f"x={tmp_path / 'x.npy'}", "--output-dir", tmp_path / "out"]
    assert atc("run", tmp_path / "m.onnx", *words)[0] == 0
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"a_b_0.npy", "a_b_0_1.npy"}
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "a_b_0.npy"), [0, 0, 2])
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "a_b_0_1.npy"), [1, 0, -2])
