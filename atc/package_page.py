"""A package as one HTML page: its arena over time, its model before and after fusion, why kernels end where they do."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from acl_runtime.om import open_package
from acl_runtime.om.replace_file import replace_file
from acl_runtime.plan_format import SegmentPlan
from atc.html_page import render
from atc.inspect_package import plan_of
from atc.package_texts import graph_of
from atc.profiling.memory import model_memory
from atc.writing import writing
from graph_opt.ir import Graph
from tensor_types.dims import names

_STATES = {"same": "written", "cast": "written", "interior": "fused", "slice": "fused", "scale": "fused"}


def write_page(path: Path, package: Path, found: Mapping[str, Any], flag: str = "-o") -> None:
    """The page, whole or not at all. `found` is what `inspect_package` tells."""
    with writing(flag), replace_file(path) as file:
        file.write(page(package, found).encode())


def page(package: Path, found: Mapping[str, Any]) -> str:
    """HTML. Dims that are open have the least size that they may have, 1 at least."""
    opened = open_package(package)
    graph = graph_of(opened)
    segments = plan_of(opened).segments
    dims = {name: size for s in segments for name, size in _sizes(s).items()}
    memory = model_memory(segments, dims)
    tensors = _tensors(graph, found["layers"])
    data = {
        "blocks": [asdict(b) for b in memory.blocks], "arena": memory.arena, "tasks": len(memory.live),
        "tensors": tensors, "notes": list(found["fusion_notes"]),
        "kernels": [{"name": r["node"], "family": r["family"], "engine": r["engine"]} for r in found["layers"]],
    }  # fmt: skip
    sizes = ", ".join(f"{name} = {size}" for name, size in dims.items())
    command = " ".join(["atc", *sys.argv[1:]])
    return render("package.html", data, package=str(package), found=found, memory=memory, sources=len(tensors),
                  sizes=sizes, command=command)  # fmt: skip


def _sizes(segment: SegmentPlan) -> dict[str, int]:
    used = set().union(*(names(d) for pair in segment.storages for d in pair), names(segment.arena))
    return {name: max(1, bounds[0]) for name, bounds in segment.dims.items() if name in used}


def _tensors(graph: Graph, layers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Source tensors in the order of the model, each with its state and the number of the task that computes it."""
    number = {row["node"]: n for n, row in enumerate(layers)}
    rows = []
    for source, origin in graph.origins.items():
        value = graph.values.get(origin.value) if origin.value else None
        state = _STATES.get(origin.relation, origin.relation)
        if value is not None and value.is_constant:
            state = "folded"
        node = value.producer if value is not None else None
        while node is not None and node.name not in number:  # another name of its input
            first = node.inputs[0] if node.inputs else None
            node = first.producer if first is not None else None
        task = -1 if node is None else number[node.name]
        rows.append({"source": source, "state": state, "kernel": task, "dtype": value.dtype.name if value else ""})
    return rows
