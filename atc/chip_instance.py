"""The instance of a model for one chip: its graph, records, plan and verdicts.

Nothing here is made from programs of a host: kernels, memory and estimates are those of the chip's own programs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from acl_runtime.package_layout import ChipPart, plan_texts
from atc.chip_figures import Figures, Launch, figures_of
from atc.pass_watch import PassWatch
from atc.plan_constants import add_constants
from atc.plan_input import plan_input
from atc.usage import UsageError
from codegen.lowering import Lowered, lower_graph
from codegen.targets import Target
from graph_opt.ir import Graph
from graph_opt.ir.passes import Pass, notes_of
from graph_opt.ir.text import to_text
from graph_opt.plan import model_to_json, plan_model
from graph_opt.plan.records import KernelRecord
from graph_opt.precision.legalise_products import LegaliseProducts
from graph_opt.precision.lists import POLICIES, VERSION_2
from tensor_types.dims import evaluate, names
from tensor_types.recipes import Recipe


@dataclass(frozen=True)
class ChipInstance:
    """A model for a chip: what goes into the package, and of that the report, see `_report`."""

    chip: Target
    part: ChipPart

    @property
    def report(self) -> Mapping[str, Any]:
        return self.part.report

    def summary(self) -> dict[str, Any]:
        """The part of the report that `atc convert --json` shows."""
        keys = ("kernels", "aicpu_nodes", "estimate_ms", "changes")
        return {key: self.report[key] for key in keys}


def require_mode(chip: Target, mode: str) -> None:
    """UsageError for a precision mode whose dtype no engine of the chip has."""
    narrow = POLICIES[mode].narrow
    if narrow is None or chip.cube.rate(narrow) or chip.supports(narrow):
        return
    able = [name for name, policy in POLICIES.items() if policy.narrow is None or chip.cube.rate(policy.narrow)]
    also = [name for name, stands_for in VERSION_2.items() if stands_for in able]
    raise UsageError(
        f"{chip.name} has no {narrow}, which precision mode {mode} asks for", code="E10058",
        where={"flag": "--precision_mode"},
        remedy=f"use another chip, or one of {', '.join(able)}; of version 2: {', '.join(also)}",
    )  # fmt: skip


def make_chip_instance(
    graph: Graph, chip: Target, steps: Sequence[Pass], watch: PassWatch, constants: MutableMapping[str, Recipe]
) -> ChipInstance:
    """Runs the chip's passes over `graph`, lowers it and plans it; nothing is left of the graph then.

    Constants that are the chip's own are added to `constants`, under their names or, where another one has that name,
    under one with the chip's.
    """
    watch.run(graph, steps, f"-{chip.name}")
    lowered = lower_graph(graph, chip)
    changes = Counter(note.reason for note in notes_of([s for s in steps if isinstance(s, LegaliseProducts)]))
    planned = plan_model(plan_input(graph, lowered))
    watch.check(planned)
    report, plan = _report(lowered, chip, changes), model_to_json(planned)
    del planned  # of a large graph each form of a plan takes more memory than the graph
    add_constants(plan, graph, lowered, constants, chip.name)
    del lowered
    texts = plan_texts(plan)
    del plan
    part = ChipPart(texts, report, to_text(graph))
    graph.dissolve()
    return ChipInstance(chip, part)


def _report(lowered: Lowered, chip: Target, changes: Mapping[str, int]) -> dict[str, Any]:
    """kernels: count. aicpu_nodes: name, op, domain, why. estimate_ms: sum of the kernels' rooflines, None while a size
    is symbolic; tasks of the AI CPU have no figure and are left out. changes: what was changed for the chip, how often.
    layers: one row a kernel, with node, family, milliseconds and bound (None as above), bytes per scope.
    """
    launches = [_launch(record) for record in lowered.kernels]
    figures = figures_of(launches, chip)
    layers = [_layer(record, figures[launch]) for record, launch in zip(lowered.kernels, launches, strict=True)]
    times = [layer["ms"] for layer in layers]
    return {
        "kernels": len(layers),
        "aicpu_nodes": aicpu_rows(lowered),
        "estimate_ms": None if None in times else sum(times),
        "changes": dict(changes),
        "layers": layers,
        "scopes": {scope: memory.bytes for scope, memory in chip.memories.items()},
    }


def _layer(record: KernelRecord, figures: Figures) -> dict[str, Any]:
    found = figures.estimate
    return {
        "node": record.node,
        "family": record.family,
        "ms": None if found is None else found.seconds * 1e3,
        "bound": None if found is None else found.bound,
        "memory": dict(figures.scopes),
    }


def _launch(record: KernelRecord) -> Launch:
    symbolic = any(names(d) for d in record.dims)
    return record.program, None if symbolic else tuple(evaluate(d, {}) for d in record.dims)


def aicpu_rows(lowered: Lowered) -> list[dict[str, str]]:
    """Nodes of the AI CPU, each with the reason why it has no kernel."""
    rows = []
    for record in lowered.aicpu:
        domain, _, op = record.op.rpartition("::")
        rows.append({"name": record.node, "op": op, "domain": domain or "ai.onnx", "why": record.reason})
    return rows


def chip_line(name: str, summary: Mapping[str, Any]) -> str:
    """One line for people."""
    time, aicpu = summary["estimate_ms"], len(summary["aicpu_nodes"])
    figure = "no estimate: sizes are symbolic" if time is None else f"{time:.3f} ms by roofline, not a simulation"
    left = f", {aicpu} AI CPU nodes not counted" if aicpu else ""
    return f"{name} {summary['kernels']} kernels, {figure}{left}"
