"""Nodes as tasks of the AI CPU: attributes and bodies of control flow as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from codegen.lowering.lowered import Lowered
from graph_opt.ir import Graph, Node
from graph_opt.ir.reads import captured_values
from graph_opt.plan.records import AicpuRecord
from tensor_types.dtypes import from_numpy


def add_aicpu_task(lowered: Lowered, node: Node, reason: str) -> None:
    """Adds the task of a node that has no kernel because of `reason`."""
    captured = [v for v in captured_values(node) if v is not None]
    names = tuple(None if v is None else v.name for v in (*node.inputs, *captured))
    outputs = tuple(v.name for v in node.outputs)
    attrs = _plain_attrs(node.attrs)
    if node.subgraphs:
        attrs["captured"] = [v.name for v in captured]
        attrs.update({name: _body(body) for name, body in node.subgraphs.items()})
    lowered.add(AicpuRecord(node.op, names, outputs, node.name, attrs, reason), node)


def add_loop_task(lowered: Lowered, node: Node, body: Lowered) -> None:
    """Adds the task of a closed loop, whose body was lowered."""
    names = tuple(None if v is None else v.name for v in node.inputs)
    record = AicpuRecord(
        node.op.removeprefix("Closed"), names, tuple(v.name for v in node.outputs), node.name,
        _plain_attrs(node.attrs), body=len(lowered.bodies),
    )  # fmt: skip
    lowered.bodies.append((node.subgraphs["body"], body))
    lowered.add(record, node)


def _plain_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as JSON values; a tensor as its dtype, shape and flat values."""
    return {k: _plain(v) for k, v in attrs.items()}


def _body(graph: Graph) -> dict[str, Any]:
    """A subgraph as the AI CPU runs it: JSON, values by name."""
    nodes = []
    for node in graph.nodes:
        attrs = _plain_attrs(node.attrs)
        if node.subgraphs:
            attrs["captured"] = [v.name for v in captured_values(node)]
            attrs.update({name: _body(body) for name, body in node.subgraphs.items()})
        inputs = [None if v is None else v.name for v in node.inputs]
        nodes.append({"op": node.op, "attrs": attrs, "inputs": inputs, "outputs": [v.name for v in node.outputs]})
    return {
        "inputs": [v.name for v in graph.inputs],
        "outputs": [v.name for v in graph.outputs],
        "nodes": nodes,
        "constants": {v.name: _plain(v.data) for v in graph.constants()},
        "types": [[v.dtype.name, [d if isinstance(d, int) else None for d in v.shape or ()]] for v in graph.outputs],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        name = from_numpy(value.dtype).name
        flat = value.reshape(-1)
        values = [str(v) for v in flat] if name == "str" else flat.tolist()
        return {"dtype": name, "shape": list(value.shape), "values": values}
    return list(value) if isinstance(value, tuple) else value
