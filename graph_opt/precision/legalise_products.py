"""Gives a chip products that its cube can do.

1. A product whose operands are f32, of which the cube has no mode, takes them in f16. It accumulates in f32 and gives
   f32; results of layers that keep one dtype throughout (attention, recurrent ones) are f16 and cast back.
2. Depthwise convolutions run on the vector engine and stay as they are; so do nodes of sizes that only a run decides,
   and convolutions whose weight is no constant, which run on the AI CPU.
3. Constants are rounded here, finite numbers to finite ones.
4. Every product that is changed is noted. What the chip has no way to do at all is left to lowering, which says why.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from graph_opt.ir import Graph, Node
from graph_opt.ir.passes import Note
from graph_opt.precision.choose_precision import Retyping
from graph_opt.precision.decisions import data_operands, is_depthwise, is_late, operator
from graph_opt.precision.lists import CUBE
from tensor_types.dtypes import F16, F32

_PRODUCTS = CUBE | {"LSTM", "GRU"}
_CONSTANT_WEIGHT = frozenset({"Conv", "ConvTranspose", "LSTM", "GRU"})


@dataclass(frozen=True)
class LegaliseProducts:
    """See the module. `chip` is the name for the notes, `cube` the names of the dtypes that its cube multiplies."""

    chip: str
    cube: Collection[str]
    name: str = "legalise-products"
    notes: list[Note] = field(default_factory=list, compare=False)

    def apply(self, graph: Graph) -> bool:
        self.notes.clear()
        if F32.name in self.cube or F16.name not in self.cube:
            return False
        chosen = {node for node in graph.nodes if _is_f32_product(node)}
        self.notes.extend(
            Note(node.name, self.name, f"the cube of {self.chip} has no f32: operands in f16, sums in f32")
            for node in graph.nodes
            if node in chosen
        )
        if chosen:
            Retyping(graph, F16, chosen, rounds=False).run()
        return bool(chosen)


def _is_f32_product(node: Node) -> bool:
    op = operator(node) if node.op == "Fused" else node.op
    if op not in _PRODUCTS or is_depthwise(node) or is_late(node) or node.output.dtype != F32:
        return False
    weight = node.input(1)
    if op in _CONSTANT_WEIGHT and (weight is None or not weight.is_constant):
        return False
    operands: Sequence[object] = data_operands(node)
    return bool(operands)
