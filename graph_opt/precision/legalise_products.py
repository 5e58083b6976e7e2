"""Gives float products that a target has no kernel for operands in f16, where it has one for those.

1. Such a product accumulates in f32 and gives f32; results of layers that keep one dtype throughout (attention,
   recurrent ones) are f16 and cast back.
2. Nodes of sizes that only a run decides stay as they are: they run on the AI CPU.
3. Constants are rounded here, finite numbers to finite ones.
4. Every product that is changed is noted, with the family's reason. What has no kernel in f16 either is left to
   lowering, which says why.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from graph_opt.fusion.families import Kernels
from graph_opt.ir import Graph, Node
from graph_opt.ir.passes import Note
from graph_opt.precision.choose_precision import Retyping
from graph_opt.precision.decisions import data_operands, is_late, operator
from graph_opt.precision.lists import CUBE
from graph_opt.precision.retyped import has_kernel
from tensor_types.dtypes import F16, F32

_PRODUCTS = CUBE | {"LSTM", "GRU", "RNN"}


@dataclass(frozen=True)
class LegaliseProducts:
    """See the module."""

    kernels: Kernels
    name: str = "legalise-products"
    notes: list[Note] = field(default_factory=list, compare=False)

    def apply(self, graph: Graph) -> bool:
        self.notes.clear()
        chosen = set()
        for node in graph.nodes:
            if not _is_f32_product(node):
                continue
            reason = self.kernels.why_not_as(graph, node)
            if reason is not None and has_kernel(graph, node, F16, self.kernels):
                chosen.add(node)
                self.notes.append(Note(node.name, self.name, f"{reason}: operands in f16, sums in f32"))
        if chosen:
            Retyping(graph, F16, chosen, rounds=False).run()
        return bool(chosen)


def _is_f32_product(node: Node) -> bool:
    product = operator(node) in _PRODUCTS and node.output.dtype == F32 and not is_late(node)
    return product and bool(data_operands(node))
