"""An imported graph back to ONNX of opset 21, so that onnxruntime can say what the imported form means."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from graph_opt.ir import Graph, Value

OPSET = 21


def to_model(graph: Graph) -> onnx.ModelProto:
    """A ModelProto with the same nodes, for graphs of the standard operators that opset 21 has."""
    model = helper.make_model(_graph(graph), opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = 10
    return model


def _graph(graph: Graph) -> onnx.GraphProto:
    nodes = []
    for node in graph.nodes:
        attrs = {k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in node.attrs.items()}
        bodies = {key: _graph(body) for key, body in node.subgraphs.items()}
        inputs = ["" if v is None else v.name for v in node.inputs]
        outputs = [v.name for v in node.outputs]
        nodes.append(helper.make_node(node.op, inputs, outputs, name=node.name, **attrs, **bodies))
    constants = [numpy_helper.from_array(np.array(v.data, order="C"), v.name) for v in graph.constants()]
    return helper.make_graph(nodes, graph.name, _infos(graph.inputs), _infos(graph.outputs), constants)


def _infos(values: list[Value]) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(v.name, v.dtype.onnx, None if v.shape is None else list(map(_extent, v.shape)))
        for v in values
    ]


def _extent(extent: object) -> int | None:
    return extent if isinstance(extent, int) else None
