"""Rewrites integer products so that onnxruntime computes them exactly.

On x86 without VNNI, onnxruntime's products of unsigned by signed bytes add pairs of products in 16 bits, which
saturate (its session.x64quantprecision=1 helps only at optimisation levels that fuse); its ConvInteger takes signed
inputs for unsigned ones where the weight is unsigned. Other pairs of byte types are exact. A signed operand b with zero
point z is therefore replaced by the unsigned b + 128 with zero point z + 128: the differences b - z, and so the
product, stay what they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx

from frontend.tensors import to_array


class _Operand(NamedTuple):
    """Input numbers of an operator: an operand, its zero point, and where the type of the other operand shows."""

    operand: int
    zero: int
    other: tuple[int, ...]


_PRODUCTS: dict[tuple[str, str], tuple[_Operand, ...]] = {
    ("", "MatMulInteger"): (_Operand(1, 3, (0, 2)),),
    ("", "ConvInteger"): (_Operand(0, 2, (1, 3)),),
    ("", "QLinearMatMul"): (_Operand(3, 5, (0, 2)),),
    ("", "QLinearConv"): (_Operand(3, 5, (0, 2)),),
    ("com.microsoft", "DynamicQuantizeMatMul"): (_Operand(1, 3, ()),),
    ("com.microsoft", "MatMulIntegerToFloat"): (_Operand(1, 5, (0, 4)),),
    ("com.microsoft", "QGemm"): (_Operand(3, 5, (0, 2)),),
    ("com.microsoft", "QAttention"): (_Operand(1, 7, (0, 6)),),
    ("com.microsoft", "DynamicQuantizeLSTM"): (_Operand(1, 9, ()), _Operand(2, 11, ())),
}
"""Operands that must not be signed while the other one is unsigned."""


def make_products_exact(proto: onnx.ModelProto) -> None:
    """Rewrites the products of a model, those of its subgraphs included, in place; external data are loaded.

    1. An operand of signed bytes becomes unsigned: a constant in place, a computed one by Cast, Add, Cast.
    2. Its zero point likewise; an absent one is 128.
    3. Where the other operand is known to be signed nothing changes: that product is exact.
    """
    if any(map(_has_products, (proto.graph, *_subgraphs(proto.graph)))):
        _rewrite(proto.graph, _Scope({}, _types(proto)))


class _Scope(NamedTuple):
    """What a graph sees: constants by name, and element types of computed tensors."""

    constants: Mapping[str, onnx.TensorProto]
    types: Mapping[str, int]

    def element(self, name: str) -> int | None:
        return self.constants[name].data_type if name in self.constants else self.types.get(name)


def _types(proto: onnx.ModelProto) -> dict[str, int]:
    """Element types that the model states or that inference finds."""
    try:
        inferred = onnx.shape_inference.infer_shapes(proto) if proto.ByteSize() < 1 << 30 else proto
    except Exception:  # inference of a model that onnxruntime may run all the same: what it states is enough
        inferred = proto
    graph = inferred.graph
    return {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info, *graph.output)}


def _rewrite(graph: onnx.GraphProto, outer: _Scope) -> None:
    constants = {**outer.constants, **{t.name: t for t in graph.initializer}}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            constants[node.output[0]] = node.attribute[0].t
    scope = _Scope(constants, outer.types)
    names = {*constants, *scope.types, *(o for n in graph.node for o in n.output)}
    done: dict[str, str] = {}
    nodes: list[onnx.NodeProto] = []

    def unsigned(name: str) -> str:
        if name in done:
            return done[name]
        new = name + "/unsigned"
        while new in names:
            new += "+"
        names.add(new)
        done[name] = new
        if name in scope.constants:
            moved = to_array(scope.constants[name], Path()).astype(np.int16) + 128
            graph.initializer.append(onnx.numpy_helper.from_array(moved.astype(np.uint8), new))
            return new
        offset = onnx.numpy_helper.from_array(np.array(128, np.int32), new + "/offset")
        graph.initializer.append(offset)
        wide, moved_name = new + "/wide", new + "/moved"
        make = onnx.helper.make_node
        nodes.append(make("Cast", [name], [wide], to=onnx.TensorProto.INT32))
        nodes.append(make("Add", [wide, offset.name], [moved_name]))
        nodes.append(make("Cast", [moved_name], [new], to=onnx.TensorProto.UINT8))
        return new

    for node in graph.node:
        for body in _bodies(node):
            _rewrite(body, scope)
        for place in _operands(node):
            if not _is_mixed(node, place, scope):
                continue
            inputs = list(node.input) + [""] * (place.zero + 1 - len(node.input))
            inputs[place.operand] = unsigned(inputs[place.operand])
            if inputs[place.zero]:
                inputs[place.zero] = unsigned(inputs[place.zero])
            else:
                inputs[place.zero] = inputs[place.operand] + "/zero"
                if inputs[place.zero] not in names:
                    names.add(inputs[place.zero])
                    graph.initializer.append(onnx.numpy_helper.from_array(np.array(128, np.uint8), inputs[place.zero]))
            del node.input[:]
            node.input.extend(inputs)
        nodes.append(node)
    made = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del graph.node[:]
    graph.node.extend(made)


def _is_mixed(node: onnx.NodeProto, place: _Operand, scope: _Scope) -> bool:
    """True if the operand is of signed bytes, and the other one is not known to be."""
    signed = onnx.TensorProto.INT8
    if place.operand >= len(node.input) or scope.element(node.input[place.operand]) != signed:
        return False
    return all(scope.element(node.input[n]) != signed for n in place.other if n < len(node.input))


def _operands(node: onnx.NodeProto) -> tuple[_Operand, ...]:
    return _PRODUCTS.get(("" if node.domain == "ai.onnx" else node.domain, node.op_type), ())


def _bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [a.g for a in node.attribute if a.HasField("g")]


def _subgraphs(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    found = []
    for node in graph.node:
        for body in _bodies(node):
            found += [body, *_subgraphs(body)]
    return found


def _has_products(graph: onnx.GraphProto) -> bool:
    return any(_operands(n) for n in graph.node)
