"""`atc inspect`: parts of a package, its tasks in order, its memory, and text forms of what it was made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from acl_runtime.kernels import signature_verdict
from acl_runtime.om import Package, PackageError, open_package
from acl_runtime.package_layout import PORTABLE, read_objects, section
from acl_runtime.plan_format import ModelPlan, PlanValue, read_plan
from atc.package_texts import classes_of, report_of
from tensor_types.dims import dmax
from tensor_types.dtypes import DTYPES
from tensor_types.json_text import parse_json

IR_STAGES = ("read", "optimised", "programs")


def inspect_package(path: Path, verify: bool = False) -> dict[str, Any]:
    """Tool, chip, inputs and outputs, parts with bytes, layers (one a task, in order) and memory. PackageError.

    `verify` reads the weights too and holds them against their digests; everything else is checked in any case.
    """
    package = open_package(path, verify)
    report = report_of(package)
    plan = plan_of(package)
    return {
        "package": str(path),
        "package_bytes": path.stat().st_size,
        "tool": package.header.get("tool", ""),
        "soc_version": package.header.get("soc_version", ""),
        "classes": list(classes_of(package)),
        "operators": package.header.get("operators", {}),
        "signatures": _signatures(package),
        "inputs": [_tensor(value) for value in plan.inputs],
        "outputs": [_tensor(value) for value in plan.outputs],
        "dims": {name: list(bounds) for name, bounds in plan.dims.items()},
        "parts": [{"name": s.name, "kind": s.kind.name.lower(), "bytes": s.size} for s in package.sections()],
        "layers": _layers(plan),
        "memory": {
            "arena_bytes": report.get("arena_bytes"),
            "arena_lower_bound_bytes": report.get("arena_lower_bound_bytes"),
            "arena_without_reuse_bytes": report.get("arena_without_reuse_bytes"),
            "arena": str(dmax(*(s.arena for s in plan.segments))),
            "storages": sum(len(s.storages) for s in plan.segments),
            "weights_bytes": sum(s.size for s in package.sections() if s.name == "weights"),
        },
        "fusion_notes": report.get("fusion_notes", []),
    }


def package_text(path: Path, stage: str) -> str:
    """The optimised graph, or the tile programs, in text form. PackageError."""
    package = open_package(path)
    if stage == "optimised":
        return bytes(package.section("graph")).decode()
    return "\n".join(plan_of(package).programs)


def model_text(path: Path, stage: str) -> str:
    """The graph of an ONNX file as read, or after all passes. InvalidModel."""
    from atc.pipeline import passes
    from codegen.kernels import kernels
    from codegen.llvm.detect import detect_host_class
    from codegen.targets import target
    from frontend import read_model
    from graph_opt.ir.passes import run_passes
    from graph_opt.ir.text import to_text

    graph = read_model(path)
    if stage == "optimised":
        run_passes(graph, passes(kernels([target(detect_host_class())])))
    return to_text(graph)


def plan_of(package: Package) -> ModelPlan:
    """The plan for the class that the package was made for. PackageError."""
    hosts = [h for h in (*classes_of(package), PORTABLE) if section(h, "plan") in package]
    if not hosts:
        raise PackageError("the package holds no plan", remedy="the file is damaged: convert the model again")
    # The classes that a package was made for come before the portable instance: their figures are those that count.
    host = next((h for h in hosts if h != PORTABLE), PORTABLE)
    return read_plan(_json(package, section(host, "plan")), _json(package, section(host, "programs")))


def _layers(plan: ModelPlan) -> list[dict[str, Any]]:
    """One row a task; a segment begins when all tasks of those before it have ended."""
    rows: list[dict[str, Any]] = []
    for number, segment in enumerate(plan.segments):
        first = len(rows)
        for task in segment.tasks:
            native = task.program is not None
            rows.append(
                {
                    "task": len(rows),
                    "segment": number,
                    "node": task.node,
                    "family": task.family if native else task.op,
                    "engine": "AI Core" if native else "AI CPU",
                    "program": task.program,
                    "grid": str(task.grid),
                    "tiling": task.tiling,
                    "after": [first + before for before in task.after],
                }
            )
    return rows


def _signatures(package: Package) -> dict[str, str]:
    """By host class: whose signature of its native code is trusted here, or why it is not."""
    found = {}
    for host in classes_of(package):
        name = section(host, "signature")
        if name in package:
            texts = _json(package, section(host, "programs"))
            objects = read_objects(package.section(section(host, "objects")))
            found[host] = signature_verdict(texts, host, objects, bytes(package.section(name))).reason
    return found


def _tensor(value: PlanValue) -> dict[str, Any]:
    shape = None if value.shape is None else [d if isinstance(d, int) else str(d) for d in value.shape]
    return {"name": value.name, "dtype": str(DTYPES[value.dtype.name].numpy), "shape": shape}


def _json(package: Package, name: str) -> Any:
    try:
        return parse_json(bytes(package.section(name)))
    except ValueError as error:
        raise PackageError(
            f"section {name} is not JSON: {error}", remedy="the file is damaged: convert the model again"
        ) from error
