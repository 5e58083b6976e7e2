"""DynamicQuantizeLSTM becomes LSTM on the weights that its codes stand for.

The operator quantises its input and the state at every step to save time, not to say something: its result approximates
that of the float LSTM, which this pass takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter


@dataclass(frozen=True)
class ExpandQuantisedLstm:
    """See the module. Weights, scales and zero points must be constant."""

    name: ClassVar[str] = "expand-quantised-lstm"

    def apply(self, graph: Graph) -> bool:
        nodes = [n for n in graph.nodes if n.op == "com.microsoft::DynamicQuantizeLSTM"]
        rewriter = Rewriter(graph)
        return any([_expand(rewriter, node) for node in nodes])


def _expand(rewriter: Rewriter, node: Node) -> bool:
    weights = [_dequantised(node, codes, scale) for codes, scale in ((1, 8), (2, 10))]
    if any(w is None for w in weights):
        return False
    constants = [rewriter.constant(w, f"{node.output.name}/weight") for w in weights if w is not None]
    names = [v.name for v in node.outputs]
    lstm = rewriter.insert(
        "LSTM", [node.inputs[0], *constants, *node.inputs[3:8]], node.attrs, before=node, outputs=names, name=node.name
    )
    for old, new in zip(node.outputs, lstm.outputs, strict=True):
        rewriter.replace(old, new)
    rewriter.erase_dead([node])
    return True


def _dequantised(node: Node, index: int, scale_index: int) -> np.ndarray | None:
    """The weight [directions, 4*hidden, k] of codes [directions, k, 4*hidden]; parameters per direction or column."""
    parameters: list[Value | None] = [node.input(i) for i in (index, scale_index, scale_index + 1)]
    if any(v is None or v.data is None for v in parameters):
        return None
    codes, scale, zero = (np.asarray(v.data) for v in parameters if v is not None)
    directions = codes.shape[0]
    whole = codes.astype(np.float32) - zero.astype(np.float32).reshape(directions, 1, -1)
    real = whole * scale.astype(np.float32).reshape(directions, 1, -1)
    return np.ascontiguousarray(real.transpose(0, 2, 1))
