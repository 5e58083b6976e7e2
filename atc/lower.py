"""Lowering: every node of the optimised graph becomes kernel, host or alias records, in order."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from acl_runtime.kernels import check_program
from codegen.kernels import NotLowerable, lower_node
from codegen.targets import Target
from codegen.tile.verifier import VerifyError
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.ops.registry import is_fresh
from graph_opt.ir.rewriter import Rewriter, captured_values
from graph_opt.plan.records import AliasRecord, HostRecord, KernelRecord, Record
from graph_opt.plan.segments import decided, taken_and_given
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
        self.guards.append(guards_of(node))


def guards_of(node: Node) -> tuple[tuple[str, int], ...]:
    """The conditions under which a node of a flattened branch runs: (name of a bool value, expected byte)."""
    pairs = (str(word).rsplit("=", 1) for word in node.attrs.get("guards") or ())  # type: ignore[union-attr]
    return tuple((name, int(expected)) for name, expected in pairs)


def lower_graph(graph: Graph, target: Target) -> Lowered:
    """Records of all nodes. A fused node without a kernel for it falls apart into its operators on the AI CPU."""
    lowered = Lowered()
    sizes = _LateSizes(graph)
    for node in list(graph.nodes):
        late = sizes.are_late(node)
        if not late and is_alias(node):
            source = node.inputs[0]
            assert source is not None
            lowered.add(AliasRecord(node.output.name, source.name, node.name), node)
            continue
        if not late and _add_slices(lowered, node):
            continue
        if not late and node.op == "IfMerge" and _add_merge(lowered, node, target):
            continue
        try:
            if late:
                raise NotLowerable("its size is known only at run time")
            records = _native_records(node, target)
        except NotLowerable as reason:
            for inner in Rewriter(graph).inline(node) if node.op == "Fused" else [node]:
                _add_host(lowered, inner, str(reason))
                sizes.decide(inner)
            continue
        for record in records:
            _surface_constants(graph, node, record)
            lowered.add(record, node)
    _drop_unread(graph, lowered, sizes.decided_by)
    return lowered


def _native_records(node: Node, target: Target) -> list[Record]:
    """The tasks of a node; NotLowerable if its family has no kernel, or none that provably stays in bounds."""
    records = lower_node(node, target)
    for record in records:
        if isinstance(record, KernelRecord):
            _check(record.program, target.name)
    if not records and any(is_fresh(n) for v in node.outputs for d in v.shape or () for n in names(d)):
        raise NotLowerable("it has no elements, and only the run knows its shape")
    return records


@functools.lru_cache(maxsize=1024)
def _check(program: str, host: str) -> None:
    try:
        check_program(program, host)
    except VerifyError as error:
        raise NotLowerable(f"its kernel is not proven to be sound: {error.reason}") from error


def _drop_unread(graph: Graph, lowered: Lowered, decided_by: Mapping[str, str]) -> None:
    """Records that nothing reads go: kernels take shapes from the types, not from the operators that compute them.

    `decided_by` are the values whose sizes are read, by late dim, wherever a value has the dim.
    """
    read = {v.name for v in graph.outputs}
    kept = []
    for record, guards in zip(reversed(lowered.records), reversed(lowered.guards), strict=True):
        takes, gives = taken_and_given(record)
        if read.isdisjoint(gives):
            continue
        read.update(takes)
        sizes = [d for v in takes | gives if v in graph.values for d in graph.values[v].shape or ()]
        sizes += record.dims if isinstance(record, KernelRecord) else ()
        read.update(decided_by[name] for d in sizes for name in names(d) if name in decided_by)
        read.update(name for name, _ in guards)
        kept.append((record, guards))
    kept.reverse()
    lowered.records = [r for r, _ in kept]
    lowered.guards = [g for _, g in kept]


def _add_slices(lowered: Lowered, node: Node) -> bool:
    """A Split of the leading axis is a set of aliases at increasing offsets. False for any other node."""
    if node.op == "Fused" and [n.op for n in node.subgraphs["body"].nodes] == ["Split"]:
        split = node.subgraphs["body"].nodes[0]
    elif node.op == "Split":
        split = node
    else:
        return False
    source = node.input(0)
    if source is None or source.is_constant:
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
    copies: list[tuple[Node, list[Record]]] = []
    for expected, branch in zip((1, 0), branches, strict=True):
        if branch is None or branch.shape != result.shape or branch.is_constant:
            return False
        try:
            copy, records = _copy(branch, result, node.name, target)
        except NotLowerable:
            return False
        guards = (*(node.attrs.get("guards") or ()), f"{condition.name}={expected}")  # type: ignore[misc]
        copy.attrs["guards"] = guards  # type: ignore[assignment]
        copies.append((copy, records))
    for copy, records in copies:
        for record in records:
            lowered.add(record, copy)
    return True


def _copy(source: Value, result: Value, name: str, target: Target) -> tuple[Node, list[Record]]:
    """A node that copies one value into another, and its tasks; NotLowerable if that takes no task."""
    for family in ("movement", "region"):
        copy = _copy_node(source, result, name, family)
        records = _native_records(copy, target)
        if not any(isinstance(r, AliasRecord) for r in records):
            return copy, records
        # Equal bytes: movement would share them, but only one branch of the two may be the result.
    raise NotLowerable("the branches would share the bytes of the result")


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
    attrs = plain_attrs(node.attrs)
    if node.subgraphs:
        attrs["captured"] = [v.name for v in captured]
        attrs.update({name: _body(body) for name, body in node.subgraphs.items()})
    lowered.add(HostRecord(node.op, names, outputs, node.name, attrs, reason), node)


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
        "types": [[v.dtype.name, [d if isinstance(d, int) else None for d in v.shape or ()]] for v in graph.outputs],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        name = from_numpy(value.dtype).name
        flat = value.reshape(-1)
        values = [str(v) for v in flat] if name == "str" else flat.tolist()
        return {"dtype": name, "shape": list(value.shape), "values": values}
    return list(value) if isinstance(value, tuple) else value


class _LateSizes:
    """The sizes that only a run decides, less those that a task of the AI CPU has decided so far."""

    def __init__(self, graph: Graph) -> None:
        self.late = {name for name in graph.dims if is_fresh(name)}
        self.decided_by: dict[str, str] = {}
        """The first value that tells a size."""

    def are_late(self, node: Node) -> bool:
        """True if a value of the node, or inside of it, has no bytes or a size that is not decided before it."""
        return any(v.dtype.kind == "handle" or v.shape is None for v in _values(node)) or _depends(node, self.late)

    def decide(self, node: Node) -> None:
        """The node runs on the AI CPU: what it makes tells its sizes."""
        for value in node.outputs:
            told = decided(value.dtype, value.shape) & self.late
            self.decided_by.update(dict.fromkeys(told, value.name))
            self.late -= told


def _values(node: Node) -> list[Value]:
    """Inputs, outputs and, of a Fused node, the values inside."""
    inside = node.subgraphs["body"].values.values() if node.op == "Fused" else ()
    return [v for v in (*node.inputs, *node.outputs, *inside) if v is not None]


def _depends(node: Node, dims: Collection[str]) -> bool:
    return any(name in dims for v in _values(node) for d in v.shape or () for name in names(d))


def is_alias(node: Node) -> bool:
    """True if the node's result has the bytes of its first input in the same order."""
    source = node.input(0)
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
