"""The values of a Fused node as its kernel sees them, and the word for a node that has no kernel."""

from __future__ import annotations

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


def body_values(node: Node) -> dict[str, Value]:
    """The values outside of a Fused node by the names that its body uses for them."""
    body = body_of(node)
    pairs = zip([*body.inputs, *body.outputs], [*node.inputs, *node.outputs], strict=True)
    return {inner.name: outer for inner, outer in pairs if outer is not None}


def block_extent(block: int, at: Dim, total: Dim) -> Dim:
    """Elements of block number `at` of `total`."""
    if isinstance(total, int):
        if total <= block:
            return total
        if total % block == 0:
            return block
    return dmin(block, total - block * at)
