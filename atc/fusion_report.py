"""What fused, why kernels end where they do and what nearly fused: from conversion to table, JSON and ATC's file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from atc.fusion_switches import ALIASES, FUSIONS
from graph_opt.ir import Graph
from graph_opt.ir.passes import Pass, notes_of

if TYPE_CHECKING:
    from rich.table import Table


def fusion_notes(passes: Iterable[Pass]) -> list[dict[str, str]]:
    """The notes of passes that have run, as `node`, `step` (the pass or rule) and `reason`."""
    return [asdict(note) for note in notes_of(passes)]


def fusion_counts(graph: Graph, made: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """How often something fused: by pass of the graph, under ATC's name of it, and by family of fused kernels."""
    fused = [n for n in graph.nodes if n.op == "Fused" and len(n.subgraphs["body"].nodes) > 1]
    kernels = Counter(str(n.attrs["family"]) for n in fused)
    return {
        "graph_fusion": {ALIASES[n][0] if n in ALIASES else n: made[n] for n in FUSIONS if made.get(n)},
        "ub_fusion": dict(sorted(kernels.items())),
    }


def fusion_result(counts: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """fusion_result.json in ATC's structure, whose numbers are text."""
    rows = {kind: {name: {"effect_times": str(n), "match_times": str(n)} for name, n in found.items()}
            for kind, found in counts.items()}  # fmt: skip
    for row in rows["ub_fusion"].values():
        row["repository_hit_times"] = "0"
    return {"session_and_graph_id_0_0": rows}


def fusion_table(notes: Sequence[Mapping[str, str]]) -> Table:
    """One row per step and reason: how often, and the first node."""
    from atc.tables import table

    counts = Counter((n["step"], n["reason"]) for n in notes)
    first = {(n["step"], n["reason"]): n["node"] for n in reversed(notes)}
    rows = [[str(count), step, reason, first[step, reason]] for (step, reason), count in counts.items()]
    return table("fusion", ["times", "step", "reason", "first node"], rows)
