"""Attention as PyTorch's exporter of scaled_dot_product_attention writes it: one kernel, and 0 where nothing is seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

import atc
from acl_runtime import InferSession
from models.builders.graph_writer import GraphWriter


def exported(repeats: bool, guarded: bool) -> onnx.ModelProto:
    """Two heads of keys and values, repeated for four of the queries; probabilities that are NaN become 0."""
    g = GraphWriter("attention", 0)
    q = g.input("q", TensorProto.FLOAT, ["b", 4, "s", 16])
    heads = 2 if repeats else 4
    k, v = (g.input(n, TensorProto.FLOAT, ["b", heads, "t", 16]) for n in "kv")
    mask = g.input("mask", TensorProto.FLOAT, ["b", 1, "s", "t"])
    if repeats:
        target, whole = g.constant([1, 2, 2, 1, 16]), g.constant([0, 4, -1, 16])
        k, v = (g.op("Reshape", g.op("Expand", g.op("Unsqueeze", x, g.constant([2])), target), whole) for x in (k, v))
    scale = g.constant(0.5, np.float32)
    scores = g.op("MatMul", g.op("Mul", q, scale), g.op("Mul", g.op("Transpose", k, perm=[0, 1, 3, 2]), scale))
    p = g.op("Softmax", g.op("Add", scores, mask), axis=-1)
    if guarded:
        p = g.op("Where", g.op("IsNaN", p), g.constant(0.0, np.float32), p)
    g.output(g.op("MatMul", p, v), "y", TensorProto.FLOAT, ["b", 4, "s", 16])
    return g.model()


@pytest.mark.parametrize(("repeats", "guarded"), [(True, True), (True, False), (False, True)])
def test_exported_attention_is_one_kernel(repeats: bool, guarded: bool, tmp_path: Path) -> None:
    onnx.save(exported(repeats, guarded), tmp_path / "m.onnx")
    report = atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    assert report.kernels == 1 and not report.aicpu_nodes
    rng, heads = np.random.default_rng(0), 2 if repeats else 4
    for s, t in ((1, 7), (5, 9)):
        feeds = {n: rng.standard_normal((2, c, r, 16)).astype(np.float32)
                 for n, c, r in (("q", 4, s), ("k", heads, t), ("v", heads, t))}  # fmt: skip
        feeds["mask"] = np.where(rng.random((2, 1, s, t)) < 0.3, -np.inf, 0).astype(np.float32)
        feeds["mask"][:, :, -1] = -np.inf  # the last row sees nothing
        (want,) = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"]).run(None, feeds)
        (got,) = InferSession(0, tmp_path / "m.om").infer(feeds)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        assert np.isnan(want[:, :, -1]).all() != guarded


def test_a_guard_of_another_number_stays(tmp_path: Path) -> None:
    model = exported(False, True)
    zero = next(t for t in model.graph.initializer if onnx.numpy_helper.to_array(t).shape == () and
                onnx.numpy_helper.to_array(t) == 0)  # fmt: skip
    zero.CopyFrom(onnx.numpy_helper.from_array(np.float32(0.25), zero.name))
    onnx.save(model, tmp_path / "m.onnx")
    atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    rng = np.random.default_rng(0)
    feeds = {n: rng.standard_normal((1, 4, 3, 16)).astype(np.float32) for n in "qkv"}
    feeds["mask"] = np.full((1, 1, 3, 3), -np.inf, np.float32)
    (want,) = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"]).run(None, feeds)
    (got,) = InferSession(0, tmp_path / "m.om").infer(feeds)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
