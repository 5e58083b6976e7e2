"""From values of a Fused node to views in its kernel: which outer value a name stands for, how it broadcasts."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.tile.build import Buffer
from codegen.tile.ir import View
from graph_opt.ir.core import Graph, Node, Value
from tensor_types.dims import Dim


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


def aligned_view(
    buffer: Buffer, value: Value, result: Sequence[Dim], index: Sequence[Dim], extents: Sequence[Dim]
) -> View:
    """The elements of an operand that a block of the result needs, broadcast as numpy does.

    `result` is the logical shape of the result, `index` the logical index of the block's elements, one expression over
    the block's axis variables per axis, and `extents` the block's extents. The buffer has the value's physical shape.
    """
    shape = shape_of(value)
    lead = len(result) - len(shape)
    if lead < 0:
        raise NotLowerable(f"{value.name} has more axes than the result")
    mine: list[Dim] = []
    for k, size in enumerate(shape):
        whole = result[lead + k]
        if size == whole:
            mine.append(index[lead + k])
        elif size == 1:
            mine.append(0)
        else:
            raise NotLowerable(f"{value.name}: extent {size} against {whole} may or may not broadcast")
    if value.format.is_plain:
        return buffer.view(*mine, shape=extents)
    permutation = value.format.permutation
    if permutation is None:
        raise NotLowerable(f"{value.name} has the format {value.format}")
    return buffer.view(*(mine[p] for p in permutation), shape=extents)
