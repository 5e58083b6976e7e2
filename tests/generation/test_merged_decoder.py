"""Decoders that optimum merges: an If over `use_cache_branch`, one branch reads the past, the other has none.

The first call has a past of no rows, whichever branch runs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import atc
from acl_runtime import InferSession
from acl_runtime.generation import Decoder, Generator, Sampling

VOCABULARY, WIDTH, HEADS, SIZE = 32, 16, 2, 8
CACHES = ["past_key_values.0.key", "past_key_values.0.value"]


def _branch(past: bool) -> onnx.GraphProto:
    own = "with" if past else "without"
    nodes: list[onnx.NodeProto] = []

    def op(kind: str, *inputs: str, **attrs: object) -> str:
        nodes.append(helper.make_node(kind, list(inputs), [f"{own}.{len(nodes)}"], **attrs))
        return nodes[-1].output[0]

    x = op("Gather", "embedding", "input_ids", axis=0)
    q, *present = (op("Transpose", op("Reshape", op("MatMul", x, f"w{k}"), "heads"), perm=[0, 2, 1, 3]) for k in "qkv")
    present = [op("Concat", c, n, axis=2) if past else op("Identity", n) for c, n in zip(CACHES, present, strict=True)]
    weights = op("Softmax", op("MatMul", q, op("Transpose", present[0], perm=[0, 1, 3, 2])), axis=-1)
    context = op("Transpose", op("MatMul", weights, present[1]), perm=[0, 2, 1, 3])
    logits = op("MatMul", op("Reshape", context, "joined"), "wo")
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in (logits, *present)]
    return helper.make_graph(nodes, own, [], outputs)


def _merged(path: Path) -> None:
    rng = np.random.default_rng(3)
    shapes = {"embedding": (VOCABULARY, WIDTH), "wq": (WIDTH, WIDTH), "wk": (WIDTH, WIDTH), "wv": (WIDTH, WIDTH),
              "wo": (WIDTH, VOCABULARY)}  # fmt: skip
    tensors = [numpy_helper.from_array((rng.standard_normal(s) * 0.5).astype(np.float32), n) for n, s in shapes.items()]
    tensors += [
        numpy_helper.from_array(np.array(v), n) for n, v in (("heads", [0, 0, HEADS, SIZE]), ("joined", [0, 0, WIDTH]))
    ]
    info, f32 = helper.make_tensor_value_info, TensorProto.FLOAT
    node = helper.make_node(
        "If", ["use_cache_branch"], ["logits", "present.0.key", "present.0.value"],
        then_branch=_branch(True), else_branch=_branch(False),
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "merged",
        [info("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"]),
         *(info(c, f32, ["batch_size", HEADS, "past_sequence_length", SIZE]) for c in CACHES),
         info("use_cache_branch", TensorProto.BOOL, [1])],
        [info("logits", f32, ["batch_size", "sequence_length", VOCABULARY]),
         *(info(f"present.0.{k}", f32, ["batch_size", HEADS, "total", SIZE]) for k in ("key", "value"))],
        tensors,
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_tokens_are_those_of_onnxruntime(tmp_path: Path) -> None:
    path, package = tmp_path / "merged.onnx", tmp_path / "merged.om"
    _merged(path)
    report = atc.convert(path, package)
    assert {n["op"] for n in report.aicpu_nodes} == {"IfMerge"}  # what is joined: caches whose length the branch decides
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    caches = [np.zeros((1, HEADS, 0, SIZE), np.float32)] * 2
    fresh, want, used = [5, 9, 2], [], False
    for _ in range(12):
        fed = {
            "input_ids": np.array([fresh]),
            "use_cache_branch": np.array([used]),
            **dict(zip(CACHES, caches, strict=True)),
        }
        logits, *caches = session.run(None, fed)
        fresh, used = [int(logits[0, -1].argmax())], True
        want += fresh
    ours = InferSession(0, package)
    made, _ = Generator(Decoder(ours)).generate([5, 9, 2], 12, Sampling())
    assert list(made.tokens) == want
    empty = np.zeros((1, HEADS, 0, SIZE), np.float32)
    for branch in (False, True):
        fed = {
            "input_ids": np.array([[5, 9, 2]]),
            "use_cache_branch": np.array([branch]),
            **dict.fromkeys(CACHES, empty),
        }
        for mine, theirs in zip(ours.infer(fed), session.run(None, fed), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
