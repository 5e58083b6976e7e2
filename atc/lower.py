"""Lowering: every node of the optimised graph becomes kernel, host or alias records, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from codegen.kernels import lower_node
from codegen.targets import Target
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.ops.registry import is_fresh
from graph_opt.ir.rewriter import Rewriter, captured_values
from graph_opt.plan.records import AliasRecord, HostRecord, KernelRecord, Record
from tensor_types.dims import Dim, names, product
from tensor_types.dtypes import from_numpy

RESHAPES = {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"}


@dataclass
class Lowered:
    """Records in order, and the guards of each (name of a bool value, expected byte), outer first."""

    records: list[Record] = field(default_factory=list)
    guards: list[tuple[tuple[str, int], ...]] = field(default_factory=list)

    def add(self, record: Record, node: Node) -> None:
        self.records.append(record)
        words = node.attrs.get("guards") or ()
        pairs = (str(word).rsplit("=", 1) for word in words)  # type: ignore[union-attr]
        self.guards.append(tuple((name, int(expected)) for name, expected in pairs))


def lower_graph(graph: Graph, target: Target) -> Lowered:
    """Records of all nodes. A fused node without a kernel for it falls apart into its operators on the AI CPU."""
    lowered = Lowered()
    for node in list(graph.nodes):
        if is_alias(graph, node):
            source = node.inputs[0]
            assert source is not None
            lowered.add(AliasRecord(node.output.name, source.name, node.name), node)
            continue
        if _add_slices(lowered, node):
            continue
        if node.op == "IfMerge" and _add_merge(lowered, node, target):
            continue
        late = any(is_late(v) for v in (*node.inputs, *node.outputs) if v is not None)
        records = lower_node(node, target) if node.op == "Fused" and not late else None
        if records is not None:
            for record in records:
                _surface_constants(graph, node, record)
                lowered.add(record, node)
            continue
        for inner in Rewriter(graph).inline(node) if node.op == "Fused" else [node]:
            reason = (
                "its size is known only at run time"
                if late
                else "no kernel for it"
                if node.op != "Fused"
                else "no kernel for this form"
            )
            _add_host(lowered, inner, reason)
    _drop_unread(graph, lowered)
    return lowered


def _drop_unread(graph: Graph, lowered: Lowered) -> None:
    """Records that nothing reads go: kernels take shapes from the types, not from the operators that compute them."""
    read = {v.name for v in graph.outputs}
    kept = []
    for record, guards in zip(reversed(lowered.records), reversed(lowered.guards), strict=True):
        takes, gives = _names(record)
        if read.isdisjoint(gives):
            continue
        read.update(takes)
        read.update(name for name, _ in guards)
        kept.append((record, guards))
    kept.reverse()
    lowered.records = [r for r, _ in kept]
    lowered.guards = [g for _, g in kept]


def _names(record: Record) -> tuple[set[str], set[str]]:
    """Names of the values that a record takes and gives."""
    if isinstance(record, AliasRecord):
        return {record.input}, {record.output}
    if isinstance(record, HostRecord):
        return {n for n in record.inputs if n}, set(record.outputs)
    takes = {o.value for o in record.operands if o.value and o.role in ("in", "inout")}
    return takes, {o.value for o in record.operands if o.value and o.role in ("out", "inout")}


def _add_slices(lowered: Lowered, node: Node) -> bool:
    """A Split of the leading axis is a set of aliases at increasing offsets. False for any other node."""
    if node.op == "Fused" and [n.op for n in node.subgraphs["body"].nodes] == ["Split"]:
        split = node.subgraphs["body"].nodes[0]
    elif node.op == "Split":
        split = node
    else:
        return False
    source = node.input(0)
    if source is None or source.is_constant or any(is_late(v) for v in (source, *node.outputs)):
        return False
    assert source.shape is not None
    axis = int(split.attrs.get("axis", 0)) % source.rank  # type: ignore[call-overload]
    memory = _axes_in_memory(source)
    if memory[:1] not in ([], [axis]) or any(v.format != source.format for v in node.outputs):
        return False
    offset: Dim = 0
    for value in node.outputs:
        lowered.add(AliasRecord(value.name, source.name, node.name, offset), node)
        offset = offset + product(value.shape) * value.dtype.bytes
    return True


def _add_merge(lowered: Lowered, node: Node, target: Target) -> bool:
    """The results of two branches meet: the one that ran is copied. False if their shapes differ."""
    condition, *branches = node.inputs
    result = node.output
    assert condition is not None
    for expected, branch in zip((1, 0), branches, strict=True):
        if branch is None or branch.shape != result.shape or branch.is_constant:
            return False
        copy = _copy_node(branch, result, node.name, "movement")
        records = lower_node(copy, target)
        if any(isinstance(r, AliasRecord) for r in records or ()):
            # Equal bytes, but only one branch of the two may be the result: they have to be copied.
            copy = _copy_node(branch, result, node.name, "region")
            records = lower_node(copy, target)
        if records is None or any(isinstance(r, AliasRecord) for r in records):
            return False
        guards = (*(node.attrs.get("guards") or ()), f"{condition.name}={expected}")  # type: ignore[misc]
        copy.attrs["guards"] = guards  # type: ignore[assignment]
        for record in records:
            lowered.add(record, copy)
    return True


def _copy_node(source: Value, result: Value, name: str, family: str) -> Node:
    """A Fused node of `family`, in no graph, that copies one value into another."""
    body = Graph(family)
    inner = body.add_value(source.name, source.dtype, source.shape, format=source.format)
    copied = body.add_value(result.name, result.dtype, result.shape, format=result.format)
    body.inputs, body.outputs = [inner], [copied]
    body.add_node("Identity" if family == "region" else "Relayout", [inner], [copied], name=name)
    return Node("Fused", name, [source], [result], {"family": family}, {"body": body})


def _surface_constants(graph: Graph, node: Node, record: Record) -> None:
    """Constants that live in the body and that a task takes as an operand become constants of the graph."""
    if not isinstance(record, KernelRecord):
        return
    for operand in record.operands:
        inner = node.subgraphs["body"].values.get(operand.value or "")
        if inner is not None and inner.data is not None and inner.name not in graph.values:
            graph.add_constant(inner.name, inner.data, inner.dtype)


def _add_host(lowered: Lowered, node: Node, reason: str) -> None:
    captured = [v for v in captured_values(node) if v is not None]
    names = tuple(None if v is None else v.name for v in (*node.inputs, *captured))
    outputs = tuple(v.name for v in node.outputs)
    late = tuple(v.name for v in node.outputs if is_late(v))
    attrs = plain_attrs(node.attrs)
    if node.subgraphs:
        attrs["captured"] = [v.name for v in captured]
        attrs.update({name: _body(body) for name, body in node.subgraphs.items()})
    lowered.add(HostRecord(node.op, names, outputs, node.name, attrs, late, reason), node)


def plain_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as JSON values; a tensor as its dtype, shape and flat values."""
    return {k: _plain(v) for k, v in attrs.items() if k != "guards"}


