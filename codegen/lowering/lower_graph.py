"""Every node of the optimised graph becomes kernel, AI CPU or alias records, in order."""

from __future__ import annotations

from types import MappingProxyType

from codegen.kernels import NotLowerable, TilingRefused, Tilings, check_nodes, kernels, lower_node, tiling_for
from codegen.lowering.aicpu_tasks import add_aicpu_task, add_loop_task
from codegen.lowering.aliases import add_aliases
from codegen.lowering.branch_merges import add_merge, copy_first_input
from codegen.lowering.dead_records import drop_unread
from codegen.lowering.lowered import Lowered
from codegen.targets import Target
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.data_dependent_sizes import LATE_SIZE, DataDependentSizes
from graph_opt.ir.ops.control import CLOSED
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.states import problem, updates, updates_first_input
from graph_opt.plan.records import AliasRecord, KernelRecord, Record

_NO_TILINGS: Tilings = MappingProxyType({})


def lower_graph(graph: Graph, target: Target, tilings: Tilings = _NO_TILINGS) -> Lowered:
    """Records of all nodes, their programs verified for the target.

    Fused nodes are those of a graph that was fused for this target (among others): each has a kernel, or is the one
    operator that has none, which goes to the AI CPU, in the graph as well. ValueError if a kernel is missing for more.
    A node for which a tiling is given has that one: TilingRefused if it cannot, or if there is no such node.
    """
    check_nodes(tilings, (n.name for n in graph.nodes if n.op == "Fused"))
    lowered = Lowered()
    sizes = DataDependentSizes(graph)
    asked = kernels([target])
    if fault := problem(graph):
        raise ValueError(f"graph {graph.name}: {fault}")
    in_place = updates(graph)
    closed = set(CLOSED.values())
    sources = {origin.value for origin in graph.origins.values()}
    for node in list(graph.nodes):
        if node.op in closed:
            add_loop_task(lowered, node, lower_graph(node.subgraphs["body"], target))
            sizes.decide(node)
            continue
        late = sizes.are_late(node)
        tiling = tiling_for(tilings, node.name, target)
        if not late and tiling is None and add_aliases(lowered, node):
            continue
        if not late and node.op == "IfMerge" and add_merge(lowered, node, target):
            continue
        if late or node.op != "Fused":
            if node in in_place:
                lowered.add(_update(node, in_place[node]), node)
            reason = LATE_SIZE if late else asked.why_not_alone(graph, node)
            # Fusion leaves no node alone that has a kernel; a graph that has not been fused is all AI CPU.
            _add_aicpu(lowered, sizes, graph, node, reason or "it is not fused")
            continue
        try:
            records = lower_node(node, target, tiling)
            if node in in_place:
                records = [_update(node, in_place[node]), *records]
            elif updates_first_input(node):
                before = node.inputs[0]
                assert before is not None
                if _is_spent(graph, lowered, node, before) and before.name not in sources:
                    records = [AliasRecord(node.output.name, before.name, node.name), *records]
                else:
                    records = [*copy_first_input(node, target), *records]
        except NotLowerable as refusal:
            if tiling is not None:
                raise TilingRefused(
                    f"`{tiling}` on {target.name}: {refusal}", where={"node": node.name},
                    remedy="give a smaller one, or none: the default fits",
                ) from None  # fmt: skip
            if node in in_place:
                lowered.add(_update(node, in_place[node]), node)
            _add_aicpu(lowered, sizes, graph, node, str(refusal))
            continue
        for record in records:
            _surface_constants(graph, node, record)
            lowered.add(record, node)
    drop_unread(graph, lowered, sizes.decided_by)
    return lowered


def _update(node: Node, before: Value) -> AliasRecord:
    """The result lies where the version of the state lies that it overwrites."""
    return AliasRecord(node.output.name, before.name, node.name, update=True)


def _is_spent(graph: Graph, lowered: Lowered, node: Node, before: Value) -> bool:
    """True if the bytes of the first input may become those of the result, as those of a growing cache may: a kernel
    makes them under the same guards, and nothing else reads them."""
    producer = before.producer
    if producer is None or len(before.uses) != 1 or graph.is_output(before) or producer.guards != node.guards:
        return False
    made = next((r for r in reversed(lowered.records) if r.node == producer.name), None)
    return isinstance(made, KernelRecord)


def _add_aicpu(lowered: Lowered, sizes: DataDependentSizes, graph: Graph, node: Node, reason: str) -> None:
    inside = Rewriter(graph).inline(node) if node.op == "Fused" else [node]
    if len(inside) != 1:
        raise ValueError(f"{node} was not fused for this target: {reason}")
    add_aicpu_task(lowered, inside[0], reason)
    sizes.decide(inside[0])


def _surface_constants(graph: Graph, node: Node, record: Record) -> None:
    """Constants that live in the body and that a task takes as an operand become constants of the graph."""
    if not isinstance(record, KernelRecord):
        return
    for operand in record.operands:
        inner = node.subgraphs["body"].values.get(operand.value or "")
        if inner is not None and inner.recipe is not None and inner.name not in graph.values:
            graph.add_constant(inner.name, inner.recipe, inner.dtype)
