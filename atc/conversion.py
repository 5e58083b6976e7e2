"""The conversion driver: the stages of a conversion in order, on one screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acl_runtime.kernels import ProgramCompilation, objects_digest
from acl_runtime.om import trust
from acl_runtime.package_layout import PORTABLE, ClassPart, plan_texts, write_model
from acl_runtime.stored_constants import lay_out
from atc import __version__
from atc.aicpu_tasks import require_tasks
from atc.check_report import write_check_report
from atc.chip_instance import aicpu_rows, chip_line, make_chip_instance, require_mode
from atc.console import Progress
from atc.custom_operators import import_operators, operators_of
from atc.fusion_report import fusion_counts, fusion_notes
from atc.inputs import index_bounds
from atc.options import Options
from atc.pass_watch import PassWatch
from atc.pipeline import shared_passes, target_passes, without
from atc.plan_constants import add_constants
from atc.plan_input import plan_input
from atc.reading import apply_wishes, read
from atc.viewer import viewer_graph
from atc.writing import check_package, writing
from codegen.kernels import kernels, remembered_on_disk, tilings_text
from codegen.llvm.detect import detect_host_class
from codegen.llvm.worker_pool import POOL
from codegen.lowering import lower_graph
from codegen.targets import target
from frontend import unsupported, unsupported_error
from graph_opt.ir.copy_graph import copy_graph
from graph_opt.ir.passes import Pass
from graph_opt.ir.text import to_text
from graph_opt.plan import COPY_GUARD, ModelPlan, model_to_json, plan_model
from graph_opt.plan.bounds import live_bytes
from graph_opt.precision.choose_precision import ChoosePrecision
from graph_opt.precision.lists import ATC_DEFAULT, DEFAULT
from graph_opt.quantisation import ChooseNarrowProducts
from tensor_types.dims import evaluate
from tensor_types.dims import names as dim_names

PORTABLE_TILING = "x86-64-v3"
"""The class whose tile sizes the portable instance takes: middling ones, which every class runs passably."""

_DEFAULTS = Options()


@dataclass
class ConvertResult:
    """What a conversion made, in the terms of `atc convert --json`."""

    package: Path
    soc_version: str
    nodes_in: int
    kernels: int
    aicpu_nodes: list[dict[str, str]]
    arena_bytes: int | None
    arena_lower_bound_bytes: int | None
    arena_without_reuse_bytes: int | None
    fused: dict[str, int]
    compiled_kernels: int
    cached_kernels: int
    estimate_ms: float | None
    """That of the first chip."""
    chips: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By chip: number of kernels, nodes of the AI CPU, estimate and what was changed for it."""
    index_bounds: dict[str, int] = field(default_factory=dict)
    """Integer inputs that index a table: the size of the table."""
    precision_mode: str = DEFAULT
    dtypes: dict[str, int] = field(default_factory=dict)
    """Operators with floating-point results as the mode leaves them, by the dtype that they compute in."""
    atc_default: dict[str, Any] = field(default_factory=dict)
    """ATC's default mode and how many operators it would run in f16."""
    fusions: dict[str, dict[str, int]] = field(default_factory=dict)
    """How often something fused, by pass and by family of kernels (`fusion_report.fusion_counts`)."""
    fusion_notes: list[dict[str, str]] = field(default_factory=list)
    """Why kernels end where they do, and what nearly fused."""
    warnings: list[str] = field(default_factory=list)
    """What the model says that does not hold, or that nothing reads: a sentence each."""
    notes: list[str] = field(default_factory=list)
    """What became of flags that change nothing, and of chips that stand for others: a sentence each."""
    options: dict[str, str] = field(default_factory=dict)
    """Options that differ from their defaults, where no other key shows them."""
    quantised: list[str] = field(default_factory=list)
    """Products that multiply bytes because of --dynamic_quantisation, by node."""
    quantisation_error: dict[str, float] | str = field(default_factory=dict)
    """What that changes: relative L2 by output, measured on seeded inputs, or why it was not measured."""
    tuning: str = ""
    """What --tune found, in a line."""
    package_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        record = dict(vars(self))
        record["package"] = str(self.package)
        record["seconds"] = {**self.seconds, "total": sum(self.seconds.values())}
        return record

    def report(self) -> dict[str, Any]:
        """The part that depends on model, flags and code alone: it goes into the package."""
        left_out = {"package", "package_bytes", "seconds", "compiled_kernels", "cached_kernels", "tuning",
                    "quantisation_error"}  # fmt: skip
        return {k: v for k, v in vars(self).items() if k not in left_out}

    def lines(self) -> list[str]:
        """At most twelve lines for people, one for each chip and one a note."""
        fused = ", ".join(f"{count} {family}" for family, count in sorted(self.fused.items(), key=lambda f: -f[1]))
        lines = [
            f"package    {self.package} ({self.package_bytes / 1e6:.1f} MB)",
            f"operators  {self.nodes_in} in, {self.kernels} kernels out",
            f"kernels    {fused}",
            f"compiled   {self.compiled_kernels} new, {self.cached_kernels} from the cache",
            self._dtypes_line(),
        ]
        if self.arena_bytes is not None and self.arena_lower_bound_bytes:
            ratio = self.arena_bytes / self.arena_lower_bound_bytes
            without = (self.arena_without_reuse_bytes or 0) / 1e6
            arena = f"{self.arena_bytes / 1e6:.2f} MB arena, {ratio:.2f} x its bound"
            lines.append(f"memory     {arena}, {without:.2f} MB without reuse")
        names = ", ".join(f"{n['op']} {n['name']}" for n in self.aicpu_nodes[:4])
        more = f" and {len(self.aicpu_nodes) - 4} more" if len(self.aicpu_nodes) > 4 else ""
        lines.append(f"AI CPU     {names + more if self.aicpu_nodes else 'no node'}")
        lines.extend(chip_line(name, chip) for name, chip in self.chips.items())
        if self.warnings:
            more = f" (and {len(self.warnings) - 1} more, see --json)" if len(self.warnings) > 1 else ""
            lines.append(f"warning    {self.warnings[0]}{more}")
        if self.quantised:
            lines.append(f"quantised  {self._quantised_line()}")
        if self.tuning:
            lines.append(f"tuning     {self.tuning}")
        lines += [f"note       {note}" for note in self.notes]
        lines.append("time       " + ", ".join(f"{stage} {s:.2f} s" for stage, s in self.seconds.items()))
        return lines

    def _quantised_line(self) -> str:
        error = self.quantisation_error
        outputs = ", ".join(f"{name} {e:.2%}" for name, e in error.items()) if isinstance(error, dict) else error
        measured = f"relative L2 on seeded inputs: {outputs}" if isinstance(error, dict) else f"not measured: {outputs}"
        return f"{len(self.quantised)} products to bytes at run time; {measured}"

    def _dtypes_line(self) -> str:
        counts = ", ".join(f"{n} in {dtype}" for dtype, n in self.dtypes.items() if n)
        default = f"ATC's default, {self.atc_default.get('mode')}: {self.atc_default.get('f16')} in f16"
        return f"dtypes     {counts or 'no floats'} by {self.precision_mode} ({default})"


