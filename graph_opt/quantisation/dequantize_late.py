"""Moves DequantizeLinear of a constant behind what only picks or reorders its elements.

1. Gather(DequantizeLinear(table)) with one scale gathers codes: a table is read, never converted as a whole.
2. Transpose(DequantizeLinear(w)) is DequantizeLinear of the transposed constant, whose axis moves along.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graph_opt.ir.core import AttrValue, Graph, Node
from graph_opt.ir.rewriter import Rewriter
from graph_opt.quantisation.arithmetic import is_single
from tensor_types.recipes import permute


@dataclass(frozen=True)
class DequantizeLate:
    """See the module."""

    name: ClassVar[str] = "dequantize-late"

    def apply(self, graph: Graph) -> bool:
        changed, rewriter = False, Rewriter(graph)
        for node in list(graph.nodes):
            source = node.input(0)
            origin = source.producer if source is not None else None
            if origin is None or origin.op != "DequantizeLinear" or node.op not in ("Gather", "Transpose"):
                continue
            codes = origin.inputs[0]
            if codes is None or codes.recipe is None or origin.attrs.get("block_size"):
                continue
            single = all(is_single(v) for v in origin.inputs[1:])
            if node.op == "Gather" and not single:
                continue
            attrs: dict[str, AttrValue] = dict(origin.attrs)
            if node.op == "Gather":
                operands = [codes, node.inputs[1]]
                moved = rewriter.insert("Gather", operands, node.attrs, before=node, name=node.name).output
            else:
                order = _order(node, codes.rank)
                moved = rewriter.constant(permute(codes.recipe, order), f"{codes.name}/transposed")
                attrs["axis"] = 0 if single else order.index(int(attrs.get("axis", 1)) % len(order))  # type: ignore[arg-type]
            late = rewriter.insert(
                "DequantizeLinear", [moved, *origin.inputs[1:]], attrs, before=node, name=f"{node.name}/dequantize"
            )
            rewriter.replace(node.output, late.output)
            rewriter.erase_dead([node])
            changed = True
        return changed


def _order(node: Node, rank: int) -> list[int]:
    perm = node.attrs.get("perm")
    return [int(a) for a in perm] if perm else list(reversed(range(rank)))  # type: ignore[union-attr]