def _body(graph: Graph) -> dict[str, Any]:
    """A subgraph as the AI CPU runs it: JSON, values by name."""
    nodes = []
    for node in graph.nodes:
        attrs = plain_attrs(node.attrs)
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
    }


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        name = from_numpy(value.dtype).name
        flat = value.reshape(-1)
        values = [str(v) for v in flat] if name == "str" else flat.tolist()
        return {"dtype": name, "shape": list(value.shape), "values": values}
    return list(value) if isinstance(value, tuple) else value


def is_late(value: Value) -> bool:
    """True if only the run decides the value's size: it lives as an object, for the AI CPU alone."""
    return (
        value.dtype.kind == "handle" or value.shape is None or any(is_fresh(n) for d in value.shape for n in names(d))
    )


def is_alias(graph: Graph, node: Node) -> bool:
    """True if the node's result has the bytes of its first input in the same order."""
    source = node.input(0)
    if any(is_late(v) for v in (*node.inputs, *node.outputs) if v is not None):
        return False
    if node.op not in RESHAPES and node.op not in ("Relayout", "Transpose") or source is None or source.shape is None:
        return False
    result = node.output
    if result.shape is None or source.is_constant or source.dtype != result.dtype:
        return False
    if node.op in ("Relayout", "Identity"):
        return _axes_in_memory(source) == _axes_in_memory(result)
    if node.op == "Transpose":
        perm = list(node.attrs.get("perm") or reversed(range(source.rank)))  # type: ignore[call-overload]
        return _axes_in_memory(source) == [perm[a] for a in _axes_in_memory(result)]
    plain = [sorted(_axes_in_memory(v)) == _axes_in_memory(v) for v in (source, result)]
    if all(plain):
        return True
    permutations = (source.format.permutation, result.format.permutation)
    both_last = all(p is not None and p[0] == 0 and p[-1] == 1 for p in permutations)
    return both_last and source.shape[:2] == result.shape[:2]


def _axes_in_memory(value: Value) -> list[int]:
    """Logical axes from outermost to innermost, those of extent 1 left out."""
    assert value.shape is not None
    order = value.format.permutation or range(len(value.shape))
    return [a for a in order if value.shape[a] != 1]


def kernel_records(lowered: Lowered) -> list[KernelRecord]:
    """The native ones."""
    return [r for r in lowered.records if isinstance(r, KernelRecord)]


def host_records(lowered: Lowered) -> list[HostRecord]:
    """Those of the AI CPU."""
    return [r for r in lowered.records if isinstance(r, HostRecord)]
