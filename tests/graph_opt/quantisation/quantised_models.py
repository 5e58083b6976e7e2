"""Small quantised models, run as converted packages and by onnxruntime: its own rewriting off, products exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import atc
from acl_runtime import InferSession
from atc.exact_products import make_products_exact

Arrays = Mapping[str, np.ndarray]


def model(nodes: Sequence[onnx.NodeProto], constants: Arrays, inputs: Arrays, outputs: Sequence[str]) -> onnx.ModelProto:
    """A model of opset 21 whose outputs have whatever type inference finds."""
    wire = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in inputs.items()]
    graph = helper.make_graph(
        list(nodes), "g", wire, [onnx.ValueInfoProto(name=o) for o in outputs],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def both(
    folder: Path, nodes: Sequence[onnx.NodeProto], constants: Arrays, inputs: Arrays, outputs: Sequence[str]
) -> tuple[list[np.ndarray], list[np.ndarray], atc.ConvertResult]:
    """(ours, onnxruntime's, what conversion made)."""
    proto = model(nodes, constants, inputs, outputs)
    path = folder / "m.onnx"
    onnx.save(proto, path)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    make_products_exact(proto)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected = session.run(list(outputs), dict(inputs))
    result = atc.convert(path, folder / "m.om")
    return InferSession(0, folder / "m.om").infer(dict(inputs)), expected, result


def steps_apart(ours: np.ndarray, theirs: np.ndarray) -> int:
    """Greatest difference of two tensors of codes."""
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    return int(np.abs(ours.astype(np.int64) - theirs.astype(np.int64)).max(initial=0))
