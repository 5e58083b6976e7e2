"""What a model's own operators give in float64 on the oracle's values: tells an oracle that is inexact from a kernel
that is wrong.

Runtimes approximate, too: onnxruntime's Sigmoid of -20 is 0, not 2e-9. ONNX's evaluator computes the model's nodes, so
nothing that the compiler made of them takes part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from atc.golden_stages import free_names, part_of

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_MOST_NODES = 256


def exact_value(proto: onnx.ModelProto, tensor: str, values: Mapping[str, Any]) -> np.ndarray | None:
    """The tensor in float64, by the nodes between it and tensors of `values`. None where ONNX's evaluator lacks an
    operator, or something that the nodes take is not at hand."""
    from onnx.reference import ReferenceEvaluator

    held = {name: value for name, value in values.items() if name != tensor and isinstance(value, np.ndarray)}
    nodes = _nodes_between(proto.graph, tensor, held)
    if nodes is None:
        return None
    try:
        part = part_of(proto, nodes, held, [tensor])
        _widen(part.graph)
        evaluator = ReferenceEvaluator(part)
        with np.errstate(all="ignore"):
            found = evaluator.run([tensor], {n: _wide(held[n]) for n in evaluator.input_names})[0]
    except Exception:  # whatever its implementations raise: then nobody is to be acquitted
        return None
    return found if isinstance(found, np.ndarray) and found.dtype == np.float64 else None


def _nodes_between(graph: onnx.GraphProto, tensor: str, held: Mapping[str, Any]) -> list[onnx.NodeProto] | None:
    """The nodes that compute a tensor from what is held and from constants, in order."""
    makers = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    at_hand = held.keys() | {t.name for t in graph.initializer}
    wanted, found = [tensor], set()
    while wanted:
        name = wanted.pop()
        if name not in makers:
            return None
        if makers[name] in found:
            continue
        found.add(makers[name])
        if len(found) > _MOST_NODES:
            return None
        wanted += [n for n in free_names(graph.node[makers[name]]) if n not in at_hand]
    return [graph.node[at] for at in sorted(found)]


def _widen(graph: onnx.GraphProto) -> None:
    """Makes everything that is of a narrower float float64, in place."""
    for declared in graph.input:
        kind = declared.type.tensor_type
        if kind.elem_type in _FLOATS:
            kind.elem_type = TensorProto.DOUBLE
    for constant in graph.initializer:
        _widen_tensor(constant)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif attribute.name in ("to", "dtype") and attribute.i in _FLOATS:
                attribute.i = TensorProto.DOUBLE
            for body in _bodies(attribute):
                _widen(body)
        if node.op_type == "Constant" and node.attribute[0].name in ("value_float", "value_floats"):
            given = onnx.helper.get_attribute_value(node.attribute[0])
            value = numpy_helper.from_array(np.asarray(given, np.float64))
            node.attribute[0].CopyFrom(onnx.helper.make_attribute("value", value))


def _bodies(attribute: AttributeProto) -> Iterator[onnx.GraphProto]:
    if attribute.type == AttributeProto.GRAPH:
        yield attribute.g
    yield from attribute.graphs


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in _FLOATS:
        tensor.CopyFrom(numpy_helper.from_array(_wide(numpy_helper.to_array(tensor)), tensor.name))


def _wide(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float64) if value.dtype.kind in "fV" and value.dtype.itemsize < 8 else value
