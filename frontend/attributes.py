"""AttributeProto to plain Python values, and what is wrong with the attributes of a node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from frontend.tensors import sparse_to_array, to_array
from graph_opt.ir import ops
from graph_opt.ir.core import AttrValue
from tensor_types.errors import InvalidModel

_A = onnx.AttributeProto
_NEWEST = 1 << 30
"""Versions of other domains may be any number; onnx takes 32 bits."""


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


def check_attributes(node: onnx.NodeProto, domain: str, opset: int, where: Mapping[str, str]) -> list[str]:
    """What is odd about a node's attributes: names that its operator does not have.

    `domain` and `opset` say which form of the operator. InvalidModel for one that is needed and missing, or of another
    type than declared, by ONNX or, for operators that it lacks, by `graph_opt.ir.ops`.
    """
    declared = _declared(node.op_type, domain, opset)
    if declared is None:
        return []
    given = {item.name: item for item in node.attribute}
    for name, (type_, required) in declared.items():
        if name not in given:
            if required:
                raise InvalidModel(
                    f"the attribute {name} ({type_}) is missing", code="E14002", where=where,
                    remedy="the operator needs it: export the model again",
                )  # fmt: skip
            continue
        found = _A.AttributeType.Name(given[name].type).lower()
        if found not in (type_, "undefined"):  # the first IR version did not store the type
            raise InvalidModel(
                f"the attribute {name} has the type {found}, {type_} is expected", where=where,
                remedy="export the model again, or set the attribute to a value of that type",
            )  # fmt: skip
    unknown = [name for name in given if name not in declared]
    return [f"node {where['node']}: {node.op_type} knows no attribute {name}, it has no effect" for name in unknown]


def _declared(op_type: str, domain: str, opset: int) -> dict[str, tuple[str, bool]] | None:
    """Attributes of an operator: type, and whether it is needed; None where they are not known."""
    try:
        schema = onnx.defs.get_schema(op_type, max(1, min(opset, _NEWEST)), domain)
    except onnx.defs.SchemaError:
        own = ops.get(f"{domain}::{op_type}" if domain else op_type)
        if own is None or own.custom:
            return None
        return {name: (attr.type, False) for name, attr in own.attrs.items()}
    return {name: (str(a.type).rpartition(".")[2].lower(), a.required) for name, a in schema.attributes.items()}


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
