"""`atc run` on what is no plain tensor: sequences, optionals and strings, in and out."""

from __future__ import annotations

import json

import numpy as np
import onnx
from onnx import helper
from small_models import BOOL, F32, I64, N, array, info, model_of, random

TensorProto = onnx.TensorProto


def sequence_info(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_sequence_value_info(name, F32, None)


def run(atc, tmp_path, model, *words):
    path = tmp_path / "m.onnx"
    onnx.save(model, str(path))
    code, out, err = atc("run", path, "--json", "--output-dir", tmp_path / "out", *words)
    assert code == 0, out + err
    return json.loads(out)["outputs"], tmp_path / "out"


def test_a_sequence_of_tensors_of_different_shapes(atc, tmp_path):
    nodes = [N("SplitToSequence", ["x", "sizes"], ["parts"], "split", axis=0), N("Neg", ["x"], ["y"], "neg")]
    model = model_of(nodes, [info("x", F32, [6, 4])], [sequence_info("parts"), info("y", F32, [6, 4])],
                     [array("sizes", np.int64([1, 2, 3]))])  # fmt: skip
    np.save(tmp_path / "x.npy", random(6, 4))
    found, folder = run(atc, tmp_path, model, "--input", f"x={tmp_path / 'x.npy'}")
    parts = [{"shape": [n, 4], "dtype": "float32", "file": str(folder / f"parts_{n - 1}.npy")} for n in (1, 2, 3)]
    assert found["parts"] == {"shape": [3], "dtype": "sequence", "elements": parts}
    assert found["y"] == {"shape": [6, 4], "dtype": "float32", "file": str(folder / "y.npy")}
    assert sorted(p.name for p in folder.iterdir()) == ["parts_0.npy", "parts_1.npy", "parts_2.npy", "y.npy"]
    np.testing.assert_array_equal(np.load(folder / "parts_1.npy"), random(6, 4)[1:3])


def test_a_sequence_as_input(atc, tmp_path):
    nodes = [N("SequenceAt", ["parts", "at"], ["t"], "at"), N("Relu", ["t"], ["y"], "relu")]
    model = model_of(nodes, [sequence_info("parts")], [info("y", F32, None)], [array("at", np.int64(1))])
    np.savez(tmp_path / "parts.npz", random(2, 3), random(4, 1, seed=1))
    _, folder = run(atc, tmp_path, model, "--input", f"parts={tmp_path / 'parts.npz'}")
    np.testing.assert_array_equal(np.load(folder / "y.npy"), np.maximum(random(4, 1, seed=1), 0))
    code, out, _ = atc("run", tmp_path / "m.onnx", "--json")
    error = json.loads(out)["error"]
    assert code == 2 and error["where"]["tensor"] == "parts" and ".npz" in error["remedy"]


def test_an_empty_optional_and_one_that_holds_a_tensor(atc, tmp_path):
    element = helper.make_tensor_type_proto(F32, [3])
    full = helper.make_graph([N("Optional", ["x"], ["some"], "some")], "full", [],
                             [helper.make_value_info("some", helper.make_optional_type_proto(element))])  # fmt: skip
    empty = helper.make_graph([N("Optional", [], ["none"], "none", type=element)], "empty", [],
                              [helper.make_value_info("none", helper.make_optional_type_proto(element))])  # fmt: skip
    nodes = [N("If", ["flag"], ["maybe"], "choice", then_branch=full, else_branch=empty)]
    output = helper.make_value_info("maybe", helper.make_optional_type_proto(element))
    model = model_of(nodes, [info("x", F32, [3]), info("flag", BOOL, [])], [output])
    for flag in (False, True):
        np.save(tmp_path / "flag.npy", np.array(flag))
        found, folder = run(atc, tmp_path, model, "--input", f"flag={tmp_path / 'flag.npy'}")
        if flag:
            assert found["maybe"] == {"shape": [3], "dtype": "float32", "file": str(folder / "maybe.npy")}
            assert (folder / "maybe.npy").exists()
        else:
            assert found["maybe"] == {"shape": None, "dtype": "empty"} and not (folder / "maybe.npy").exists()


def test_strings(atc, tmp_path):
    nodes = [N("Gather", ["words", "x"], ["y"], "pick")]
    model = model_of(nodes, [info("x", I64, [2])], [info("y", TensorProto.STRING, [2])],
                     [array("words", np.array(["a", "bcd", "e"], object))])  # fmt: skip
    np.save(tmp_path / "x.npy", np.int64([1, 0]))
    found, folder = run(atc, tmp_path, model, "--input", f"x={tmp_path / 'x.npy'}")
    assert found["y"]["shape"] == [2]
    assert np.load(folder / "y.npy").tolist() == ["bcd", "a"]
