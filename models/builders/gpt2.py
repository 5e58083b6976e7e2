"""GPT-2 (Radford et al. 2019) with a causal mask made from the run-time sizes: prefill, and decode with a KV cache."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from models.builders.graph_writer import Dim, GraphWriter

EPSILON = 1e-5


def _gelu_tanh(g: GraphWriter, x: str) -> str:
    cube = g.op("Mul", g.op("Pow", x, g.constant(3.0, np.float32)), g.constant(0.044715, np.float32))
    inner = g.op("Mul", g.op("Add", x, cube), g.constant((2 / np.pi) ** 0.5, np.float32))
    gate = g.op("Add", g.op("Tanh", inner), g.constant(1.0, np.float32))
    return g.op("Mul", g.op("Mul", x, g.constant(0.5, np.float32)), gate)


def _visible(g: GraphWriter, attention_mask: str, sequence: str, total: str) -> str:
    """bool [B, 1, sequence, total]: key at or before the query, and not padded."""
    first = g.op("Sub", total, sequence)
    one = g.constant(1)
    ends = [g.op("Squeeze", end, g.constant([0])) for end in (first, total)]
    queries = g.op("Unsqueeze", g.op("Range", ends[0], ends[1], one), g.constant([1]))
    keys = g.op("Unsqueeze", g.op("Range", g.constant(0), ends[1], one), g.constant([0]))
    causal = g.op("Unsqueeze", g.op("LessOrEqual", keys, queries), g.constant([0, 1]))
    padding = g.op("Cast", g.op("Unsqueeze", attention_mask, g.constant([1, 2])), to=TensorProto.BOOL)
    return g.op("And", causal, padding)


def build(
    with_past: bool,
    seed: int = 4,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    vocabulary: int = 50257,
    positions: int = 1024,
) -> onnx.ModelProto:
    """input_ids i64 [batch, sequence], attention_mask i64 [batch, total] (and position_ids, past.N.key/value f32
    [batch, heads, past, size]) → logits of the last token f32 [batch, 1, vocabulary], present.N.key/value.

    With one seed both forms have the same weights, so decoding continues a prefill.
    """
    size = hidden // heads
    g = GraphWriter("gpt2_decode" if with_past else "gpt2_prefill", seed)
    total_dim = "total" if with_past else "sequence"
    input_ids = g.input("input_ids", TensorProto.INT64, ["batch", "sequence"])
    attention_mask = g.input("attention_mask", TensorProto.INT64, ["batch", total_dim])
    sequence, total = g.dim(input_ids, 1), g.dim(attention_mask, 1)
    past: list[tuple[str, str]] = []
    if with_past:
        position_ids = g.input("position_ids", TensorProto.INT64, ["batch", "sequence"])
        cache: list[Dim] = ["batch", heads, "past", size]
        past = [
            (g.input(f"past.{i}.key", TensorProto.FLOAT, cache), g.input(f"past.{i}.value", TensorProto.FLOAT, cache))
            for i in range(layers)
        ]
    else:
        end = g.op("Squeeze", sequence, g.constant([0]))
        position_ids = g.op("Unsqueeze", g.op("Range", g.constant(0), end, g.constant(1)), g.constant([0]))

    words = g.weight(g.normal(vocabulary, hidden, std=0.15), "wte")
    places = g.weight(g.normal(positions, hidden, std=0.08), "wpe")
    x = g.op("Add", g.op("Gather", words, input_ids, axis=0), g.op("Gather", places, position_ids, axis=0))
    visible = _visible(g, attention_mask, sequence, total)
    residual_gain = 1 / (2 * layers) ** 0.5

    def split_heads(y: str) -> str:
        return g.op("Transpose", g.reshape(y, g.dim(y, 0), g.dim(y, 1), heads, size), perm=[0, 2, 1, 3])

    presents = []
    for i in range(layers):
        y = g.layer_norm(x, hidden, EPSILON)
        # One weight for query, key and value; a gain above one keeps the attention from being uniform.
        qkv = g.ops("Split", 3, g.linear(y, hidden, 3 * hidden, gain=1.2), g.constant([hidden] * 3), axis=2)
        query, key, value = (split_heads(part) for part in qkv)
        if with_past:
            key = g.op("Concat", past[i][0], key, axis=2)
            value = g.op("Concat", past[i][1], value, axis=2)
        presents.append((key, value))
        scores = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = g.op("Div", scores, g.constant(size**0.5, np.float32))
        scores = g.op("Where", visible, scores, g.constant(np.finfo(np.float32).min, np.float32))
        context = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
        context = g.reshape(context, g.dim(context, 0), g.dim(context, 1), hidden)
        x = g.op("Add", x, g.linear(context, hidden, hidden, gain=residual_gain))
        inner = _gelu_tanh(g, g.linear(g.layer_norm(x, hidden, EPSILON), hidden, 4 * hidden))
        x = g.op("Add", x, g.linear(inner, 4 * hidden, hidden, gain=1.5 * residual_gain))

    last = g.op("Slice", x, g.constant([-1]), g.constant([np.iinfo(np.int64).max]), g.constant([1]))
    last = g.layer_norm(last, hidden, EPSILON)
    logits = g.op("MatMul", last, g.op("Transpose", words, perm=[1, 0]))
    g.output(logits, "logits", TensorProto.FLOAT, ["batch", 1, vocabulary])
    for i, pair in enumerate(presents):
        for part, value in zip(("key", "value"), pair, strict=True):
            g.output(value, f"present.{i}.{part}", TensorProto.FLOAT, ["batch", heads, total_dim, size])
    return g.model()
