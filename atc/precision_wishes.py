"""Wishes for single operators, looked up in a model as read: from names and types to what the precision pass takes.

Nothing has been rewritten yet, so that nodes have the names of the model; the pass finds them again by their results.
"""

from __future__ import annotations

from collections.abc import Sequence

from atc.ascend_types import is_type
from atc.precision_files import Wish
from atc.usage import Problems, UsageError, did_you_mean, nearest
from graph_opt.ir import Graph, ops
from graph_opt.precision.overrides import CLASSES, Overrides
from tensor_types.dtypes import DTYPES


def overrides(graph: Graph, wishes: Sequence[Wish]) -> tuple[Overrides, list[str]]:
    """What the wishes say of the graph, and a note for each flag: how many nodes it holds for.

    A name goes before a type, the strongest class before others. UsageError, of all at once: a name that is no node
    (E10016), two 16-bit floats (E10001). A type without nodes is noted, since lists serve several models.
    """
    problems = Problems()
    by_name = {node.name: node for node in graph.nodes}
    chosen: dict[str, tuple[int, str]] = {}
    operators: dict[str, str] = {}
    counts: dict[str, int] = {}
    without: dict[str, list[str]] = {}
    for wish in wishes:
        counts.setdefault(wish.flag, 0)
        found = [by_name[wish.key]] if wish.by == "name" and wish.key in by_name else []
        if wish.by == "name" and not found:
            with problems.gathered():
                raise UsageError(
                    f"--{wish.flag} names {wish.key!r}, but the model has no node of that name", code="E10016",
                    where={"flag": f"--{wish.flag}", "node": wish.key},
                    remedy=f"{did_you_mean(wish.key, by_name)}use a node's name, or OpType::Type for all of a type",
                )  # fmt: skip
        if wish.by == "type":
            found = [node for node in graph.nodes if is_type(node.op, wish.key)]
            operators.update({op.name: wish.class_ for op in ops.declared() if is_type(op.name, wish.key)})
            if not found:
                guess = nearest(wish.key, {node.op.rpartition("::")[2] for node in graph.nodes})
                without.setdefault(wish.flag, []).append(f"{wish.key} (did you mean {guess}?)" if guess else wish.key)
        counts[wish.flag] += len(found)
        rank = (0 if wish.by == "name" else 1) * len(CLASSES) + CLASSES.index(wish.class_)
        for node in found:
            for value in node.outputs:
                chosen[value.name] = min(chosen.get(value.name, (rank, wish.class_)), (rank, wish.class_))
    narrow = {wish.dtype: wish.flag for wish in wishes if wish.dtype}
    with problems.gathered():
        if len(narrow) > 1:
            raise UsageError(f"two 16-bit floats are asked for: {' and '.join(narrow)}",
                             where={"flag": f"--{next(iter(narrow.values()))}"}, remedy="use one of them")  # fmt: skip
    problems.raise_all()
    notes = [f"--{flag} holds for {n} of {len(graph.nodes)} nodes" for flag, n in counts.items()]
    notes += [f"--{flag}: the model has no node of type {', '.join(types)}" for flag, types in without.items()]
    dtype = DTYPES[next(iter(narrow))] if narrow else None
    return Overrides({name: class_ for name, (_, class_) in chosen.items()}, operators, dtype), notes
