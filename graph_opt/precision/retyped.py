"""A node as it would be in another dtype, to ask its family for: nothing in the graph changes."""

from __future__ import annotations

from graph_opt.fusion.families import Kernels
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.infer import infer_node
from graph_opt.ir.outline import outline
from graph_opt.precision.decisions import narrowable_inputs, needs_no_kernel
from graph_opt.precision.lists import ACCUMULATES
from tensor_types.dtypes import F32, DType
from tensor_types.recipes import cast


def has_kernel(graph: Graph, node: Node, dtype: DType, kernels: Kernels) -> bool:
    """True if a node that computes in f32 has a kernel that takes its operands in `dtype`, or needs none."""
    if needs_no_kernel(node):
        return True
    family = kernels.of_node(node)
    if family is None or not family.retypes:
        return False
    return kernels.why_not(_retyped(graph, node, dtype, family.name)) is None


def _retyped(graph: Graph, node: Node, dtype: DType, family: str) -> Node:
    """The node as a Fused node of a family, in a graph of its own, with operands of `dtype`."""
    there = Graph(dims=graph.dims)
    changed = set(narrowable_inputs(node))
    copies: dict[Value, Value] = {}
    inside, outside = [node], list(node.inputs)
    if node.op == "Fused":
        body = node.subgraphs["body"]
        inside, outside = body.nodes, list(body.inputs)
    for index, value in enumerate(outside):
        if value is not None and value not in copies:
            copies[value] = _copy(there, value, dtype if index in changed else value.dtype)
    for member in inside:
        for value in member.inputs:
            if value is not None and value not in copies:
                copies[value] = _copy(there, value, dtype if value.dtype == F32 else value.dtype)
        operands = [None if v is None else copies[v] for v in member.inputs]
        for value in member.outputs:
            copies[value] = there.add_value(value.name, value.dtype, None, format=value.format)
        made = there.add_node(member.op, operands, [copies[v] for v in member.outputs], member.attrs, name=member.name)
        if member.op in ACCUMULATES:
            made.attrs["result_dtype"] = F32.name
        infer_node(there, made)
    attrs = {k: v for k, v in node.attrs.items() if k != "family"} if node.op == "Fused" else {}
    used = [v for v in inside[-1].outputs if v.uses or graph.is_output(v)] or inside[-1].outputs[:1]
    results = body.outputs if node.op == "Fused" else used
    return outline(there, there.nodes, family, attrs, public=[copies[v] for v in results]).node


def _copy(graph: Graph, value: Value, dtype: DType) -> Value:
    data = value.recipe
    if data is not None and dtype != value.dtype:
        data = cast(data, dtype)
    copy = graph.add_value(value.name, dtype, value.shape, data=data, format=value.format)
    copy.content = value.content
    return copy
