"""Nodes of a file in an order in which producers precede uses."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

import onnx

from tensor_types.errors import InvalidModel


def in_order(protos: Iterable[onnx.NodeProto], available: Collection[str]) -> list[onnx.NodeProto]:
    """Otherwise the file's order stays. `available` are names from outside. InvalidModel: dangling tensor or cycle."""
    nodes = list(protos)
    producers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in filter(None, node.output):
            producers.setdefault(name, index)
    users: dict[int, list[int]] = defaultdict(list)
    missing = [0] * len(nodes)
    for index, node in enumerate(nodes):
        for name in needed(node):
            if name in available:
                continue
            if name not in producers:
                raise _dangling(node, name)
            users[producers[name]].append(index)
            missing[index] += 1
    ready = [index for index, count in enumerate(missing) if not count]  # sorted, so a heap
    order: list[onnx.NodeProto] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(nodes[index])
        for user in users[index]:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, user)
    if len(order) < len(nodes):
        raise _cycle(nodes, producers, missing)
    return order


def needed(node: onnx.NodeProto) -> dict[str, None]:
    """Names that a node reads, those that its subgraphs take from outside included, in order."""
    found = dict.fromkeys(filter(None, node.input))
    for item in node.attribute:
        if item.HasField("g"):
            body = item.g
            own = {i.name for i in (*body.input, *body.initializer)} | {o for n in body.node for o in n.output}
            own |= {t.values.name for t in body.sparse_initializer}
            inside = [name for n in body.node for name in needed(n)] + [o.name for o in body.output]
            found.update(dict.fromkeys(name for name in inside if name not in own))
    return found


def _title(node: onnx.NodeProto) -> str:
    return node.name or f"{node.op_type}_{next(filter(None, node.output), '')}"


def _dangling(node: onnx.NodeProto, name: str) -> InvalidModel:
    inputs = list(node.input)
    place = f"input {inputs.index(name)}" if name in inputs else "a subgraph"
    return InvalidModel(
        f"{place} reads the tensor {name}, which nothing makes", code="E13025",
        where={"node": _title(node), "op": node.op_type, "tensor": name},
        remedy="the model lost a node or an initializer: export it again",
    )  # fmt: skip


def _cycle(nodes: Sequence[onnx.NodeProto], producers: dict[str, int], missing: Sequence[int]) -> InvalidModel:
    index = next(i for i, count in enumerate(missing) if count)
    path: list[int] = []
    via = ""
    while index not in path:
        path.append(index)
        via = next(n for n in needed(nodes[index]) if n in producers and missing[producers[n]])
        index = producers[via]
    names = ", ".join(_title(nodes[i]) for i in reversed(path[path.index(index) :]))
    return InvalidModel(
        f"the graph has a cycle through {names}", code="E13025",
        where={"node": _title(nodes[index]), "op": nodes[index].op_type, "tensor": via},
        remedy="break the cycle: a node may not depend on its own output",
    )  # fmt: skip
