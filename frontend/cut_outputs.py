"""Other outputs for a model: tensors inside it become its outputs, and what none of them needs is dropped unread."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

import onnx

from tensor_types.errors import InvalidModel


def cut_outputs(model: onnx.ModelProto, wanted: Sequence[str]) -> list[str]:
    """Lets the model end at `wanted`, each 'node:index' or the name of a tensor, in that order; gives the tensors.

    Changes the model. InvalidModel (E10016) names what is no node's output, and the nearest that is.
    """
    graph = model.graph
    tensors = [_tensor(graph, text) for text in wanted]
    declared = {v.name: v for v in (*graph.value_info, *graph.output)}
    outputs = [declared.get(name) or onnx.ValueInfoProto(name=name) for name in dict.fromkeys(tensors)]
    needed = set(tensors)
    kept = []
    for node in reversed(graph.node):
        if not needed.isdisjoint(node.output):
            needed.update(_reads(node))
            kept.append(node)
    nodes, ends = [_copy(n) for n in reversed(kept)], [_copy(v) for v in outputs]
    weights = [_copy(t) for t in graph.initializer if t.name in needed]
    del graph.node[:], graph.output[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.output.extend(ends)
    graph.initializer.extend(weights)
    return list(dict.fromkeys(tensors))


def output_tensor(graph: onnx.GraphProto, text: str) -> str | None:
    """The tensor that 'node:index' or a tensor's name stands for; None if there is none."""
    name, colon, index = text.rpartition(":")
    if colon and index.isdecimal():
        for node in graph.node:
            if node.name == name and int(index) < len(node.output):
                return str(node.output[int(index)])
    made = {*(o for n in graph.node for o in n.output), *(v.name for v in graph.input)}
    return text if text in made and text else None


def _tensor(graph: onnx.GraphProto, text: str) -> str:
    if (found := output_tensor(graph, text)) is not None:
        return found
    node = text.rpartition(":")[0] or text
    counts = {n.name: len(n.output) for n in graph.node if n.name}
    if node in counts:
        reason, remedy = f"{node} is a node with {counts[node]} outputs", f"write which, as in {node}:0"
    else:
        known = [*(f"{name}:0" for name in counts), *(o for n in graph.node for o in n.output)]
        near = difflib.get_close_matches(text, known, 1)
        reason = "the model has no such node or tensor"
        remedy = f"{f'did you mean {near[0]}? ' if near else ''}write node:index, or the name of a tensor"
    raise InvalidModel(f"--out_nodes names {text!r}: {reason}", code="E10016",
                       where={"flag": "--out_nodes", "node": node}, remedy=remedy)  # fmt: skip


def _reads(node: onnx.NodeProto) -> Iterable[str]:
    """Inputs, and all that subgraphs name: more than they capture, which keeps nothing wrong."""
    yield from node.input
    for attribute in node.attribute:
        for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from (v.name for v in body.output)
            for inner in body.node:
                yield from _reads(inner)


def _copy(proto):  # type: ignore[no-untyped-def]
    copy = type(proto)()
    copy.CopyFrom(proto)
    return copy
