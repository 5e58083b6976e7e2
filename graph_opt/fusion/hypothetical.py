"""A node as it would be with other operands, to ask its family for: nothing in the graph changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

import numpy as np

from graph_opt.ir.core import AttrValue, Graph, Node, Value
from graph_opt.ir.infer import infer_node
from graph_opt.ir.outline import outline
from tensor_types.dtypes import DType
from tensor_types.formats import Format
from tensor_types.recipes import Recipe, Source, cast

_COUNTED = 64
"""Elements of a constant up to which an answer may depend on them."""


def as_if(
    graph: Graph, node: Node, family: str, *, dtypes: Mapping[int, DType] | None = None, absent: Collection[int] = (),
    op: str = "", attrs: Mapping[str, Mapping[str, AttrValue]] | None = None, data_format: Format | None = None,
    data: Collection[int] = (0,),
) -> Node:  # fmt: skip
    """The node as a Fused node of a family, in a graph of its own, its results typed anew.

    `dtypes` are those of inputs that change, by index; the constants in the body of a Fused node change with them.
    Inputs in `absent` are left out. `op` is another operator than the node's, `attrs` gives further attributes by
    operator. `data_format` is that of the results and of the inputs in `data` that have its rank. Large constants are
    stood in for by others of their dtype and shape, so that layers which are alike get one answer.
    """
    there = Graph(dims=graph.dims)
    changed = dtypes or {}
    fused = node.subgraphs.get("body") if node.op == "Fused" else None
    inside = [node] if fused is None else list(fused.nodes)
    outside = list(node.inputs if fused is None else fused.inputs)
    retyped = {v.dtype: changed[i] for i, v in enumerate(outside) if v is not None and i in changed}
    copies: dict[Value, Value] = {}
    for index, value in enumerate(outside):
        if value is not None and value not in copies and (index not in absent or fused is not None):
            laid_out = data_format is not None and index in data and fits(data_format, value)
            format_ = data_format if laid_out and data_format is not None else value.format
            copies[value] = _copy(there, value, changed.get(index, value.dtype), format_)
    for member in inside:
        left_out = absent if fused is None else ()
        operands: list[Value | None] = []
        for index, value in enumerate(member.inputs):
            if value is None or index in left_out:
                operands.append(None)
                continue
            if value not in copies:
                copies[value] = _copy(there, value, retyped.get(value.dtype, value.dtype), value.format)
            operands.append(copies[value])
        while operands and operands[-1] is None:
            operands.pop()
        for value in member.outputs:
            format_ = data_format if data_format is not None and fits(data_format, value) else value.format
            copies[value] = there.add_value(value.name, value.dtype, None, format=format_)
        name = op or member.op
        made = there.add_node(name, operands, [copies[v] for v in member.outputs], member.attrs, name=member.name)
        made.attrs.update((attrs or {}).get(name, {}))
        infer_node(there, made)
    own = {k: v for k, v in node.attrs.items() if k != "family"} if fused is not None else {}
    used = [v for v in inside[-1].outputs if v.uses or graph.is_output(v)] or inside[-1].outputs[:1]
    results = used if fused is None else fused.outputs
    return outline(there, there.nodes, family, own, public=[copies[v] for v in results]).node


def by_itself(
    graph: Graph, op: str, family: str, inputs: Sequence[Value], attrs: Mapping[str, AttrValue] | None = None
) -> Node:
    """An operator of these values, which the graph need not have, as a Fused node of a family; its type is inferred."""
    there = Graph(dims=graph.dims)
    operands = [_copy(there, value, value.dtype, value.format) for value in inputs]
    result = there.add_value(op.lower(), operands[0].dtype, None)
    infer_node(there, there.add_node(op, operands, [result], attrs))
    return outline(there, there.nodes, family, public=[result]).node


def fits(format_: Format, value: Value) -> bool:
    """True if a value of that rank, no constant, can have the format."""
    permutation = format_.permutation
    if value.shape is None or value.is_constant or permutation is None:
        return False
    return len(permutation) == value.rank


def _copy(graph: Graph, value: Value, dtype: DType, format_: Format) -> Value:
    data = value.recipe
    if data is not None and data.size > _COUNTED and not data.dtype.numpy.hasobject:
        data = _stand_in(dtype, data.shape)
    elif data is not None and dtype != value.dtype:
        data = cast(data, dtype)
    copy = graph.add_value(value.name, dtype, value.shape, data=data, format=format_)
    copy.content = value.content
    return copy


@lru_cache(maxsize=1024)
def _stand_in(dtype: DType, shape: tuple[int, ...]) -> Recipe:
    """Ones that take no memory; one object for all that ask, by which answers are remembered."""
    return Source(np.broadcast_to(np.ones((), dtype.numpy), shape))
