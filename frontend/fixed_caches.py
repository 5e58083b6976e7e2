"""Caches of a decoder with a fixed capacity, which become states: buffers that runs write in place.

1. A cache is an input [batch, .., rows, size] with the output that continues it, told by their names. Both are declared
   with `capacity` rows and a batch of 1, as are all inputs of the same batch. One in pages [blocks, page size, heads,
   size] is told by the PagedAttention that takes and gives it; it is declared with blocks for `capacity` rows.
2. When the graph is read, the output is the input with rows written (TensorScatter, or GroupQueryAttention, which
   writes the new rows behind those that its lengths count): a state. A cache that is joined instead (Concat) cannot be
   one, as its length would be its extent.
"""

from __future__ import annotations

import onnx

from graph_opt.ir import Graph
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.states import problem
from tensor_types.cache_names import paired
from tensor_types.errors import InvalidModel

_RANK = 4
_ROWS = 2


def declare_caches(model: onnx.ModelProto, capacity: int) -> dict[str, str]:
    """Declares the caches of a model with this capacity; gives input -> output. InvalidModel if it has none.

    Changes the model.
    """
    graph = model.graph
    tensors = {v.name: v.type.tensor_type.shape for v in (*graph.input, *graph.output)}
    paged = _paged(graph)
    _declare_pages(tensors, paged, capacity)
    pairs = paired([v.name for v in graph.input], [v.name for v in graph.output])
    pairs = {a: b for a, b in pairs.items() if len(tensors[a].dim) == len(tensors[b].dim) == _RANK and a not in paged}
    if not pairs and paged:
        return paged
    if not pairs:
        raise InvalidModel(
            "the model has no pair of a past and a present cache", code="E10064", where={"flag": "--cache_capacity"},
            remedy="leave --cache_capacity out, or call them past_key_values.0.key and present.0.key",
        )  # fmt: skip
    batches = {tensors[name].dim[0].dim_param for name in pairs} - {""}
    for name in (*pairs, *pairs.values()):
        held = tensors[name].dim[_ROWS]
        if held.dim_value and held.dim_value != capacity:
            raise InvalidModel(
                f"the cache {name} is declared with {held.dim_value} rows", code="E10064", where={"tensor": name},
                remedy=f"use --cache_capacity={held.dim_value}",
            )  # fmt: skip
        held.dim_value = capacity
    for value in (*graph.input, *graph.output):
        shape = tensors[value.name]
        if shape.dim and (shape.dim[0].dim_param in batches or value.name in pairs or value.name in pairs.values()):
            batch = shape.dim[0]
            if not batch.dim_value:
                batch.dim_value = 1
    return pairs | paged


def _paged(graph: onnx.GraphProto) -> dict[str, str]:
    """The caches in pages that are inputs and outputs of the graph."""
    inputs, outputs = {v.name for v in graph.input}, {v.name for v in graph.output}
    found: dict[str, str] = {}
    for node in graph.node:
        if node.op_type == "PagedAttention" and node.domain == "com.microsoft":
            ends = zip(node.input[3:5], node.output[1:3], strict=False)
            found |= {a: b for a, b in ends if a in inputs and b in outputs}
    return found


def _declare_pages(
    tensors: dict[str, onnx.TensorShapeProto], paged: dict[str, str], capacity: int
) -> None:  # fmt: skip
    for name, made in paged.items():
        if len(tensors[name].dim) != _RANK or not (size := tensors[name].dim[1].dim_value):
            raise InvalidModel(
                f"the cache {name} does not say how many rows a page has", code="E10064", where={"tensor": name},
                remedy="declare it as [blocks, page size, heads, size]",
            )  # fmt: skip
        blocks = tensors[name].dim[0].dim_value or -(-capacity // size)
        if blocks != -(-capacity // size):
            raise InvalidModel(
                f"the cache {name} is declared with {blocks} blocks", code="E10064", where={"tensor": name},
                remedy=f"use --cache_capacity={blocks * size}",
            )  # fmt: skip
        tensors[made].CopyFrom(tensors[name])
        tensors[name].dim[0].dim_value = tensors[made].dim[0].dim_value = blocks


def mark_states(graph: Graph, pairs: dict[str, str]) -> None:
    """Makes the pairs states of the graph. InvalidModel names a cache that is not written in place."""
    rewriter = Rewriter(graph)
    for name in pairs.values():
        node = graph.values[name].producer
        if node is not None and node.op == "Identity" and node.inputs[0] is not None:
            rewriter.replace(node.output, node.inputs[0])
            rewriter.erase_dead([node])
    graph.states = dict(pairs)
    if (fault := problem(graph)) is not None:
        graph.states = {}
        raise InvalidModel(
            f"a cache cannot be written in place: {fault}", code="E10064", where={"flag": "--cache_capacity"},
            remedy="export the decoder with GroupQueryAttention or TensorScatter, or leave --cache_capacity out",
        )  # fmt: skip
