"""What of a model cannot be converted at all, and what of it a chip's AI CPU would run; nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from atc.chip_instance import aicpu_rows
from atc.pipeline import shared_passes, target_passes
from codegen.kernels import kernels
from codegen.lowering import lower_graph
from codegen.targets import target
from frontend import read_model, unsupported
from graph_opt.ir.copy_graph import copy_graph
from graph_opt.ir.passes import run_passes


def check_model(path: Path, chips: Sequence[str] = (), input_shape: Mapping[Any, Any] | None = None) -> dict[str, Any]:
    """`unsupported`: operators that have no implementation, each with its remedy; if there are none, `aicpu_nodes`: for
    each chip the nodes of its AI CPU (name, op, domain, why), which are those that conversion leaves there."""
    graph = read_model(path, input_shape or None)
    found: dict[str, Any] = {"unsupported": [vars(row) for row in unsupported(graph)]}
    if chips and not found["unsupported"]:
        run_passes(graph, shared_passes())
        found["aicpu_nodes"] = {}
        for name in chips:
            own, chip = copy_graph(graph), target(name)
            run_passes(own, target_passes(kernels([chip])))
            found["aicpu_nodes"][name] = aicpu_rows(lower_graph(own, chip))
    return found
