"""Nodes that cost nothing: their results are bytes of their operands, seen with another shape or from an offset."""

from __future__ import annotations

from codegen.kernels.operands import axes_in_memory, same_bytes
from codegen.lowering.lowered import Lowered
from graph_opt.ir import Node
from graph_opt.plan.records import AliasRecord
from tensor_types.dims import Dim, product

RESHAPES = {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"}


def add_aliases(lowered: Lowered, node: Node) -> bool:
    """Adds the aliases that the node is. False, and nothing added, if it is none."""
    if not is_alias(node):
        return _add_slices(lowered, node)
    source = node.inputs[0]
    assert source is not None
    lowered.add(AliasRecord(node.output.name, source.name, node.name), node)
    return True


def _add_slices(lowered: Lowered, node: Node) -> bool:
    """A Split of the leading axis is a set of aliases at increasing offsets. False for any other node."""
    if node.op == "Fused" and [n.op for n in node.subgraphs["body"].nodes] == ["Split"]:
        body = node.subgraphs["body"]
        split, live = body.nodes[0], dict(zip(body.outputs, node.outputs, strict=True))
    elif node.op == "Split":
        split, live = node, {v: v for v in node.outputs}
    else:
        return False
    source = node.input(0)
    if source is None or source.is_constant:
        return False
    assert source.shape is not None
    axis = int(split.attrs.get("axis", 0)) % source.rank  # type: ignore[call-overload]
    memory = axes_in_memory(source)
    if memory[:1] not in ([], [axis]) or any(v.format != source.format for v in node.outputs):
        return False
    offset: Dim = 0
    for part in split.outputs:  # one that nothing reads takes its share of the bytes all the same
        if part in live:
            lowered.add(AliasRecord(live[part].name, source.name, node.name, offset), node)
        offset = offset + product(part.shape) * part.dtype.bytes
    return True


def is_alias(node: Node) -> bool:
    """True if the node's result has the bytes of its first input in the same order."""
    source = node.input(0)
    if node.op not in RESHAPES and node.op not in ("Relayout", "Transpose") or source is None or source.shape is None:
        return False
    result = node.output
    if result.shape is None or source.is_constant or source.dtype != result.dtype:
        return False
    if node.op in ("Relayout", "Identity"):
        return same_bytes(source, result, range(source.rank))
    if node.op == "Transpose":
        perm = list(node.attrs.get("perm") or reversed(range(source.rank)))  # type: ignore[call-overload]
        return same_bytes(source, result, perm)
    plain = [sorted(axes_in_memory(v)) == axes_in_memory(v) for v in (source, result)]
    if all(plain):
        return True
    permutations = (source.format.permutation, result.format.permutation)
    both_last = all(p is not None and p[0] == 0 and p[-1] == 1 for p in permutations)
    return both_last and source.shape[:2] == result.shape[:2]
