"""Operators of com.microsoft that say what standard operators say: norms, rotary embedding, sums of embeddings."""

from __future__ import annotations

import numpy as np

from frontend.normalise.pending import PendingNode, form
from graph_opt.ir import Value
from tensor_types.dtypes import F32, I32, I64

DOMAIN = "com.microsoft::"


@form(f"SimplifiedLayerNormalization {DOMAIN}SimplifiedLayerNormalization")
def _simplified_layer_norm(node: PendingNode) -> None:
    """RMSNormalization, which onnxruntime had before ONNX. The result has the dtype of the scale."""
    x, scale = node.value(0), node.value(1)
    axis, epsilon = int(node.number("axis", -1)), float(node.number("epsilon", 1e-5))
    if node.wants(1):
        wide = x if x.dtype == F32 else node.emit("Cast", [x], {"to": F32.onnx})
        axes = node.emit("Range", [node.ints(axis % node.rank(), "axis"), node.ints(node.rank(), "rank"),
                                   node.ints(1, "step")])  # fmt: skip
        mean = node.emit("ReduceMean", [node.emit("Mul", [wide, wide]), axes], {"keepdims": 1})
        deviation = node.emit("Sqrt", [node.emit("Add", [mean, node.constant(epsilon, F32, "epsilon")])])
        node.give(1, node.emit("Reciprocal", [deviation]))
    del node.outputs[1:]
    attrs = {"axis": axis, "epsilon": epsilon}
    if x.dtype == scale.dtype:
        return node.become("RMSNormalization", [x, scale], attrs)
    wide, wide_scale = (v if v.dtype == F32 else node.emit("Cast", [v], {"to": F32.onnx}) for v in (x, scale))
    result = node.emit("RMSNormalization", [wide, wide_scale], attrs)
    return node.become("Cast", [result], {"to": scale.dtype.onnx})


@form(f"{DOMAIN}RotaryEmbedding")
def _rotary_embedding(node: PendingNode) -> None:
    """The standard operator has the positions last, one for each token; here they may be that of the first token."""
    x, positions, cos, sin = (node.value(i) for i in range(4))
    if node.number("scale", 1.0) not in (0.0, 1.0):
        raise node.refuse("a scale of the positions")
    if positions.shape is None:
        raise node.error("positions of unknown rank")
    if len(positions.shape) == 1:
        positions = node.emit(
            "Unsqueeze", [counted(node, x, 1 if node.rank() == 3 else 2, positions), node.ints([0], "axes")]
        )
    heads, width = int(node.number("num_heads", 0)), int(node.number("rotary_embedding_dim", 0))
    attrs = {"interleaved": int(node.number("interleaved", 0)), "rotary_embedding_dim": width}
    if node.rank() == 3 and not heads:
        hidden, half = (None if v.shape is None else v.shape[-1] for v in (x, cos))
        if width or not isinstance(hidden, int) or not isinstance(half, int) or not half:
            raise node.error("the number of heads is not told")
        heads = hidden // (2 * half)
    node.become("RotaryEmbedding", [x, cos, sin, positions], {**attrs, **({"num_heads": heads} if heads else {})})


def counted(node: PendingNode, x: Value, axis: int, start: Value | None = None) -> Value:
    """start, start + 1, ... i64, one number for each index of an axis of x; `start` is a tensor of one element."""
    count = node.emit("Squeeze", [node.emit("Shape", [x], {"start": axis, "end": axis + 1})])
    numbers = node.emit("Range", [node.ints(0, "start"), count, node.ints(1, "step")])
    if start is None:
        return numbers
    return node.emit("Add", [numbers, whole(node, start)])


def whole(node: PendingNode, value: Value) -> Value:
    """The value as i64."""
    return value if value.dtype == I64 else node.emit("Cast", [value], {"to": I64.onnx})


@form(f"{DOMAIN}EmbedLayerNormalization")
def _embed_layer_norm(node: PendingNode) -> None:
    """LayerNormalization over the sum of the embeddings of words, positions and segments."""
    ids, segments, words, places, kinds, gamma, beta, mask, positions = (node.input(i) for i in range(9))
    if ids is None or words is None or places is None or gamma is None or beta is None:
        raise node.error("an input is missing")
    if positions is None:
        positions = node.emit("Unsqueeze", [counted(node, ids, 1), node.ints([0], "axes")])
    total = node.emit("Gather", [words, ids], {"axis": 0})
    total = node.emit("Add", [total, node.emit("Gather", [places, positions], {"axis": 0})])
    if segments is not None and kinds is not None:
        total = node.emit("Add", [total, node.emit("Gather", [kinds, segments], {"axis": 0})])
    if node.wants(1):
        if mask is None:
            rows = node.emit("Shape", [ids], {"start": 0, "end": 1})
            lengths = node.emit("Expand", [node.constant(np.zeros(1), I32, "none"), rows])
        else:
            lengths = node.emit("ReduceSum", [mask, node.ints([1], "axes")], {"keepdims": 0})
        node.give(1, lengths)
    node.give(2, total)
    del node.outputs[1:]
    epsilon = float(node.number("epsilon", 1e-12))
    node.become("LayerNormalization", [total, gamma, beta], {"axis": -1, "epsilon": epsilon})
