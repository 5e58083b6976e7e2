"""Operators about positions, natively: triangles, diagonals, one-hot rows and gathers by several indices."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import atc
from acl_runtime import InferSession
from tensor_types.errors import OpenAtcError
from tests.atc.small_models import F32, I64, N, array, info, model_of


def sessions(nodes, inputs, outputs, held, folder):
    model = model_of(nodes, inputs, outputs, held, opset=17)
    result = atc.convert(model, folder / "m.om", soc_version="Ascend910B2")
    assert result.aicpu_nodes == [], "all of it has kernels"
    return InferSession(0, folder / "m.om"), onnxruntime.InferenceSession(model.SerializeToString())


def test_triangles_diagonals_and_one_hot_rows(tmp_path) -> None:
    nodes = [
        N("Trilu", ["x", "k"], ["upper"], "upper"),
        N("Trilu", ["x", "minus"], ["lower"], "lower", upper=0),
        N("Trilu", ["i"], ["plain"], "plain"),
        N("EyeLike", ["i"], ["eye"], "eye", k=-1, dtype=onnx.TensorProto.FLOAT),
        N("OneHot", ["i", "depth", "values"], ["last"], "last"),
        N("OneHot", ["i", "depth", "values"], ["first"], "first", axis=0),
    ]
    inputs = [info("x", F32, ["b", "n", 5]), info("i", I64, ["n", "m"]), info("k", I64, [])]
    names = ("upper", "lower", "plain", "eye", "last", "first")
    types = (F32, F32, I64, F32, F32, F32)
    shapes = (["b", "n", 5], ["b", "n", 5], ["n", "m"], ["n", "m"], ["n", "m", 4], [4, "n", "m"])
    outputs = [info(name, dtype, shape) for name, dtype, shape in zip(names, types, shapes, strict=True)]
    held = [array("minus", np.array(-1)), array("depth", np.array(4)), array("values", np.array([-2, 3], np.float32))]
    ours, oracle = sessions(nodes, inputs, outputs, held, tmp_path)
    rng = np.random.default_rng(0)
    for b, n, m, k in ((2, 4, 6, 1), (1, 1, 1, -3), (3, 7, 2, 0), (1, 3, 9, 9)):
        feeds = {"x": rng.standard_normal((b, n, 5), np.float32), "i": rng.integers(-6, 6, (n, m)), "k": np.array(k)}
        for name, found, wanted in zip(names, ours.infer(feeds), oracle.run(None, feeds), strict=True):
            np.testing.assert_array_equal(found, wanted, err_msg=f"{name} of {b}, {n}, {m}, {k}")


@pytest.fixture(scope="module")
def gathers(tmp_path_factory):
    nodes = [
        N("GatherND", ["x", "at"], ["rows"], "rows"),
        N("GatherND", ["x", "each"], ["elements"], "elements"),
        N("GatherND", ["x", "fixed"], ["same"], "same"),
    ]
    inputs = [info("x", F32, ["b", "n", 5]), info("at", I64, ["k", 2]), info("each", I64, ["k", 3, 3])]
    outputs = [info("rows", F32, ["k", 5]), info("elements", F32, ["k", 3]), info("same", F32, [2, 5])]
    held = [array("fixed", np.array([[0, -1], [-1, 0]]))]
    return sessions(nodes, inputs, outputs, held, tmp_path_factory.mktemp("gathers"))


def test_gathers_by_several_indices(gathers) -> None:
    ours, oracle = gathers
    rng = np.random.default_rng(1)
    for b, n, k in ((2, 4, 6), (1, 1, 1), (3, 7, 2)):
        limits = np.array([b, n, 5])
        each = rng.integers(-limits, limits, (k, 3, 3))
        feeds = {"x": rng.standard_normal((b, n, 5), np.float32), "at": each[:, 0, :2].copy(), "each": each}
        for found, wanted in zip(ours.infer(feeds), oracle.run(None, feeds), strict=True):
            np.testing.assert_array_equal(found, wanted, err_msg=f"{b}, {n}, {k}")


@pytest.mark.parametrize("index", [(0, 3), (0, -4), (2, 0), (-3, 0)])
def test_an_index_beyond_its_own_axis_is_refused_although_the_tensor_goes_on(gathers, index) -> None:
    feeds = {"x": np.zeros((2, 3, 5), np.float32), "at": np.array([index]), "each": np.zeros((1, 3, 3), np.int64)}
    with pytest.raises(OpenAtcError, match="out of range"):
        gathers[0].infer(feeds)


def test_sequences_backwards(tmp_path) -> None:
    nodes = [
        N("ReverseSequence", ["x", "l"], ["first"], "first", time_axis=0, batch_axis=1),
        N("ReverseSequence", ["y", "l"], ["second"], "second", time_axis=1, batch_axis=0),
        N("ReverseSequence", ["z", "fixed"], ["flat"], "flat"),
    ]
    inputs = [info("x", F32, ["t", "b", 3]), info("y", F32, ["b", "t", 2, 2]), info("z", I64, [4, 2]), info("l", I64, ["b"])]
    outputs = [info("first", F32, ["t", "b", 3]), info("second", F32, ["b", "t", 2, 2]), info("flat", I64, [4, 2])]
    ours, oracle = sessions(nodes, inputs, outputs, [array("fixed", np.array([3, 4]))], tmp_path)
    rng = np.random.default_rng(0)
    for t, b in ((1, 1), (7, 3), (300, 2)):
        feeds = {"x": rng.standard_normal((t, b, 3), np.float32), "y": rng.standard_normal((b, t, 2, 2), np.float32),
                 "z": rng.integers(0, 9, (4, 2)), "l": rng.integers(1, t + 1, b)}  # fmt: skip
        for found, wanted in zip(ours.infer(feeds), oracle.run(None, feeds), strict=True):
            np.testing.assert_array_equal(found, wanted)
    feeds["l"] = np.array([t, t + 1])
    with pytest.raises(OpenAtcError, match="out of range"):
        ours.infer(feeds)
