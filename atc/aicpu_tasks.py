"""What the runtime asks of tasks of the AI CPU when it reads a package, asked when the package is made: a model whose
attributes make no sense is refused, where its package could not be opened."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from acl_runtime.aicpu.schemas import Operand, check_task, kind_of
from acl_runtime.stored_constants import all_segments
from tensor_types.dtypes import DTYPES
from tensor_types.errors import InvalidModel


def require_tasks(plan: Mapping[str, Any]) -> None:
    """InvalidModel names the first node of a plan (JSON values) that the AI CPU does not take."""
    for segment in all_segments(plan):
        operands = [_operand(value) for value in segment["values"]]
        for task in segment["tasks"]:
            if "program" in task or "body" in task:
                continue
            inputs = [None if n is None else operands[n] for n in task["inputs"]]
            try:
                check_task(task["op"], json.loads(json.dumps(task["attrs"])), inputs, len(task["outputs"]))
            except ValueError as error:
                raise InvalidModel(
                    f"the AI CPU does not take this node: {error}", where={"node": task["node"], "op": task["op"]},
                    remedy="correct the node's attributes and inputs",
                ) from None  # fmt: skip


def _operand(value: Mapping[str, Any]) -> Operand:
    return Operand(kind_of(DTYPES[value["dtype"]]), None if value["shape"] is None else len(value["shape"]))
