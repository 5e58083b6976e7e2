"""Which sections a model's package has, and how a model is written into them.

header                    tool, flags, host classes (small JSON)
graph, report             text of the optimised graph; conversion report (JSON)
constants                 JSON table of the constants (`acl_runtime.stored_constants`)
weights                   each constant once, in the form that the host class takes, 64-byte aligned
portable/plan, /programs  the instance with generic tiling that every host class can run
class/<host>/plan         the plan for one host class (JSON, `graph_opt.plan.plan_json`), without its programs
class/<host>/programs     JSON list of tile program texts, in the order of the plan's program numbers
class/<host>/objects      optional: count u32, then (size u64) each, then the object files end to end
class/<host>/signature    optional: ed25519 signature of the objects (`acl_runtime.kernels.objects_digest`), 64 bytes
chip/<name>/plan          the plan for one chip, as for a host class
chip/<name>/programs      its tile programs, which the runtime interprets
chip/<name>/graph         text of the graph that they were lowered from; none where `graph` is that
chip/<name>/report        kernels with estimates, memory per scope, AI CPU nodes with reasons (JSON)
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from acl_runtime.om import WEIGHTS, FusedGraph, Package, PackageError, write_package
from acl_runtime.om.container import has_dense
from acl_runtime.stored_constants import StoredConstant, weights
from tensor_types.json_text import parse_json
from tensor_types.recipes import Recipe

PORTABLE = "portable"
CONSTANTS = "constants"
_DEFLATED = ("graph", "report", CONSTANTS, "plan", "programs", "objects")
_DENSE = ("objects",)
"""Read only by a machine that has not compiled the kernels itself."""
"""Last words of the sections that are stored compressed: text to a tenth or less, code to two fifths."""
_DAMAGED = "the file is damaged: copy it again or convert the model again"


class PlanTexts(NamedTuple):
    """A plan as its sections hold it."""

    plan: bytes
    programs: bytes


def plan_texts(plan: Mapping[str, Any]) -> PlanTexts:
    """The sections of a plan in JSON values: these take twenty times the memory."""
    rest = {key: value for key, value in plan.items() if key != "programs"}
    return PlanTexts(json_bytes(rest), json_bytes(plan["programs"]))


@dataclass(frozen=True)
class ClassPart:
    """What a package holds for one host class: the plan, objects of its programs and their signature."""

    plan: PlanTexts
    objects: Sequence[bytes] | None = None
    signature: bytes | None = None


@dataclass(frozen=True)
class ChipPart:
    """What a package holds for one chip: plan, report (JSON values), text of its graph."""

    plan: PlanTexts
    report: Mapping[str, Any]
    graph_text: str = ""


def chip_instance(chip: str) -> str:
    """The name of a chip's instance, as `section` takes it."""
    return f"chip/{chip}"


def section(instance: str, part: str) -> str:
    """The section name of a part of an instance: of a host class by its name, the portable one or a chip's."""
    return f"{instance}/{part}" if instance == PORTABLE or instance.startswith("chip/") else f"class/{instance}/{part}"


def write_model(
    path: str | os.PathLike[str],
    *,
    classes: Mapping[str, ClassPart],
    chips: Mapping[str, ChipPart] | None = None,
    constants: Mapping[str, Recipe],
    table: Mapping[str, StoredConstant],
    viewer: FusedGraph,
    graph_text: str = "",
    report: Mapping[str, Any] | None = None,
    header: Mapping[str, Any] | None = None,
) -> None:
    """Writes a package.

    `classes` maps host class names, or 'portable', to their parts, `chips` names of chips; `constants` are recipes of
    the canonical tensors of every constant that a task takes, written block by block as `table` lays them out
    (`stored_constants.lay_out`); `viewer` is what viewers of the format show; `header` is recorded as it is (tool
    version, flags). Raises PackageError.
    """
    sections: dict[str, Any] = {
        "graph": graph_text.encode(),
        "report": json_bytes(dict(report or {})),
        CONSTANTS: json_bytes({name: row.row() for name, row in table.items()}),
        WEIGHTS: weights(constants, table),
    }
    for host, part in classes.items():
        for name, text in part.plan._asdict().items():
            sections[section(host, name)] = text
        if part.objects is not None:
            sizes = [len(o) for o in part.objects]
            head = struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
            sections[section(host, "objects")] = b"".join([head, *part.objects])
        if part.signature is not None:
            sections[section(host, "signature")] = part.signature
    for chip, made in (chips or {}).items():
        for name, text in made.plan._asdict().items():
            sections[section(chip_instance(chip), name)] = text
        sections[section(chip_instance(chip), "report")] = json_bytes(dict(made.report))
        if made.graph_text != graph_text:
            sections[section(chip_instance(chip), "graph")] = made.graph_text.encode()
    names = {"classes": sorted(classes), "chips": sorted(chips or {})}
    deflated = {name for name in sections if name.rpartition("/")[2] in _DEFLATED}
    dense = {name for name in deflated if name.rpartition("/")[2] in _DENSE and has_dense()}
    write_package(path, viewer, sections, {**(header or {}), **names}, deflated, dense)


def read_objects(data: memoryview) -> list[bytes]:
    """The object files of an `objects` section. PackageError if the sizes do not add up."""
    if len(data) >= 4:
        (count,) = struct.unpack_from("<I", data)
        start = 4 + 8 * count
        if start <= len(data):
            sizes = struct.unpack_from(f"<{count}Q", data, 4)
            if start + sum(sizes) == len(data):
                objects = []
                for size in sizes:
                    objects.append(bytes(data[start : start + size]))
                    start += size
                return objects
    raise PackageError("the object section is not well-formed", remedy=_DAMAGED)


def json_bytes(value: Any) -> bytes:
    """A JSON section as it is written."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def json_section(package: Package, name: str) -> Any:
    """The value of a JSON section. PackageError if there is none or it is no JSON."""
    try:
        return parse_json(bytes(package.section(name)))
    except ValueError as error:
        raise PackageError(f"section {name} is not JSON: {error}", remedy=_DAMAGED) from error
