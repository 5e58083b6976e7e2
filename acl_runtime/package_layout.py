"""Which sections a model's package has, and how a model is written into them.

header                    tool, flags, host classes (small JSON)
graph, report             text of the optimised graph; conversion report (JSON)
constants                 JSON table: name -> {dtype, shape, offset} into `weights`, or {dtype, shape, strings}
weights                   each constant once, canonical layout, 64-byte aligned
portable/plan, /programs  the instance with generic tiling that every host class can run
class/<host>/plan         the plan for one host class (JSON, `graph_opt.plan.plan_json`), without its programs
class/<host>/programs     JSON list of tile program texts, in the order of the plan's program numbers
class/<host>/objects      optional: count u32, then (size u64) each, then the object files end to end
class/<host>/signature    optional: ed25519 signature of the objects (`acl_runtime.kernels.objects_digest`), 64 bytes
class/<host>/packed       optional: constants in kernel form, segment by segment in the order of the plan, 64-byte
                          aligned each
chip/<name>/plan          the plan for one chip, as for a host class
chip/<name>/programs      its tile programs, which the runtime interprets
chip/<name>/report        kernels with estimates, memory per scope, AI CPU nodes with reasons (JSON)
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from acl_runtime.om import FusedGraph, PackageError, write_package
from acl_runtime.om.container import align
from tensor_types import recipes
from tensor_types.formats import Format, parse_format
from tensor_types.recipes import Recipe, blocks

PORTABLE = "portable"
_DAMAGED = "the file is damaged: copy it again or convert the model again"


@dataclass(frozen=True)
class ClassPart:
    """What a package holds for one host class: the plan (JSON values), objects of its programs and their signature,
    packed constants."""

    plan: Mapping[str, Any]
    objects: Sequence[bytes] | None = None
    signature: bytes | None = None
    packed: bool = True


@dataclass(frozen=True)
class ChipPart:
    """What a package holds for one chip: plan and report (JSON values)."""

    plan: Mapping[str, Any]
    report: Mapping[str, Any]


@dataclass(frozen=True)
class ConstantEntry:
    """A row of the constants table; `strings` holds the elements of a string tensor, which has no bytes."""

    dtype: str
    shape: tuple[int, ...]
    offset: int = 0
    strings: tuple[str, ...] | None = None


def section(host: str, part: str) -> str:
    """The section name of a part of a host class, or of the portable instance."""
    return f"{PORTABLE}/{part}" if host == PORTABLE else f"class/{host}/{part}"


def chip_section(chip: str, part: str) -> str:
    """The section name of a part of a chip's instance."""
    return f"chip/{chip}/{part}"


def constant_table(constants: Mapping[str, Recipe]) -> dict[str, ConstantEntry]:
    """The table of these constants, in name order, as `write_model` lays them out in `weights`."""
    table, position = {}, 0
    for name in sorted(constants):
        recipe = constants[name]
        kind = recipe.dtype.name
        if kind == "str":
            elements = recipe.array().reshape(-1).tolist()
            words = tuple(w.decode() if isinstance(w, bytes) else str(w) for w in elements)
            table[name] = ConstantEntry(kind, recipe.shape, strings=words)
            continue
        table[name] = ConstantEntry(kind, recipe.shape, position)
        position = align(position + recipe.nbytes)
    return table


def write_model(
    path: str | os.PathLike[str],
    *,
    classes: Mapping[str, ClassPart],
    chips: Mapping[str, ChipPart] | None = None,
    constants: Mapping[str, Recipe],
    viewer: FusedGraph,
    graph_text: str = "",
    report: Mapping[str, Any] | None = None,
    header: Mapping[str, Any] | None = None,
) -> None:
    """Writes a package.

    `classes` maps host class names, or 'portable', to their parts, `chips` names of chips; `constants` are recipes of
    the canonical tensors of every constant that a task takes, evaluated block by block; `viewer` is what viewers of
    the format show, its constants at the offsets of `constant_table`; `header` is recorded as it is (tool version,
    flags). Raises PackageError.
    """
    table = constant_table(constants)
    rows = {
        name: {"dtype": e.dtype, "shape": list(e.shape), **({"offset": e.offset} if e.strings is None else
               {"strings": list(e.strings)})}
        for name, e in table.items()
    }  # fmt: skip
    sections: dict[str, Any] = {
        "graph": graph_text.encode(),
        "report": _json(dict(report or {})),
        "constants": _json(rows),
        "weights": _weights(constants),
    }
    for host, part in classes.items():
        plan = dict(part.plan)
        sections[section(host, "programs")] = _json(plan.pop("programs"))
        sections[section(host, "plan")] = _json(plan)
        if part.objects is not None:
            sizes = [len(o) for o in part.objects]
            head = struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
            sections[section(host, "objects")] = [head, *part.objects]
        if part.signature is not None:
            sections[section(host, "signature")] = part.signature
        if part.packed and host != PORTABLE:
            sections[section(host, "packed")] = _packed(part.plan, constants)
    for chip, instance in (chips or {}).items():
        plan = dict(instance.plan)
        sections[chip_section(chip, "programs")] = _json(plan.pop("programs"))
        sections[chip_section(chip, "plan")] = _json(plan)
        sections[chip_section(chip, "report")] = _json(dict(instance.report))
    names = {"classes": sorted(classes), "chips": sorted(chips or {})}
    write_package(path, viewer, sections, {**(header or {}), **names})


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


def kernel_form(
    constant: Recipe, permute: Sequence[int] | None, reshape: Sequence[int] | None, packing: Format
) -> Recipe:
    """A constant as a kernel wants it: permuted, then reshaped, then packed."""
    if permute is not None:
        constant = recipes.permute(constant, permute)
    if reshape is not None:
        constant = recipes.reshape(constant, reshape)
    return recipes.pack(constant, packing)


def is_stored(row: Mapping[str, Any]) -> bool:
    """True if the canonical bytes of a constant serve a row of the plan's constants as they are."""
    return row["permute"] is None and row["packing"] == "plain"


def _packed(plan: Mapping[str, Any], constants: Mapping[str, Recipe]) -> Iterator[np.ndarray | bytes]:
    for segment in plan["segments"]:
        for row in segment["constants"]:
            if is_stored(row):
                continue
            constant = constants[segment["values"][row["value"]]["name"]]
            packed = kernel_form(constant, row["permute"], row["reshape"], parse_format(row["packing"]))
            yield from blocks(packed)
            yield bytes(align(packed.nbytes) - packed.nbytes)


def _weights(constants: Mapping[str, Recipe]) -> Iterator[np.ndarray | bytes]:
    for name in sorted(constants):
        recipe = constants[name]
        if recipe.dtype.name != "str":
            yield from blocks(recipe)
            yield bytes(align(recipe.nbytes) - recipe.nbytes)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
