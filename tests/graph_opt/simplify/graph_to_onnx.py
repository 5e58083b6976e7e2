"""A graph written as ONNX for given dims, so that onnxruntime says what it computes, before and after a pass."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from graph_opt.ir import Graph, Node, Value
from tensor_types.dims import evaluate

OPSET = 24


def run(graph: Graph, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by name under onnxruntime, its optimisations off."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = to_model(graph, dims_of(graph, feeds))
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = list(dict.fromkeys(v.name for v in graph.outputs))
    return dict(zip(names, session.run(names, {k: feeds[k] for k in (v.name for v in graph.inputs)}), strict=True))


def dims_of(graph: Graph, feeds: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Sizes of the named dims of the inputs."""
    return {
        str(extent): size
        for value in graph.inputs
        for extent, size in zip(value.shape or (), feeds[value.name].shape, strict=True)
        if not isinstance(extent, int)
    }


def to_model(graph: Graph, dims: Mapping[str, int]) -> onnx.ModelProto:
    """All nodes in their order. Guards are left out: both sides are computed, and IfMerge selects."""
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(_graph(graph, dims), opset_imports=imports)
    model.ir_version = 10
    return model


def _graph(graph: Graph, dims: Mapping[str, int]) -> onnx.GraphProto:
    constants = [
        numpy_helper.from_array(np.ascontiguousarray(v.data).reshape(v.data.shape), v.name)  # type: ignore[union-attr]
        for v in graph.constants()
    ]
    nodes = []
    for node in graph.nodes:
        proto, extra = _node(node, dims)
        nodes.append(proto)
        constants += extra
    names = []
    for value in dict.fromkeys(graph.outputs):
        names.append(value.name)
        if graph.values.get(value.name) is not value:  # onnxruntime wants an outer value to pass an Identity
            names[-1] = f"{value.name}/{graph.name}"
            nodes.append(helper.make_node("Identity", [value.name], names[-1:]))
    outputs = [helper.make_empty_tensor_value_info(name) for name in names]
    return helper.make_graph(nodes, graph.name, [_info(v) for v in graph.inputs], outputs, constants)


def _node(node: Node, dims: Mapping[str, int]) -> tuple[onnx.NodeProto, list[onnx.TensorProto]]:
    domain, _, op = node.op.rpartition("::")
    inputs = ["" if v is None else v.name for v in node.inputs]
    extra: list[onnx.TensorProto] = []
    if op == "Reshape" and node.input(1) is None:  # the output's shape is the target
        target = np.array([evaluate(d, dims) for d in node.output.shape or ()], np.int64)
        extra.append(numpy_helper.from_array(target, f"{node.output.name}/target"))
        inputs = [inputs[0], extra[0].name]
    op = "Where" if op == "IfMerge" else op
    attrs = {
        key: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for key, value in node.attrs.items()
        if key != "opset" and value is not None
    }
    bodies = {key: _graph(body, dims) for key, body in node.subgraphs.items()}
    outputs = [v.name for v in node.outputs]
    return helper.make_node(op, inputs, outputs, name=node.name, domain=domain, **attrs, **bodies), extra


def _info(value: Value) -> onnx.ValueInfoProto:
    shape = None if value.shape is None else [d if isinstance(d, int) else None for d in value.shape]
    return helper.make_tensor_value_info(value.name, value.dtype.onnx, shape)
