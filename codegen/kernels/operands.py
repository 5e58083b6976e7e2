"""The values of a Fused node as its kernel sees them, and the word for a node that has no kernel."""

from __future__ import annotations

from collections.abc import Sequence

from graph_opt.ir.core import Graph, Node, Value
from tensor_types.dims import Dim, dmin


class NotLowerable(Exception):  # noqa: N818 (an outcome, not an error)
    """The family has no kernel for this node; the reason goes into the conversion report."""


def body_of(node: Node) -> Graph:
    """The body of a Fused node."""
    return node.subgraphs["body"]


def shape_of(value: Value) -> tuple[Dim, ...]:
    """The logical shape; NotLowerable while the rank is unknown."""
    if value.shape is None:
        raise NotLowerable(f"the rank of {value.name} is not known")
    return value.shape


def outer_inputs(node: Node) -> dict[str, Value]:
    """By name in the body: the values of the graph that a Fused node takes, constants inside included."""
    body = body_of(node)
    found = {inner.name: outer for inner, outer in zip(body.inputs, node.inputs, strict=True) if outer is not None}
    for value in body.values.values():
        if value.is_constant:
            found.setdefault(value.name, value)
    return found


def outer_outputs(node: Node) -> list[tuple[str, Value]]:
    """(name in the body, value of the graph) of each result."""
    return [(inner.name, outer) for inner, outer in zip(body_of(node).outputs, node.outputs, strict=True)]


def outer_values(node: Node) -> dict[str, Value]:
    """By name in the body: everything that a Fused node takes or gives."""
    return {**outer_inputs(node), **dict(outer_outputs(node))}


def axes_in_memory(value: Value) -> list[int]:
    """Logical axes from outermost to innermost, those of extent 1 left out."""
    shape = shape_of(value)
    return [a for a in value.format.permutation or range(len(shape)) if shape[a] != 1]


def same_bytes(source: Value, result: Value, perm: Sequence[int]) -> bool:
    """True if the result, the source with its axes permuted, has the source's bytes in the same order."""
    return axes_in_memory(source) == [perm[a] for a in axes_in_memory(result)]


def block_extent(block: int, at: Dim, total: Dim) -> Dim:
    """Elements of block number `at` of `total`."""
    if isinstance(total, int):
        if total <= block:
            return total
        if total % block == 0:
            return block
    return dmin(block, total - block * at)
