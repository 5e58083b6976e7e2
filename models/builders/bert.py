"""BERT (Devlin et al. 2018) as an exporter writes it: attention and erf-GELU in primitive operators."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from models.builders.graph_writer import GraphWriter

EPSILON = 1e-12
MASKED = float(np.finfo(np.float32).min)


def _gelu(g: GraphWriter, x: str) -> str:
    erf = g.op("Erf", g.op("Div", x, g.constant(2**0.5, np.float32)))
    y = g.op("Mul", x, g.op("Add", erf, g.constant(1.0, np.float32)))
    return g.op("Mul", y, g.constant(0.5, np.float32))


def _attention(g: GraphWriter, x: str, mask: str, hidden: int, heads: int) -> str:
    """x [B, S, hidden], additive mask [B, 1, 1, S] → projected context [B, S, hidden]."""
    size = hidden // heads

    def split_heads(y: str, perm: list[int]) -> str:
        return g.op("Transpose", g.reshape(y, g.dim(y, 0), g.dim(y, 1), heads, size), perm=perm)

    query = split_heads(g.linear(x, hidden, hidden, gain=1.6), [0, 2, 1, 3])
    key = split_heads(g.linear(x, hidden, hidden, gain=1.6), [0, 2, 3, 1])
    value = split_heads(g.linear(x, hidden, hidden), [0, 2, 1, 3])
    scores = g.op("Div", g.op("MatMul", query, key), g.constant(size**0.5, np.float32))
    weights = g.op("Softmax", g.op("Add", scores, mask), axis=-1)
    context = g.op("Transpose", g.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    context = g.reshape(context, g.dim(context, 0), g.dim(context, 1), hidden)
    # What attention adds is alike for all tokens; too much of it would make them the same after twelve layers.
    return g.linear(context, hidden, hidden, gain=0.5)


def build(
    seed: int = 3,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    vocabulary: int = 30522,
    positions: int = 512,
) -> onnx.ModelProto:
    """input_ids, attention_mask, token_type_ids i64 [batch, sequence] →
    last_hidden_state f32 [batch, sequence, hidden], pooler_output f32 [batch, hidden]."""
    g = GraphWriter("bert", seed)
    input_ids, attention_mask, token_type_ids = (
        g.input(name, TensorProto.INT64, ["batch", "sequence"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    words = g.op("Gather", g.weight(g.normal(vocabulary, hidden), "word_embeddings"), input_ids, axis=0)
    types = g.op("Gather", g.weight(g.normal(2, hidden, std=0.3), "type_embeddings"), token_type_ids, axis=0)
    position_ids = g.weight(np.arange(positions, dtype=np.int64)[None], "position_ids")
    used = g.op("Slice", position_ids, g.constant([0]), g.dim(input_ids, 1), g.constant([1]), g.constant([1]))
    places = g.op("Gather", g.weight(g.normal(positions, hidden, std=0.5), "position_embeddings"), used, axis=0)
    x = g.layer_norm(g.op("Add", g.op("Add", words, types), places), hidden, EPSILON)

    mask = g.op("Unsqueeze", g.op("Unsqueeze", attention_mask, g.constant([1])), g.constant([2]))
    mask = g.op("Sub", g.constant(1.0, np.float32), g.op("Cast", mask, to=TensorProto.FLOAT))
    mask = g.op("Mul", mask, g.constant(MASKED, np.float32))

    for _ in range(layers):
        x = g.layer_norm(g.op("Add", _attention(g, x, mask, hidden, heads), x), hidden, EPSILON)
        inner = _gelu(g, g.linear(x, hidden, 4 * hidden))
        # GELU of a unit normal has mean square 0.425.
        x = g.layer_norm(g.op("Add", g.linear(inner, 4 * hidden, hidden, gain=0.8), x), hidden, EPSILON)

    first = g.op("Gather", x, g.constant(0), axis=1)
    weight = g.weight(g.normal(hidden, hidden, std=1 / hidden**0.5))
    pooled = g.op("Tanh", g.op("Gemm", first, weight, g.weight(g.normal(hidden, std=0.05)), transB=1))
    g.output(x, "last_hidden_state", TensorProto.FLOAT, ["batch", "sequence", hidden])
    g.output(pooled, "pooler_output", TensorProto.FLOAT, ["batch", hidden])
    return g.model()
