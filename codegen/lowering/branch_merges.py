"""IfMerge: the results of two branches meet in one value, into which the branch that ran is copied."""

from __future__ import annotations

from codegen.kernels import NotLowerable, lower_node
from codegen.lowering.lowered import Lowered
from codegen.targets import Target
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.order import Outputs
from graph_opt.plan.records import AliasRecord, Record


def add_merge(lowered: Lowered, node: Node, target: Target) -> bool:
    """The results of two branches meet: the one that ran is copied. False if their shapes differ."""
    condition, *branches = node.inputs
    result = node.output
    assert condition is not None
    copies: list[tuple[Node, list[Record]]] = []
    for expected, branch in zip((True, False), branches, strict=True):
        if branch is None or branch.shape != result.shape or branch.is_constant:
            return False
        try:
            copy, records = _copy(branch, result, node.name, target)
        except NotLowerable:
            return False
        copy.guards = (*node.guards, (condition, expected))
        copies.append((copy, records))
    for copy, records in copies:
        for record in records:
            lowered.add(record, copy)
    return True


def copy_first_input(node: Node, target: Target) -> list[Record]:
    """Tasks that let the node's result begin as its first input; NotLowerable if there is none."""
    source = node.inputs[0]
    assert source is not None
    return _copy(source, node.output, node.name, target)[1]


def _copy(source: Value, result: Value, name: str, target: Target) -> tuple[Node, list[Record]]:
    """A node that copies one value into another, and its tasks; NotLowerable if that takes no task."""
    for family in ("movement", "region"):
        copy = _copy_node(source, result, name, family)
        records = lower_node(copy, target)
        if not any(isinstance(r, AliasRecord) for r in records):
            return copy, records
        # Equal bytes: movement would share them, but only one branch of the two may be the result.
    raise NotLowerable("the branches would share the bytes of the result")


def _copy_node(source: Value, result: Value, name: str, family: str) -> Node:
    """A Fused node of `family`, in no graph, that copies one value into another."""
    body = Graph(family)
    inner = body.add_value(source.name, source.dtype, source.shape, format=source.format)
    copied = body.add_value(result.name, result.dtype, result.shape, format=result.format)
    body.inputs, body.outputs = [inner], Outputs([copied])
    body.add_node("Identity" if family == "region" else "Relayout", [inner], [copied], name=name)
    return Node("Fused", name, [source], [result], {"family": family}, {"body": body})
