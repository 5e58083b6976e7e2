"""Records that nothing reads: kernels take shapes from the types, not from the operators that compute them."""

from __future__ import annotations

from collections.abc import Mapping

from codegen.lowering.lowered import Lowered
from graph_opt.ir import Graph
from graph_opt.plan.records import KernelRecord
from graph_opt.plan.segments import taken_and_given
from tensor_types.dims import names


def drop_unread(graph: Graph, lowered: Lowered, decided_by: Mapping[str, str]) -> None:
    """Takes the records away that nothing reads.

    `decided_by` are the values whose sizes are read, by late dim, wherever a value has the dim.
    """
    read = {v.name for v in graph.outputs}
    kept = []
    for record, guards in zip(reversed(lowered.records), reversed(lowered.guards), strict=True):
        takes, gives = taken_and_given(record)
        if read.isdisjoint(gives):
            continue
        read.update(takes)
        sizes = [d for v in takes | gives if v in graph.values for d in graph.values[v].shape or ()]
        sizes += record.dims if isinstance(record, KernelRecord) else ()
        read.update(decided_by[name] for d in sizes for name in names(d) if name in decided_by)
        read.update(name for name, _ in guards)
        kept.append((record, guards))
    kept.reverse()
    lowered.records = [r for r, _ in kept]
    lowered.guards = [g for _, g in kept]
