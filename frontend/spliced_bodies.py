"""Bodies that an operator applies as they are: their nodes, with tensor names of their own, for the graph around."""

from __future__ import annotations

from collections.abc import Mapping

import onnx


def spliced(body: onnx.GraphProto, prefix: str, inputs: Mapping[str, str]) -> onnx.GraphProto:
    """A copy of a body in which what it makes is called `prefix` + its name, and its inputs as `inputs` says.

    Names of the graph around it stay.
    """
    copy = onnx.GraphProto()
    copy.CopyFrom(body)
    _rename(copy, prefix, dict(inputs))
    del copy.input[:]
    return copy


def _rename(graph: onnx.GraphProto, prefix: str, known: dict[str, str]) -> None:
    made = [t.name for t in graph.initializer] + [t.values.name for t in graph.sparse_initializer]
    made += [name for node in graph.node for name in node.output if name]
    made += [item.name for item in graph.input if item.name not in known]
    names = {**known, **{name: prefix + name for name in made}}
    for tensor in graph.initializer:
        tensor.name = names[tensor.name]
    for sparse in graph.sparse_initializer:
        sparse.values.name = names[sparse.values.name]
    for item in (*graph.input, *graph.output, *graph.value_info):
        item.name = names.get(item.name, item.name)
    for node in graph.node:
        node.name = prefix + node.name if node.name else ""
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                _rename(inner, prefix, names)
