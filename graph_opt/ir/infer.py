"""Dtype, shape and content of every value, from graph inputs and constants alone; no declared shape is trusted.

    infer_node(graph, node)   types node.outputs
    infer_graph(graph)        types every node in order, subgraphs included

Content: a small integer tensor carries its elements as dims, so that Shape -> Gather -> Concat -> Reshape chains give
exact symbolic shapes. Errors are `InvalidModel` with the node's name.
"""

from __future__ import annotations

from graph_opt.ir import ops
from graph_opt.ir.core import Graph, Node
from graph_opt.ir.ops.registry import Inference
from tensor_types.errors import InvalidModel, OpenAtcError


def infer_node(graph: Graph, node: Node) -> None:
    """Sets dtype, shape and content of the node's outputs. An operator that is not declared gives unknown ranks."""
    op = ops.get(node.op)

    def infer_body(body: Graph) -> None:
        body.dims, body.requirements = graph.dims, graph.requirements  # one name space: fresh dims stay unique
        for inner in body.nodes:
            infer_node(body, inner)

    context = Inference(graph, node, op, infer_body)
    if op is None:
        for index in range(len(node.outputs)):
            context.set(index, node.outputs[index].dtype, None)
        return
    present = len(node.inputs)
    if present < op.required or (present > len(op.inputs) and not op.variadic):
        raise context.error(f"{present} inputs given, {op.required} to {len(op.inputs)} expected")
    try:
        op.infer(context)
    except OpenAtcError:
        raise
    except (ValueError, IndexError, TypeError, KeyError) as error:
        where = {"node": node.name, "op": node.op}
        raise InvalidModel(f"the inputs do not fit the operator: {error}", where=where) from error


def infer_graph(graph: Graph) -> None:
    """Infers every node in order, and what a run must fulfil anew."""
    graph.requirements.clear()
    for node in graph.nodes:
        infer_node(graph, node)
