"""An If that exporters leave behind although one of its branches can never work, as for `squeeze` of a dynamic axis.

The branches differ in rank, and with one of them a later operator breaks its own rule whatever the input. A run that
would take it fails anyway; so the other branch may be taken, if the model says for which sizes it is valid.
"""

from __future__ import annotations

from collections.abc import Iterator

from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.infer import infer_node
from graph_opt.ir.ops.registry import content_of
from graph_opt.simplify.scopes import control_graphs
from tensor_types.dims import Dim, dim, evaluate, names
from tensor_types.errors import InvalidModel

_LARGEST = 1 << 16
"""Sizes of a dim that are tried."""


def working_branch(graph: Graph, node: Node) -> str | None:
    """The only branch with which inference of the rest succeeds; None unless the model can say when it is valid.

    1. The range of the dim that decides is narrowed in `graph.dims`; not within a body, which need not run.
    2. Or the branch itself requires what the condition asks, as a Squeeze does of its axis.
    """
    sides = {key: node.subgraphs[key].outputs for key in ("then_branch", "else_branch")}
    ranks = {key: [None if v.shape is None else len(v.shape) for v in values] for key, values in sides.items()}
    if ranks["then_branch"] == ranks["else_branch"] or any(None in r for r in ranks.values()):
        return None
    works = [key for key, values in sides.items() if _succeeds(graph, node, values)]
    if len(works) != 1:
        return None
    condition = node.inputs[0]
    assert condition is not None
    compared = _compared(condition, works[0] == "then_branch")
    if compared is None:
        return None
    left, right, wanted = compared
    narrowed = _sizes_where(graph, left - right, wanted)
    if narrowed is not None:
        graph.dims[narrowed[0]] = narrowed[1:]
        return works[0]
    required = {frozenset((r.left, r.right)) for r, by in graph.requirements.items() if r.relation == "equal"
                and any(n.name == by for n in node.subgraphs[works[0]].nodes)}  # fmt: skip
    return works[0] if wanted and frozenset((left, right)) in required else None


def _values(graph: Graph) -> Iterator[Value]:
    for part in control_graphs(graph):
        yield from part.values.values()


def _succeeds(graph: Graph, node: Node, taken: list[Value]) -> bool:
    """Whether the nodes after `node` infer with the outputs of one branch; the graph is left as it was."""
    saved = [(v, v.dtype, v.shape, v.content) for v in _values(graph)]
    dims, requirements = dict(graph.dims), dict(graph.requirements)
    try:
        if len(node.outputs) != len(taken):
            return False
        for output, value in zip(node.outputs, taken, strict=True):
            output.dtype, output.shape, output.content = value.dtype, value.shape, value.content
        for later in graph.nodes.following(node):
            infer_node(graph, later)
        return True
    except InvalidModel:
        return False
    finally:
        for value, dtype, shape, content in saved:
            value.dtype, value.shape, value.content = dtype, shape, content
        graph.dims.clear()
        graph.dims.update(dims)
        graph.requirements.clear()
        graph.requirements.update(requirements)


def _compared(condition: Value, wanted: bool) -> tuple[Dim, Dim, bool] | None:
    """Two extents, and whether they are equal where the condition is `wanted`."""
    while condition.producer is not None and condition.producer.op == "Not":
        inner = condition.producer.inputs[0]
        assert inner is not None
        condition, wanted = inner, not wanted
    equal = condition.producer
    if equal is None or equal.op != "Equal":
        return None
    contents = [None if v is None else content_of(v) for v in equal.inputs]
    if contents[0] is None or contents[1] is None or len(contents[0]) != 1 or len(contents[1]) != 1:
        return None
    return contents[0][0], contents[1][0], wanted


def _sizes_where(graph: Graph, difference: Dim, wanted: bool) -> tuple[str, int, int | None] | None:
    """(dim, lowest, highest): the sizes of one dim of the graph's inputs for which a difference is 0, or is not."""
    free = names(difference)
    given = {d for v in graph.inputs for d in v.shape or ()}
    if len(free) != 1 or dim(name := next(iter(free))) not in given:
        return None
    return _interval(graph, name, difference, wanted)


def _interval(graph: Graph, name: str, difference: Dim, wanted: bool) -> tuple[str, int, int | None] | None:
    low, high = graph.dims.get(name, (0, None))
    last = _LARGEST if high is None else min(high, _LARGEST)
    sizes = [n for n in range(low, last + 1) if (evaluate(difference, {name: n}) == 0) == wanted]
    if not sizes or sizes[-1] - sizes[0] + 1 != len(sizes):
        return None
    if sizes[-1] == last and high is None:
        return name, sizes[0], None
    return name, sizes[0], sizes[-1]
