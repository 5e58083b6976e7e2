"""Values that a run makes up: within range, the same every time, with sizes that fit each other."""

from __future__ import annotations

import json

import numpy as np
import onnx
import small_models

from atc.inputs import concrete_shape, free_dims, index_bounds, seeded
from frontend import read_model
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
