"""What a package needs of the user's own operators. Nothing is imported for a package: it names a module, no more."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from acl_runtime.aicpu import has_implementation
from acl_runtime.om import PackageError
from tensor_types.errors import UnsupportedOperator


def require_operators(header: Mapping[str, Any]) -> None:
    """Checks that every operator of the package that runs as a numpy function is registered in this process.

    `header["operators"]` maps 'Domain::Name' to {"module", "kind"}. UnsupportedOperator names the missing module.
    """
    operators = header.get("operators", {})
    if not isinstance(operators, dict) or not all(_is_row(op, row) for op, row in operators.items()):
        raise PackageError("the list of custom operators is not valid", remedy="convert the model again")
    for op, row in operators.items():
        if row["kind"] == "numpy" and not has_implementation(op):
            module = row["module"]
            known = module != "__main__"
            raise UnsupportedOperator(
                "the package needs a custom operator that is not registered here; it was registered by "
                + (f"the module {module}" if known else "the program that converted the model"),
                code="E13010", where={"op": op},
                remedy=f"import {module} before loading the package; with atc: --custom_op {module}" if known else
                       "call atc.register_op for it before loading the package",
            )  # fmt: skip


def _is_row(op: str, row: object) -> bool:
    """True for an entry that can be shown to a user as it is: the module as a name, not as a file or a command."""
    if not isinstance(row, dict) or row.get("kind") not in ("numpy", "tile"):
        return False
    module = row.get("module")
    is_name = isinstance(module, str) and re.fullmatch(r"\w[\w. -]{,255}", module) is not None
    return is_name and len(op) < 256 and op.isprintable()
