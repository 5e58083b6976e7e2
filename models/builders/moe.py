"""A mixture-of-experts block (Jiang et al. 2024) in the two forms that exporters write: every expert on every token
with zero weights for those not chosen, and NonZero → Gather → expert → ScatterND so that tokens go to their experts."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from models.builders.graph_writer import GraphWriter


def build(
    sparse: bool, seed: int = 6, experts: int = 8, chosen: int = 2, hidden: int = 512, inner: int = 1024
) -> onnx.ModelProto:
    """x f32 [tokens, hidden] → y f32 [tokens, hidden]; both forms have the same weights and compute the same function.

    The routing weights are the softmax of the router's `chosen` largest logits.
    """
    g = GraphWriter("moe_sparse" if sparse else "moe_dense", seed, opset=18)
    x = g.input("x", TensorProto.FLOAT, ["tokens", hidden])
    # A strong router: clear winners, so that the choice does not hang on rounding.
    probabilities = g.op("Softmax", g.linear(x, hidden, experts, gain=2.0, bias=False), axis=-1)
    weights, indices = g.ops("TopK", 2, probabilities, g.constant([chosen]), axis=-1)
    total = g.op("ReduceSum", weights, g.constant([-1]), keepdims=1)
    weights = g.op("Div", weights, total)

    def expert(y: str) -> str:
        gate = g.linear(y, hidden, inner, bias=False)
        gate = g.op("Mul", gate, g.op("Sigmoid", gate))
        return g.linear(g.op("Mul", gate, g.linear(y, hidden, inner, bias=False)), inner, hidden, gain=1.7, bias=False)

    if sparse:
        shape = g.op("Shape", x)
        y = g.op("ConstantOfShape", shape, value=onnx.numpy_helper.from_array(np.zeros(1, np.float32)))
    else:
        y = ""
    for i in range(experts):
        hit = g.op("Cast", g.op("Equal", indices, g.constant(i)), to=TensorProto.FLOAT)
        # Each expert occurs at most once in a token's choice: the sum is its weight, or zero.
        weight = g.op("ReduceSum", g.op("Mul", weights, hit), g.constant([-1]), keepdims=1)
        if sparse:
            used = g.op("Greater", g.op("Squeeze", weight, g.constant([1])), g.constant(0.0, np.float32))
            rows = g.op("Transpose", g.op("NonZero", used), perm=[1, 0])
            flat = g.op("Squeeze", rows, g.constant([1]))
            part = g.op("Mul", expert(g.op("Gather", x, flat, axis=0)), g.op("Gather", weight, flat, axis=0))
            y = g.op("ScatterND", y, rows, part, reduction="add")
        else:
            part = g.op("Mul", expert(x), weight)
            y = g.op("Add", y, part) if y else part
    g.output(y, "y", TensorProto.FLOAT, ["tokens", hidden])
    return g.model()
