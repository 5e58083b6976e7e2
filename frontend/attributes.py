"""AttributeProto to plain Python values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

from frontend.tensors import sparse_to_array, to_array
from graph_opt.ir.core import AttrValue

_A = onnx.AttributeProto


def attribute_values(node: onnx.NodeProto, source: Path) -> tuple[dict[str, AttrValue], dict[str, onnx.GraphProto]]:
    """Attributes by name, and subgraphs by name. Types (of Optional) are left out."""
    values: dict[str, AttrValue] = {}
    graphs: dict[str, onnx.GraphProto] = {}
    for item in node.attribute:
        if item.type == _A.GRAPH:
            graphs[item.name] = item.g
        elif (value := _value(item, source)) is not None:
            values[item.name] = value
    return values, graphs


def _value(item: onnx.AttributeProto, source: Path) -> Any:
    match item.type:
        case _A.FLOAT:
            return float(item.f)
        case _A.INT:
            return int(item.i)
        case _A.STRING:
            return item.s.decode("utf-8", "surrogateescape")
        case _A.TENSOR:
            return to_array(item.t, source)
        case _A.SPARSE_TENSOR:
            return sparse_to_array(item.sparse_tensor, source)
        case _A.FLOATS:
            return tuple(float(v) for v in item.floats)
        case _A.INTS:
            return tuple(int(v) for v in item.ints)
        case _A.STRINGS:
            return tuple(v.decode("utf-8", "surrogateescape") for v in item.strings)
        case _A.UNDEFINED:
            return _untyped(item)
    return None


def _untyped(item: onnx.AttributeProto) -> Any:
    """The first IR version did not store the type."""
    if item.HasField("f"):
        return float(item.f)
    if item.HasField("i"):
        return int(item.i)
    if item.HasField("s"):
        return item.s.decode("utf-8", "surrogateescape")
    return tuple(item.ints) or tuple(item.floats) or None
