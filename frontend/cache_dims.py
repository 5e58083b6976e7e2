"""Named dims that may be 0: lengths of caches, which are empty before the first token.

A dim counts as one if it occurs in graph inputs alone, and all that reads those inputs asks for their shape or joins
them along that axis with something else: Concat, or Attention, which puts new keys and values behind the past ones.
Whatever the cache's length is then, no other tensor is empty because of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

_PAST_OPERANDS = (4, 5)
_PAST_AXIS = 2


def cache_dims(graph: onnx.GraphProto) -> set[str]:
    """Names in the file of the dims that serve as lengths of caches only."""
    places: dict[str, list[tuple[str, int, int]]] = {}
    for item in graph.input:
        shape = item.type.tensor_type.shape.dim
        for axis, extent in enumerate(shape):
            if extent.dim_param not in ("", "?"):
                places.setdefault(extent.dim_param, []).append((item.name, axis, len(shape)))
    fed = {item.name for item in graph.input}
    public = {item.name for item in graph.output}
    readers = _readers(graph.node)

    def joins(name: str, axis: int, rank: int) -> bool:
        users = readers.get(name, [])
        return bool(users) and name not in public and all(_joins(node, name, axis, rank, fed) for node in users)

    return {dim for dim, found in places.items() if all(joins(*place) for place in found)}


def _joins(node: onnx.NodeProto, name: str, axis: int, rank: int, fed: set[str]) -> bool:
    if node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type == "Shape":
        return True
    if node.op_type == "Attention":
        return axis == _PAST_AXIS and all(i in _PAST_OPERANDS for i, used in enumerate(node.input) if used == name)
    if node.op_type != "Concat":
        return False
    where = next((a.i for a in node.attribute if a.name == "axis"), 0)
    return where % rank == axis and not fed.issuperset(node.input)


def _readers(nodes: Iterable[onnx.NodeProto]) -> dict[str, list[onnx.NodeProto]]:
    """By name of a tensor: the nodes of the graph that read it; for readers in subgraphs, the node around those."""
    found: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for name in dict.fromkeys([*node.input, *_captured(node)]):
            found.setdefault(name, []).append(node)
    return found


def _captured(node: onnx.NodeProto) -> Iterator[str]:
    """Names that the subgraphs of a node mention; their own ones too, which are not those of graph inputs."""
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            yield from (item.name for item in body.output)
            for inner in body.node:
                yield from inner.input
                yield from _captured(inner)
