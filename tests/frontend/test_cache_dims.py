"""Which named dims may be 0, and a decoder that starts with an empty cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import atc
from acl_runtime import InferSession
from frontend import read_model

node = helper.make_node


def saved(
    path: Path, nodes: Sequence[onnx.NodeProto], inputs: dict[str, list[int | str]], outputs: Sequence[str],
) -> Path:  # fmt: skip
    wire = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in inputs.items()]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    graph = helper.make_graph(list(nodes), "g", wire, results)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)
    return path


CACHE = {"x": ["b", 2, "s", 8], "p": ["b", 2, "past", 8]}
JOIN = [node("Relu", ["x"], ["r"]), node("Concat", ["p", "r"], ["y"], axis=2)]
BRANCH = helper.make_graph(
    [node("Neg", ["p"], ["n"])], "g", [], [helper.make_tensor_value_info("n", TensorProto.FLOAT, None)]
)
ATTENTION = node("Attention", ["x", "x", "x", "", "p", "p"], ["y", "k", "v"])
CASES = {
    "concat": (JOIN, CACHE, {"past"}),
    "negative axis": ([JOIN[0], node("Concat", ["p", "r"], ["y"], axis=-2)], CACHE, {"past"}),
    "attention": ([ATTENTION], CACHE, {"past"}),
    "another axis": ([JOIN[0], node("Concat", ["p", "r"], ["y"], axis=1)], CACHE, set()),
    "read elsewhere": ([*JOIN, node("Neg", ["p"], ["n"])], CACHE, set()),
    "read in a branch": ([*JOIN, node("If", ["c"], ["n"], then_branch=BRANCH, else_branch=BRANCH)], CACHE, set()),
    "queries": ([node("Attention", ["p", "x", "x"], ["y"])], CACHE, set()),
    "joined with inputs alone": ([node("Concat", ["p", "x"], ["y"], axis=2)], CACHE, set()),
    "the name elsewhere": (JOIN, {**CACHE, "x": ["past", 2, "s", 8]}, set()),
    "an axis of another input": (
        [*JOIN, node("Relu", ["m"], ["z"])], {**CACHE, "m": ["b", "past"]}, set()
    ),
    "read by nobody": ([JOIN[0]], CACHE, set()),
}  # fmt: skip


@pytest.mark.parametrize("nodes,inputs,empty", CASES.values(), ids=CASES)
def test_dims_that_may_be_0(
    tmp_path: Path, nodes: Sequence[onnx.NodeProto], inputs: dict[str, list[int | str]], empty: set[str]
) -> None:
    outputs = list(dict.fromkeys(o for n in nodes for o in n.output))
    if any(n.op_type == "If" for n in nodes):
        inputs = {**inputs, "c": []}
    path = saved(tmp_path / "m.onnx", nodes, inputs, outputs)
    if "c" in inputs:
        proto = onnx.load(path)
        proto.graph.input[-1].type.tensor_type.elem_type = TensorProto.BOOL
        onnx.save(proto, path)
    dims = read_model(path).dims
    assert {name for name, (low, _) in dims.items() if low == 0} == empty
    assert dims["b"] == dims["s"] == (1, None)


def test_decoding_from_an_empty_cache(tmp_path: Path) -> None:
    nodes = [
        node("Relu", ["x"], ["r"]), node("Concat", ["p", "r"], ["k"], axis=2),
        node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]), node("MatMul", ["r", "t"], ["s"]),
        node("Softmax", ["s"], ["w"], axis=-1), node("MatMul", ["w", "k"], ["y"]),
    ]  # fmt: skip
    path = saved(tmp_path / "m.onnx", nodes, CACHE, ["y", "k"])
    assert not atc.convert(path, tmp_path / "m.om").aicpu_nodes
    ours = InferSession(0, tmp_path / "m.om")
    theirs = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for batch, tokens, past in ((1, 4, 0), (2, 1, 4), (2, 1, 0)):
        feed = {n: rng.normal(size=(batch, 2, s, 8)).astype(np.float32) for n, s in (("x", tokens), ("p", past))}
        for got, want in zip(ours.infer(feed), theirs.run(None, feed), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
