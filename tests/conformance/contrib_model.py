"""A model of one operator of com.microsoft, and its results by onnxruntime and by the product."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

import atc
from acl_runtime import InferSession
from atc.exact_products import make_products_exact


def model(
    op: str, arrays: list[Any], attrs: dict[str, Any], n_outputs: int, domain: str = "com.microsoft",
) -> onnx.ModelProto:  # fmt: skip
    names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
    # onnxruntime wants quantised weights and their scales as constants.
    constant = {
        n
        for n, a in zip(names, arrays, strict=True)
        if op.startswith(("MatMulN", "QLinear", "GatherBlock", "QAtt")) and n != _FED.get(op, "x0")
    }
    constant -= {
        f"x{i}" for i in ((3,) if op in ("QLinearAdd", "QLinearMul") else (2, 5) if op == "QLinearConcat" else ())
    }
    pairs = [(n, a) for n, a in zip(names, arrays, strict=True) if n]
    outputs = [f"y{i}" for i in range(n_outputs)]
    node = helper.make_node(op, names, outputs, domain=domain, **attrs)
    kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in pairs}
    floats = op in (
        "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "EmbedLayerNormalization", "GatherBlockQuantized", "QAttention",
    )  # fmt: skip
    out = onnx.TensorProto.FLOAT if floats else helper.np_dtype_to_tensor_dtype(pairs[0][1].dtype)
    if op == "QLinearConcat":
        out = onnx.TensorProto.UINT8
    kinds_out = [onnx.TensorProto.INT32 if op.startswith("Embed") and o == "y1" else out for o in outputs]
    graph = helper.make_graph(
        [node], "contrib",
        [helper.make_tensor_value_info(n, kinds[n], a.shape) for n, a in pairs if n not in constant],
        [helper.make_tensor_value_info(o, k, None) for o, k in zip(outputs, kinds_out, strict=True)],
        [onnx.numpy_helper.from_array(a, n) for n, a in pairs if n in constant],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


_FED = {"GatherBlockQuantized": "x1"}
"""The input that is no constant, where it is not the first."""


def theirs(
    op: str, arrays: list[Any], attrs: dict[str, Any], n_outputs: int, domain: str = "com.microsoft"
) -> list[np.ndarray]:
    """The outputs by onnxruntime."""
    proto = model(op, arrays, attrs, n_outputs, domain)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    exact = onnx.ModelProto.FromString(proto.SerializeToString())
    make_products_exact(exact)
    session = ort.InferenceSession(exact.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, _fed(proto, arrays)))


def ours(
    op: str, arrays: list[Any], attrs: dict[str, Any], n_outputs: int, folder: Path, domain: str = "com.microsoft",
) -> list[np.ndarray]:  # fmt: skip
    """The outputs by a converted package."""
    proto = model(op, arrays, attrs, n_outputs, domain)
    onnx.save(proto, folder / "m.onnx")
    atc.convert(folder / "m.onnx", folder / "m.om")
    return InferSession(0, folder / "m.om").infer(_fed(proto, arrays))


def both(
    op: str, arrays: list[Any], attrs: dict[str, Any], n_outputs: int, folder: Path, domain: str = "com.microsoft",
) -> tuple[list[np.ndarray], list[np.ndarray]]:  # fmt: skip
    """What `theirs` and `ours` give."""
    return theirs(op, arrays, attrs, n_outputs, domain), ours(op, arrays, attrs, n_outputs, folder, domain)


def _fed(proto: onnx.ModelProto, arrays: list[Any]) -> dict[str, np.ndarray]:
    return {i.name: arrays[int(i.name[1:])] for i in proto.graph.input}
