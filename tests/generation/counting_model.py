"""A decoder whose answer is arithmetic: behind token t the next one is (5 t + sum of all tokens so far) mod V.

Its cache holds the tokens, so a wrong cache gives a wrong token; `follow` says the same in plain Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

V = 23


def follow(tokens: Sequence[int]) -> int:
    return (5 * tokens[-1] + sum(tokens)) % V


def continued(prompt: Sequence[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(follow(tokens))
    return tokens[len(prompt) :]


def build(path: Path, last_only: bool = False, names: tuple[str, str, str] = ("input_ids", "past.0.key", "present.0.key")
          ) -> Path:  # fmt: skip
    """tokens i64 [batch, sequence], a cache f32 [batch, 1, past, 1] → logits f32 [batch, sequence or 1, V]."""
    tokens, past, present = names
    i64, f32 = TensorProto.INT64, TensorProto.FLOAT

    def constant(name: str, value: object, dtype: type = np.int64) -> onnx.TensorProto:
        return numpy_helper.from_array(np.array(value, dtype), name)

    node = helper.make_node
    nodes = [
        node("Cast", [tokens], ["t"], to=f32),
        node("Unsqueeze", ["t", "axes"], ["t4"]),
        node("Concat", [past, "t4"], [present], axis=2),
        node("CumSum", [present, "two"], ["sums"]),
        node("Shape", [past], ["before"], start=2, end=3),
        node("Slice", ["sums", "before", "end", "axis2"], ["own"]),
        node("Mul", ["t4", "five"], ["t5"]),
        node("Add", ["t5", "own"], ["whole"]),
        node("Mod", ["whole", "v"], ["next"], fmod=1),
        node("Sub", ["range", "next"], ["apart"]),  # [batch, 1, sequence, V]
        node("Abs", ["apart"], ["distance"]),
        node("Neg", ["distance"], ["near"]),
        node("Squeeze", ["near", "axis1"], ["all"]),
    ]
    nodes.append(node("Gather", ["all", "last"], ["logits"], axis=1) if last_only else node("Identity", ["all"], ["logits"]))
    constants = [
        constant("axes", [1, 3]), constant("two", 2), constant("end", [1 << 40]), constant("axis2", [2]),
        constant("axis1", [1]), constant("five", 5, np.float32), constant("v", V, np.float32), constant("last", [-1]),
        constant("range", np.arange(V).reshape(1, 1, 1, V), np.float32),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "counting",
        [helper.make_tensor_value_info(tokens, i64, ["batch", "sequence"]),
         helper.make_tensor_value_info(past, f32, ["batch", 1, "past", 1])],
        [helper.make_tensor_value_info("logits", f32, ["batch", 1 if last_only else "sequence", V]),
         helper.make_tensor_value_info(present, f32, ["batch", 1, "total", 1])],
        constants,
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path
