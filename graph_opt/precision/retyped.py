"""Whether a node would have a kernel in another dtype."""

from __future__ import annotations

from graph_opt.fusion.families import Kernels
from graph_opt.ir import Graph, Node
from graph_opt.precision.decisions import narrowable_inputs, needs_no_kernel
from graph_opt.precision.lists import ACCUMULATES
from tensor_types.dtypes import F32, DType

_F32_SUMS = {op: {"result_dtype": F32.name} for op in ACCUMULATES}


def has_kernel(graph: Graph, node: Node, dtype: DType, kernels: Kernels) -> bool:
    """True if a node that computes in f32 has a kernel that takes its operands in `dtype`, or needs none."""
    if needs_no_kernel(node):
        return True
    family = kernels.of_node(node)
    if family is None or not family.retypes:
        return False
    dtypes = dict.fromkeys(narrowable_inputs(node), dtype)
    return kernels.why_not_as(graph, node, dtypes=dtypes, attrs=_F32_SUMS) is None
