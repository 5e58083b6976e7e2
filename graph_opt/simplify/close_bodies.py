"""Loops whose bodies read nothing from outside: a body that is a graph of its own can be compiled like a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.data_dependent_sizes import decided
from graph_opt.ir.infer import infer_graph
from graph_opt.ir.ops.control import CLOSED
from graph_opt.ir.ops.registry import is_fresh
from graph_opt.ir.passes import Pass, run_passes
from graph_opt.ir.reads import captured_values, nested_bodies, nested_graphs
from graph_opt.ir.rewriter import Rewriter, rewire
from tensor_types.dims import names


@dataclass(frozen=True)
class CloseBodies:
    """Loop and Scan become ClosedLoop and ClosedScan.

    1. What the body captures becomes an operand of the node, behind its own, and an input of the body; a constant
       becomes one of the body.
    2. The body has its dims and its requirements for itself. Every dim that only a run decides is told by the shape of
       one of its inputs, or decided within: where a body knows one from elsewhere, a tensor that tells it is captured.
    3. Each output of the body is made by a node of its own, so that a run of the body may write where the next one
       does not read.
    """

    name: ClassVar[str] = "close-bodies"

    def apply(self, graph: Graph) -> bool:
        changed = any([_close(graph, node) for node in list(graph.nodes) if node.op in CLOSED])
        if changed:
            infer_graph(graph)  # what a body requires is no requirement of the graph around it
        return changed


@dataclass(frozen=True)
class OptimiseBodies:
    """Runs passes on the bodies of closed loops, which are graphs of their own, and on those within."""

    steps: tuple[Pass, ...]
    name: str = "optimise-bodies"

    def apply(self, graph: Graph) -> bool:
        bodies = list(closed_bodies(graph))
        return any([run_passes(body, [*self.steps, self]) for body in bodies])


def closed_bodies(graph: Graph) -> Iterator[Graph]:
    """The bodies of the closed loops of a graph; not those within bodies."""
    return (n.subgraphs["body"] for n in graph.nodes if n.op in CLOSED.values())


def _close(graph: Graph, node: Node) -> bool:
    body = node.subgraphs["body"]
    captured = captured_values(node)
    told = set().union(*(decided(v.dtype, v.shape) for v in (*body.inputs, *captured)))
    used = _dims([*captured, *(v for part in (body, *nested_graphs(body)) for v in part.values.values())])
    witnesses = _witnesses(graph, node, {d for d in used if is_fresh(d)} - told)
    if witnesses is None:
        return False
    while node.op == "Loop" and len(node.inputs) < 2:
        node.inputs.append(None)  # the trip count or the condition, which may be left out
    inside: dict[Value, Value] = {}
    for value in dict.fromkeys([*captured, *witnesses]):
        copy = body.add_value(value.name, value.dtype, value.shape, data=value.recipe)
        copy.content = value.content
        inside[value] = copy
        if not value.is_constant:
            body.inputs.append(copy)
            node.inputs.append(None)
            node.set_input(len(node.inputs) - 1, value)
    node.attrs["captured"] = sum(not v.is_constant for v in inside)
    rewire(node, inside)
    _own_outputs(body)
    node.op = CLOSED[node.op]
    body.dims, body.requirements = dict(graph.dims), {}
    infer_graph(body)
    return True


def _own_outputs(body: Graph) -> None:
    """Puts Identity where an output is an input, a constant or another output too."""
    rewriter = Rewriter(body)
    outputs: list[Value] = []
    for value in body.outputs:
        if value.producer is None or value in outputs:
            value = rewriter.insert("Identity", [value], before=None, name=f"{value.name}/copy").output
        outputs.append(value)
    body.outputs = type(body.outputs)(outputs)


def _dims(values: Iterable[Value]) -> set[str]:
    """The dims that values are measured in."""
    return {name for v in values for size in (*(v.shape or ()), *(v.content or ())) for name in names(size)}


def _witnesses(graph: Graph, node: Node, dims: set[str]) -> list[Value] | None:
    """Tensors made before the node that tell those of the dims that the graph has outside of the node's body; None if
    one is told by none."""
    inner = {v for part in nested_bodies(node) for v in part.values.values()}
    outside = {v for part in (graph, *nested_graphs(graph)) for v in part.values.values()} - inner - set(node.outputs)
    dims &= {name for v in outside for d in v.shape or () for name in names(d)}
    found: dict[str, Value] = {}
    before = [*graph.inputs]
    for other in graph.nodes:
        if other is node:
            break
        if other.guards == node.guards[: len(other.guards)]:
            before += other.outputs
    for value in before:
        found.update((d, value) for d in decided(value.dtype, value.shape) & dims - found.keys())
    return None if dims - found.keys() else list(found.values())
