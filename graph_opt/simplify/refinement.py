"""Keeps dims right when a value is replaced by one whose shape says more.

A fresh dim (u0...) is bound by the node that makes it. When that node goes because its result is known otherwise, the
name must go as well, everywhere it occurs.
"""

from __future__ import annotations

from collections.abc import Mapping

from graph_opt.ir import Graph, Value
from graph_opt.ir.ops.registry import is_fresh
from graph_opt.ir.rewriter import nested_graphs
from tensor_types.dims import Dim, Expr, names, substitute


def decided_dims(old: Value, new: Value) -> dict[str, Dim]:
    """The fresh dims of `old` for which `new`, which holds the same tensor, has another extent."""
    if old.shape is None or new.shape is None or len(old.shape) != len(new.shape):
        return {}
    pairs = zip(old.shape, new.shape, strict=True)
    return {
        str(before): after
        for before, after in pairs
        if before != after
        and isinstance(before, Expr)
        and before.is_name
        and is_fresh(str(before))
        and str(before) not in names(after)
    }


def substitute_dims(graph: Graph, decided: Mapping[str, Dim]) -> None:
    """Replaces dims by what they are known to be, in shapes and contents of the graph and its subgraphs."""
    if not decided:
        return
    env = dict(decided)
    for _ in env:  # one may be given in terms of another
        following = {name: substitute(value, env) for name, value in env.items()}
        if following == env:
            break
        env = following
    for part in (graph, *nested_graphs(graph)):
        for value in part.values.values():
            if value.shape is not None:
                value.shape = tuple(substitute(d, env) for d in value.shape)
            if value.content is not None:
                value.content = tuple(substitute(d, env) for d in value.content)
    for name in env:
        graph.dims.pop(name, None)