@remembered_on_disk(lambda: POOL.warm_up(detect_host_class()))
def convert(
    model: str | Path, output: str | Path | None = None, options: Options = _DEFAULTS,
    progress: Progress | None = None, header: Mapping[str, Any] | None = None,
) -> ConvertResult:  # fmt: skip
    """Converts an ONNX file to a package and returns what was done.

    `output` defaults to the model's path with `.om`. Where the key of `options.sign` is trusted, the package's native
    code runs as it is. `header` are further entries of the package's header. Raises OpenAtcError with code, place and
    remedy.
    """
    source = Path(model)
    package = Path(output) if output is not None else source.with_suffix(".om")
    progress = progress or Progress(None)
    import_operators(options.custom_op)
    host, portable_class = target(detect_host_class()), target(PORTABLE_TILING)
    chips = [target(name) for name in options.soc_version]
    for chip in chips:
        require_mode(chip, options.precision_mode)
    sign = options.sign
    if sign is not None:
        trust.read_private_key(sign)  # refused before the work, not after it
    with progress.stage("read"):
        graph = read(source, options)
        nodes_in = len(graph.nodes)
        bounds = index_bounds(graph)
        producers = {value.name: node.name for node in graph.nodes for value in node.outputs}
        missing = unsupported(graph)
        if options.check_report is not None:
            write_check_report(options.check_report, graph, missing)
        if missing:
            raise unsupported_error(missing)
        classes, matched, interface = apply_wishes(graph, options)
    watch = PassWatch(options.verify_ir, options.dump_ir)
    disabled = options.passes_left_out
    shared = without(shared_passes(), disabled)
    host_passes = target_passes(
        kernels([host, portable_class]), options.precision_mode, classes, options.high_precision,
        options.quantises_dynamically,
    )  # fmt: skip
    steps = without(host_passes, disabled)
    check_package(package, "--output", [source, *([sign] if sign is not None else [])])
    with progress.stage("optimise"):
        watch.run(graph, shared)
        chip_graphs = [copy_graph(graph) for _ in chips]
        watch.run(graph, steps)
    tilings, tuned = options.tiling, None
    if options.tune:
        from atc.tuning import tune  # runs kernels, which no other conversion does

        with progress.stage("tune"):
            tuned = tune(graph, host, tilings, options.budget)
            tilings = tuned.with_given(tilings)
    with progress.stage("lower"):
        lowered = lower_graph(graph, host, tilings)
        copies = [COPY_GUARD] if lowered.has_guards else []  # the plan adds tasks of this program
        compilation = ProgramCompilation([*(r.program for r in lowered.kernels), *copies], host.name)
        lowered_portably = lower_graph(graph, portable_class)
        operators = operators_of(graph)
        constants = {v.name: v.recipe for v in graph.constants() if v.recipe is not None}
        portable = plan_model(plan_input(graph, lowered_portably))
        watch.check(portable)
        texts_of_portable = model_to_json(portable)
        add_constants(texts_of_portable, graph, lowered_portably, constants, "")
        portable_part = ClassPart(plan_texts(texts_of_portable))
        del portable, texts_of_portable, lowered_portably  # of a large graph a plan takes more memory than the graph
    with progress.stage("chips"):  # while the programs of the host are being compiled
        instances = [
            make_chip_instance(
                g, chip, without(target_passes(kernels([chip]), options.precision_mode, classes), disabled), watch,
                constants,
            )  # fmt: skip
            for g, chip in zip(chip_graphs, chips, strict=True)
        ]
    with progress.stage("plan"):
        planned = plan_model(plan_input(graph, lowered))
        watch.check(planned)
        plan = model_to_json(planned)
        add_constants(plan, graph, lowered, constants, "")
    with progress.stage("compile"):
        texts = list(planned.programs)
        images = compilation.result()
        objects = [images[t] for t in texts]
    result = ConvertResult(
        package=package,
        soc_version=",".join(options.soc_version),
        nodes_in=nodes_in,
        kernels=len(lowered.kernels),
        aicpu_nodes=aicpu_rows(lowered),
        fused=dict(Counter(r.family for r in lowered.kernels)),
        compiled_kernels=compilation.compiled,
        cached_kernels=len(images) - compilation.compiled,
        estimate_ms=instances[0].report["estimate_ms"],
        chips={i.chip.name: i.summary() for i in instances},
        index_bounds=bounds,
        fusions=fusion_counts(graph, watch.made),
        fusion_notes=fusion_notes([*shared, *steps]),
        warnings=graph.warnings,
        notes=[*options.notes, *matched],
        options=options.report(),
        quantised=[name for s in steps if isinstance(s, ChooseNarrowProducts) for name in s.quantised],
        **_precision(steps),
        **_memory(planned),
    )
    about = {
        "tool": f"openatc {__version__}",
        "soc_version": result.soc_version,
        "atc_cmdline": options.command_line,
    }
    with progress.stage("package"), writing("--output"):
        resources = {"memory_size": -1 if result.arena_bytes is None else result.arena_bytes,
                     "stream_num": 1, "event_num": 0}  # fmt: skip
        require_tasks(plan)
        table = lay_out(constants, plan)
        signature = None if sign is None else trust.sign(objects_digest(texts, host.name, objects), sign)
        write_model(
            package,
            classes={
                host.name: ClassPart(plan_texts(plan), objects=objects, signature=signature),
                PORTABLE: portable_part,
            },
            chips={i.chip.name: i.part for i in instances},
            constants=constants,
            table=table,
            viewer=viewer_graph(graph, lowered, table, producers, {**about, **resources}),
            graph_text=to_text(graph),
            report=result.report(),
            header={
                **about,
                "operators": operators,
                **interface,
                **(header or {}),
            },
        )
        result.package_bytes = package.stat().st_size
        if tuned is not None:
            package.with_suffix(".tilings").write_text(tilings_text(tilings))
            result.tuning = tuned.line()
    if result.quantised:
        from atc.quantisation_error import (
            quantisation_error,  # converts and runs models, which no other conversion does
        )

        with progress.stage("compare"):
            result.quantisation_error = quantisation_error(source, package, options, header)
    result.seconds = progress.seconds
    return result


def _precision(steps: Sequence[Pass]) -> dict[str, Any]:
    """What the precision pass chose, for the report."""
    chosen = next(s for s in steps if isinstance(s, ChoosePrecision))
    dtypes = {name: n for name, n in sorted(chosen.report.items()) if name != ATC_DEFAULT}
    return {
        "precision_mode": chosen.mode,
        "dtypes": dtypes,
        "atc_default": {"mode": ATC_DEFAULT, "f16": chosen.report[ATC_DEFAULT]},
    }


def _memory(planned: ModelPlan) -> dict[str, int | None]:
    """Arena figures where the shapes are static; None for symbolic models. Segments use one arena in turns."""
    plans = [s.plan for s in planned.segments]
    if any(dim_names(p.arena) for p in plans):
        return {"arena_bytes": None, "arena_lower_bound_bytes": None, "arena_without_reuse_bytes": None}
    return {
        "arena_bytes": max(evaluate(p.arena, {}) for p in plans),
        "arena_lower_bound_bytes": max(live_bytes(p, {}) for p in plans),
        "arena_without_reuse_bytes": max(sum(evaluate(s.bytes, {}) for s in p.storages) for p in plans),
    }
