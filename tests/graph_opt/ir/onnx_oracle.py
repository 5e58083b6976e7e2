"""One node through onnxruntime and through inference, with static and with symbolic extents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from graph_opt.ir.core import Graph, Value
from graph_opt.ir.infer import infer_graph
from tensor_types.dims import dim, evaluate
from tensor_types.dtypes import F32, from_numpy

OPSET = 23


def run(op: str, inputs: Sequence[np.ndarray | None], attrs: Mapping[str, Any], outputs: int) -> list[np.ndarray]:
    """What onnxruntime computes."""
    names = ["" if a is None else f"i{k}" for k, a in enumerate(inputs)]
    domain, _, name = op.rpartition("::")
    node = helper.make_node(name, names, [f"o{k}" for k in range(outputs)], domain=domain, **attrs)
    declared = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, inputs, strict=True)
        if a is not None
    ]
    results = [onnx.ValueInfoProto(name=f"o{k}") for k in range(outputs)]
    graph = helper.make_graph([node], "g", declared, results)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {n: a for n, a in zip(names, inputs, strict=True) if a is not None})


def infer(
    op: str, inputs: Sequence[np.ndarray | None], attrs: Mapping[str, Any], outputs: int, constants: set[int],
    symbolic: bool,
) -> tuple[list[Value], dict[str, int], Graph]:  # fmt: skip
    """Output values with inferred types, the extents that the dims stand for, and the graph."""
    graph = Graph()
    env: dict[str, int] = {}
    operands: list[Value | None] = []
    for k, array in enumerate(inputs):
        if array is None:
            operands.append(None)
            continue
        if k in constants:
            operands.append(graph.add_constant(f"i{k}", array, from_numpy(array.dtype)))
            continue
        shape = list(array.shape)
        if symbolic:
            for axis, extent in enumerate(array.shape):
                name = f"d{k}_{axis}"
                env[name], graph.dims[name], shape[axis] = extent, (1, None), dim(name)
        operands.append(graph.add_value(f"i{k}", from_numpy(array.dtype), tuple(shape)))
    results = [graph.add_value(f"o{k}", F32, None) for k in range(outputs)]
    graph.add_node(op, operands, results, attrs)
    infer_graph(graph)
    return results, env, graph


def check(
    op: str,
    inputs: Sequence[np.ndarray | None],
    attrs: Mapping[str, Any] | None = None,
    *,
    outputs: int = 1,
    constants: set[int] | None = None,
    symbolic: bool = True,
    content: bool = False,
) -> None:
    """Asserts that dtype and shape are onnxruntime's, statically and, with `symbolic`, for every extent as a dim.

    `constants` are the inputs whose data inference may read. With `content`, output 0 must carry its exact elements.
    """
    attrs, constants = attrs or {}, constants or set()
    expected = run(op, inputs, attrs, outputs)
    for as_dims in (False, True) if symbolic else (False,):
        values, env, graph = infer(op, inputs, attrs, outputs, constants, as_dims)
        for value, array in zip(values, expected, strict=True):
            assert value.dtype == from_numpy(array.dtype)
            assert value.shape is not None
            assert tuple(evaluate(d, env) for d in value.shape) == array.shape, (value, env)
            if value.content is not None:
                got = [evaluate(c, env) for c in value.content]
                assert got == [int(v) for v in np.asarray(array).reshape(-1)], (value, env)
        assert values[0].content is not None or not content
        before = [v.shape for v in values]
        infer_graph(graph)
        assert [v.shape for v in values] == before
