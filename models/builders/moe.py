"""A mixture-of-experts block (Jiang et al. 2024) in the forms that exporters write.

dense      every expert on every token, with weight zero for those not chosen
sparse     NonZero → Gather → expert → ScatterND, so that tokens go to their experts
gathered   the matrices of the chosen experts are picked by index, one for each token and choice (transformers 5)
expanded   tokens repeated for each expert, batched products, weights scattered over the experts (Llama 4, gpt-oss)
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from models.builders.graph_writer import GraphWriter

FORMS = ("dense", "sparse", "gathered", "expanded")


def build(
    form: str, seed: int = 6, experts: int = 8, chosen: int = 2, hidden: int = 512, inner: int = 1024
) -> onnx.ModelProto:
    """x f32 [tokens, hidden] → y f32 [tokens, hidden]; all forms have the same weights and compute the same function.

    The routing weights are the softmax of the router's `chosen` largest logits.
    """
    g = GraphWriter(f"moe_{form}", seed, opset=18)
    x = g.input("x", TensorProto.FLOAT, ["tokens", hidden])
    # A strong router: clear winners, so that the choice does not hang on rounding.
    probabilities = g.op("Softmax", g.linear(x, hidden, experts, gain=2.0, bias=False), axis=-1)
    weights, indices = g.ops("TopK", 2, probabilities, g.constant([chosen]), axis=-1)
    total = g.op("ReduceSum", weights, g.constant([-1]), keepdims=1)
    weights = g.op("Div", weights, total)

    if form in ("gathered", "expanded"):
        drawn = [[g.normal(hidden, inner, std=hidden**-0.5), g.normal(hidden, inner, std=hidden**-0.5),
                  g.normal(inner, hidden, std=1.7 / inner**0.5)] for _ in range(experts)]  # fmt: skip
        gate, up, down = (np.stack(part) for part in zip(*drawn, strict=True))
        both = np.concatenate([gate, up], axis=-1)
        y = (_gathered if form == "gathered" else _expanded)(g, x, indices, weights, both, down, chosen)
        g.output(y, "y", TensorProto.FLOAT, ["tokens", hidden])
        return g.model()

    def expert(y: str) -> str:
        gate = g.linear(y, hidden, inner, bias=False)
        gate = g.op("Mul", gate, g.op("Sigmoid", gate))
        return g.linear(g.op("Mul", gate, g.linear(y, hidden, inner, bias=False)), inner, hidden, gain=1.7, bias=False)

    if form == "sparse":
        shape = g.op("Shape", x)
        y = g.op("ConstantOfShape", shape, value=onnx.numpy_helper.from_array(np.zeros(1, np.float32)))
    else:
        y = ""
    for i in range(experts):
        hit = g.op("Cast", g.op("Equal", indices, g.constant(i)), to=TensorProto.FLOAT)
        # Each expert occurs at most once in a token's choice: the sum is its weight, or zero.
        weight = g.op("ReduceSum", g.op("Mul", weights, hit), g.constant([-1]), keepdims=1)
        if form == "sparse":
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


def _gated(g: GraphWriter, both: str, axis: int) -> str:
    gate, up = g.ops("Split", 2, both, axis=axis, num_outputs=2)
    return g.op("Mul", g.op("Mul", gate, g.op("Sigmoid", gate)), up)


def _gathered(
    g: GraphWriter, x: str, indices: str, weights: str, both: np.ndarray, down: np.ndarray, chosen: int
) -> str:
    """As transformers 5 exports it: [out, in] of each choice times its token as a column."""
    hidden = down.shape[2]
    rows = g.op("Expand", g.op("Unsqueeze", x, g.constant([1])), g.constant([1, chosen, 1]))
    rows = g.op("Reshape", rows, g.constant([-1, hidden]))
    flat = g.op("Unsqueeze", g.op("Reshape", indices, g.constant([-1])), g.constant([-1]))

    def product(matrices: np.ndarray, column: str) -> str:
        picked = g.op("GatherND", g.weight(matrices.transpose(0, 2, 1)), flat)
        made = g.op("MatMul", picked, g.op("Unsqueeze", column, g.constant([-1])))
        return g.op("Squeeze", made, g.constant([-1]))

    y = product(down, _gated(g, product(both, rows), 1))
    y = g.op("Mul", y, g.op("Reshape", weights, g.constant([-1, 1])))
    return g.op("ReduceSum", g.op("Reshape", y, g.constant([-1, chosen, hidden])), g.constant([1]), keepdims=0)


def _expanded(
    g: GraphWriter, x: str, indices: str, weights: str, both: np.ndarray, down: np.ndarray, chosen: int
) -> str:
    """Every expert on every token as batched products; weights are zero where an expert was not chosen."""
    experts, hidden = down.shape[0], down.shape[2]
    shape = g.op("Concat", g.dim(x, 0), g.constant([experts]), axis=0)
    zeros = g.op("ConstantOfShape", shape, value=onnx.numpy_helper.from_array(np.zeros(1, np.float32)))
    scattered = g.op("ScatterElements", zeros, indices, weights, axis=1)
    rows = g.op("Expand", g.op("Unsqueeze", x, g.constant([0])), g.constant([experts, 1, hidden]))
    y = g.op("MatMul", _gated(g, g.op("MatMul", rows, g.weight(both)), 2), g.weight(down))
    y = g.op("Mul", y, g.op("Unsqueeze", g.op("Transpose", scattered, perm=[1, 0]), g.constant([-1])))
    return g.op("ReduceSum", y, g.constant([0]), keepdims=0)
