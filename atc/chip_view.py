"""`atc inspect --soc CHIP`: what a package holds for one chip, checked before it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from acl_runtime.om import Package, PackageError, open_package
from acl_runtime.package_layout import chip_instance, section
from atc.chip_instance import chip_line
from atc.tables import table
from tensor_types.json_text import parse_json

_FIELDS = {"kernels": int, "aicpu_nodes": list, "estimate_ms": (float, int, type(None)), "changes": dict,
           "layers": list, "scopes": dict}  # fmt: skip
_LAYER = {"node": str, "family": str, "ms": (float, int, type(None)), "bound": (str, type(None)), "memory": dict}
_NODE = {"name": str, "op": str, "domain": str, "why": str}


def inspect_chip(path: Path, chip: str) -> dict[str, Any]:
    """The chip's report: see `atc.chip_instance`. PackageError if the package has none or it is damaged."""
    package = open_package(path)
    name = section(chip_instance(chip), "report")
    if name not in package:
        chips = ", ".join(map(str, package.header.get("chips", []))) or "none"
        raise PackageError(
            f"the package has no instance for {chip} (its chips: {chips})",
            remedy=f"convert the model again with --soc_version={chip}",
        )
    return {"chip": chip, **_read(package, name)}


def _read(package: Package, name: str) -> dict[str, Any]:
    try:
        found = parse_json(bytes(package.section(name)))
        _check(found, _FIELDS)
        for layer in found["layers"]:
            _check(layer, _LAYER)
        for node in found["aicpu_nodes"]:
            _check(node, _NODE)
        for sizes in (found["scopes"], *(layer["memory"] for layer in found["layers"])):
            if not all(isinstance(n, int) for n in sizes.values()):
                raise ValueError("a size is no number")
        return dict(found)
    except ValueError as error:
        raise PackageError(
            f"section {name} is not valid: {error}", remedy="the file is damaged: convert the model again"
        ) from error


def _check(row: object, fields: Mapping[str, Any]) -> None:
    if not isinstance(row, dict) or row.keys() != fields.keys():
        raise ValueError("its fields are not those of a report")
    for key, kind in fields.items():
        if not isinstance(row[key], kind):
            raise ValueError(f"{key} is of another kind")


def chip_tables(found: Mapping[str, Any]) -> list[str | Table]:
    """The report for people: a line, kernels with their share of every memory, nodes of the AI CPU."""
    scopes = found["scopes"]
    lines: list[str | Table] = [chip_line(found["chip"], found)]
    lines += [f"changed    {times} x {reason}" for reason, times in found["changes"].items()]
    rows = [
        [
            layer["node"], layer["family"], "-" if layer["ms"] is None else f"{layer['ms'] * 1e3:.2f}",
            layer["bound"] or "-", *(str(layer["memory"].get(scope, 0)) for scope in scopes),
        ]
        for layer in found["layers"]
    ]  # fmt: skip
    heads = [f"{scope} of {size}" for scope, size in scopes.items()]
    lines.append(table("kernels, bytes of each memory", ["node", "family", "us", "bound", *heads], rows))
    if found["aicpu_nodes"]:
        columns = ["name", "op", "domain", "why"]
        lines.append(table("AI CPU nodes", columns, [[n[c] for c in columns] for n in found["aicpu_nodes"]]))
    return lines
