"""Every node of the optimised graph becomes kernel, AI CPU or alias records, in order."""

from __future__ import annotations

from types import MappingProxyType

from codegen.kernels import NotLowerable, TilingRefused, Tilings, check_nodes, tiling_for
from codegen.lowering.aicpu_tasks import add_aicpu_task
from codegen.lowering.aliases import add_aliases
from codegen.lowering.branch_merges import add_merge
from codegen.lowering.data_dependent_sizes import DataDependentSizes
from codegen.lowering.dead_records import drop_unread
from codegen.lowering.lowered import Lowered
from codegen.lowering.native_tasks import native_tasks
from codegen.targets import Target
from graph_opt.ir import Graph, Node
from graph_opt.ir.rewriter import Rewriter
from graph_opt.plan.records import KernelRecord, Record

_NO_TILINGS: Tilings = MappingProxyType({})


def lower_graph(graph: Graph, target: Target, tilings: Tilings = _NO_TILINGS) -> Lowered:
    """Records of all nodes, their programs verified for the target.

    A fused node without a kernel for it falls apart into its operators on the AI CPU, in the graph as well. A node for
    which a tiling is given has that one: TilingRefused if it cannot, or if there is no such node.
    """
    check_nodes(tilings, (n.name for n in graph.nodes if n.op == "Fused"))
    lowered = Lowered()
    sizes = DataDependentSizes(graph)
    for node in list(graph.nodes):
        late = sizes.are_late(node)
        tiling = tiling_for(tilings, node.name, target)
        if not late and tiling is None and add_aliases(lowered, node):
            continue
        if not late and node.op == "IfMerge" and add_merge(lowered, node, target):
            continue
        try:
            if late:
                raise NotLowerable("its size is known only at run time")
            records = native_tasks(node, target, tiling)
        except NotLowerable as reason:
            if tiling is not None:
                raise TilingRefused(
                    f"`{tiling}` on {target.name}: {reason}", where={"node": node.name},
                    remedy="give a smaller one, or none: the default fits",
                ) from None  # fmt: skip
            for inner in Rewriter(graph).inline(node) if node.op == "Fused" else [node]:
                add_aicpu_task(lowered, inner, str(reason))
                sizes.decide(inner)
            continue
        for record in records:
            _surface_constants(graph, node, record)
            lowered.add(record, node)
    drop_unread(graph, lowered, sizes.decided_by)
    return lowered


def _surface_constants(graph: Graph, node: Node, record: Record) -> None:
    """Constants that live in the body and that a task takes as an operand become constants of the graph."""
    if not isinstance(record, KernelRecord):
        return
    for operand in record.operands:
        inner = node.subgraphs["body"].values.get(operand.value or "")
        if inner is not None and inner.recipe is not None and inner.name not in graph.values:
            graph.add_constant(inner.name, inner.recipe, inner.dtype)
