"""A small Llama (Touvron et al. 2023) in the operators of opset 23 and 24: Attention with grouped KV heads,
RotaryEmbedding, RMSNormalization, Swish."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from models.builders.graph_writer import GraphWriter

EPSILON = 1e-5


def _rms_norm(g: GraphWriter, x: str, width: int) -> str:
    scale = g.weight(g.normal(width, std=0.1, mean=1.0))
    return g.op("RMSNormalization", x, scale, axis=-1, epsilon=EPSILON)


def build(
    seed: int = 5,
    layers: int = 4,
    hidden: int = 512,
    heads: int = 8,
    kv_heads: int = 2,
    inner: int = 1408,
    vocabulary: int = 8192,
    positions: int = 2048,
) -> onnx.ModelProto:
    """input_ids, position_ids i64 [batch, sequence] → logits f32 [batch, sequence, vocabulary], causal."""
    size = hidden // heads
    g = GraphWriter("llama", seed, opset=24)
    input_ids = g.input("input_ids", TensorProto.INT64, ["batch", "sequence"])
    position_ids = g.input("position_ids", TensorProto.INT64, ["batch", "sequence"])
    angles = np.arange(positions)[:, None] * 10000.0 ** (-np.arange(0, size, 2) / size)
    cos = g.weight(np.cos(angles).astype(np.float32), "cos_cache")
    sin = g.weight(np.sin(angles).astype(np.float32), "sin_cache")

    def rotate(y: str, count: int) -> str:
        return g.op("RotaryEmbedding", y, cos, sin, position_ids, num_heads=count)

    x = g.op("Gather", g.weight(g.normal(vocabulary, hidden), "embed_tokens"), input_ids, axis=0)
    residual_gain = 1 / (2 * layers) ** 0.5
    for _ in range(layers):
        y = _rms_norm(g, x, hidden)
        query = rotate(g.linear(y, hidden, hidden, gain=1.2, bias=False), heads)
        key = rotate(g.linear(y, hidden, kv_heads * size, gain=1.2, bias=False), kv_heads)
        value = g.linear(y, hidden, kv_heads * size, bias=False)
        context = g.op(
            "Attention", query, key, value, is_causal=1, q_num_heads=heads, kv_num_heads=kv_heads, scale=size**-0.5
        )
        x = g.op("Add", x, g.linear(context, hidden, hidden, gain=2 * residual_gain, bias=False))
        y = _rms_norm(g, x, hidden)
        gate = g.op("Swish", g.linear(y, hidden, inner, bias=False))
        y = g.op("Mul", gate, g.linear(y, hidden, inner, bias=False))
        # Swish of a unit normal has mean square 0.36.
        x = g.op("Add", x, g.linear(y, inner, hidden, gain=1.7 * residual_gain, bias=False))
    logits = g.linear(_rms_norm(g, x, hidden), hidden, vocabulary, bias=False)
    g.output(logits, "logits", TensorProto.FLOAT, ["batch", "sequence", vocabulary])
    return g.model()
