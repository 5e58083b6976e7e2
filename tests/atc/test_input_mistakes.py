"""Mistakes in --input and --input_shape end with the same codes for a package as for a model, none is ignored."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
import small_models

from acl_runtime import InferSession
from tensor_types.errors import InvalidModel

N = onnx.helper.make_node


@pytest.fixture(scope="module")
def mlp(tmp_path_factory):
    return small_models.save("mlp", tmp_path_factory.mktemp("mistakes"))


@pytest.fixture(scope="module")
def package(mlp):
    from atc.conversion import convert

    return convert(mlp).package


@pytest.fixture
def refused(atc):
    def call(code: str, *words: object) -> dict:
        _, out, _ = atc(*words, "--json")
        error = json.loads(out)["error"]
        assert error["code"] == code, error
        assert len(error["remedy"]) > 5
        return error

    return call


def saved(folder, name, array):
    np.save(folder / f"{name}.npy", array)
    return f"x={folder / name}.npy"


@pytest.mark.parametrize(
    ("shape", "code", "tensor"),
    [
        ("y:3,9", "E10016", "y"),
        ("x:3,9", "E10050", "x"),
        ("x:3", "E10049", "x"),
        ("x:3,8,1", "E10049", "x"),
        ("x:4,8;x:5,8", "E10002", "x"),
    ],
)
def test_a_shape_that_does_not_fit(refused, mlp, package, shape, code, tensor):
    for words in (("run", mlp), ("run", package), ("compare", mlp, package)):
        error = refused(code, *words, "--input_shape", shape)
        assert error["where"]["flag"] == "--input_shape" and error["where"]["tensor"] == tensor


@pytest.mark.parametrize("shape", ["x:3,8", "x:3,-1", "x:-1,8"])
def test_a_shape_that_fits(atc, package, shape):
    code, out, _ = atc("run", package, "--input_shape", shape, "--json")
    rows = 1 if shape == "x:-1,8" else 3
    assert code == 0 and json.loads(out)["outputs"]["y"]["shape"] == [rows, 4]


def test_shape_and_file_of_one_input_must_agree(refused, atc, tmp_path, package):
    file = saved(tmp_path, "x", np.ones((5, 8), np.float32))
    error = refused("E10050", "run", package, "--input", file, "--input_shape", "x:4,8")
    assert "5" in error["message"] and "4" in error["message"]
    assert atc("run", package, "--input", file, "--input_shape", "x:5,-1")[0] == 0


def test_two_shapes_for_one_dim(refused, tmp_path):
    info = small_models.info
    model = small_models.model_of(
        [N("Add", ["a", "b"], ["y"])], [info("a", 1, ["n", 2]), info("b", 1, ["n", 2])], [info("y", 1, ["n", 2])]
    )
    onnx.save(model, tmp_path / "add.onnx")
    from atc.conversion import convert

    made = convert(tmp_path / "add.onnx").package
    for path in (tmp_path / "add.onnx", made):
        assert refused("E10050", "run", path, "--input_shape", "a:3,2;b:4,2")["where"]["tensor"] == "b"


def test_a_file_given_twice(refused, tmp_path, package):
    file = saved(tmp_path, "x", np.ones((5, 8), np.float32))
    error = refused("E10001", "run", package, "--input", file, "--input", file)
    assert error["where"]["flag"] == "--input" and error["where"]["tensor"] == "x"


def test_a_sequence_for_a_tensor(refused, tmp_path, package):
    np.savez(tmp_path / "z.npz", np.ones((5, 8), np.float32))
    error = refused("E13014", "run", package, "--input", f"x={tmp_path / 'z.npz'}")
    assert "sequence" in error["message"] and error["where"]["tensor"] == "x"


@pytest.mark.parametrize("place", [1, 300])
@pytest.mark.parametrize("op", ["Gather", "ScatterElements"])
def test_an_index_out_of_range_is_named_by_its_place(tmp_path, op, place):
    info, count = small_models.info, 400
    if op == "Gather":
        nodes, inputs = [N(op, ["t", "i"], ["y"])], [info("t", 1, [10, 64]), info("i", 7, [20, 20])]
        feeds = {"t": np.ones((10, 64), np.float32), "i": np.zeros((20, 20), np.int64)}
    else:
        nodes, inputs = [N(op, ["t", "i", "t"], ["y"])], [info("t", 1, [count]), info("i", 7, [count])]
        feeds = {"t": np.ones(count, np.float32), "i": np.arange(count)}
    onnx.save(small_models.model_of(nodes, inputs, [info("y", 1, None)]), tmp_path / "m.onnx")
    from atc.conversion import convert

    session = InferSession(0, convert(tmp_path / "m.onnx").package)
    feeds["i"].reshape(-1)[place] = 1000
    with pytest.raises(InvalidModel, match=rf"position {place} "):
        session.infer(feeds)


def test_a_key_file_that_is_missing(refused, tmp_path, mlp):
    pytest.importorskip("cryptography")
    assert refused("E13001", "key", "trust", tmp_path / "no.pub")["where"]["flag"] == "PATH"
    assert refused("E13001", "convert", mlp, "--sign", tmp_path / "no.key")["where"]["flag"] == "--sign"


def test_a_text_is_no_model(refused, tmp_path, package):
    (tmp_path / "text.onnx").write_text("this is no model\n" * 3)
    refused("E13005", "compare", tmp_path / "text.onnx", package)


def test_what_does_not_fit_the_model_is_told_at_once(atc, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = small_models.save("mlp", tmp_path)
    (tmp_path / "keep.txt").write_text("nowhere\n")
    line = ["convert", model, "--keep_dtype=keep.txt", "--out_nodes=gone:0", "--input_shape=other:1"]
    code, _, err = atc(*line)
    assert code == 2 or code == 3
    assert "3 things are wrong" in err and all(word in err for word in ("'gone:0'", "'other'", "'nowhere'")), err
    code, _, err = atc("convert", model, "--keep_dtype=keep.txt", "--input_fp16_nodes=z", "--output_type=bar:0:FP16")
    assert all(word in err for word in ("3 things", "'nowhere'", "'z'", "'bar:0'")), err
    code, _, err = atc("convert", model, "--keep_dtype=keep.txt", "--out_nodes=gone:0", "--input_fp16_nodes=z")
    assert all(word in err for word in ("'nowhere'", "'gone:0'")), err
    assert not list(tmp_path.glob("*.om"))


@pytest.mark.parametrize(("word", "meant"), [("modle", "model"), ("ouptut", "output")])
def test_a_flag_with_swapped_letters_is_recognised(atc, word, meant):
    assert f"did you mean {meant}?" in atc(f"--{word}=x", "--framework=5")[2]
