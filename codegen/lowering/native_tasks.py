"""The native tasks of a node, every program of which has passed the verifier for the target."""

from __future__ import annotations

import functools

from codegen.kernels import NotLowerable, lower_node
from codegen.kernels.tiling import Tiling
from codegen.targets import Target, target
from codegen.tile.text import parse_program
from codegen.tile.verifier import VerifyError, verify
from graph_opt.ir import Node
from graph_opt.ir.ops.registry import is_fresh
from graph_opt.plan.records import KernelRecord, Record
from tensor_types.dims import names


def native_tasks(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """Records of a Fused node; NotLowerable if its family has no kernel, or none that is proven sound."""
    records = lower_node(node, target, tiling)
    for record in records:
        if isinstance(record, KernelRecord):
            fault = _fault(record.program, target.name)
            if fault is not None:
                raise NotLowerable(f"its kernel is not proven to be sound: {fault}")
    if not records and any(is_fresh(n) for v in node.outputs for d in v.shape or () for n in names(d)):
        raise NotLowerable("it has no elements, and only the run knows its shape")
    return records


@functools.lru_cache(maxsize=4096)
def _fault(program: str, name: str) -> str | None:
    """Why the verifier refuses the program for the target of that name, or None. Layers that are alike share it."""
    try:
        verify(parse_program(program), target(name))
    except VerifyError as error:
        return str(error.reason)
    return None
