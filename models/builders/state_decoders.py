"""Small decoders of the newest operators: caches written by TensorScatter (opset 24), recurrent states of
CausalConvWithState and LinearAttention (opset 27)."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from models.builders.graph_writer import GraphWriter

EPSILON = 1e-5
F32, I64 = TensorProto.FLOAT, TensorProto.INT64


class _Writer(GraphWriter):
    def product(self, x: str, fan_in: int, fan_out: int, gain: float = 1.0) -> str:
        return self.linear(x, fan_in, fan_out, gain, bias=False)

    def norm(self, x: str, width: int) -> str:
        scale = self.weight(self.normal(width, std=0.1, mean=1.0))
        return self.op("RMSNormalization", x, scale, axis=-1, epsilon=EPSILON)

    def added(self, x: str, y: str) -> str:
        return self.op("Add", x, y)

    def silu(self, x: str) -> str:
        return self.op("Mul", x, self.op("Sigmoid", x))

    def mlp(self, x: str, hidden: int, inner: int, gain: float) -> str:
        y = self.norm(x, hidden)
        gate = self.silu(self.product(y, hidden, inner))
        y = self.op("Mul", gate, self.product(y, hidden, inner))
        return self.added(x, self.product(y, inner, hidden, 1.7 * gain))


def scattered(
    seed: int = 7, layers: int = 2, hidden: int = 64, heads: int = 4, kv_heads: int = 2, inner: int = 160,
    vocabulary: int = 256, capacity: int = 320,
) -> onnx.ModelProto:  # fmt: skip
    """input_ids, position_ids i64 [1, sequence] and caches f32 [1, kv_heads, capacity, size] → logits and the caches
    with the new rows, written behind the first position."""
    size = hidden // heads
    g = _Writer("scattered_decoder", seed, opset=24)
    ids, positions = (g.input(n, I64, [1, "sequence"]) for n in ("input_ids", "position_ids"))
    angles = np.arange(capacity)[:, None] * 10000.0 ** (-np.arange(0, size, 2) / size)
    cos, sin = (g.weight(f(angles).astype(np.float32), n) for f, n in ((np.cos, "cos"), (np.sin, "sin")))
    start = g.op("ReduceMin", positions, g.constant([1]), keepdims=0)
    ends = g.op("Add", g.op("ReduceMax", positions, g.constant([1]), keepdims=0), g.constant(1))
    x = g.op("Gather", g.weight(g.normal(vocabulary, hidden), "embed_tokens"), ids, axis=0)
    gain = 1 / (2 * layers) ** 0.5
    cache = [1, kv_heads, capacity, size]
    for layer in range(layers):
        y = g.norm(x, hidden)
        parts = []
        for width, turned in ((heads, True), (kv_heads, True), (kv_heads, False)):
            part = g.op("Reshape", g.product(y, hidden, width * size, 1.2), g.constant([0, 0, width, size]))
            part = g.op("Transpose", part, perm=[0, 2, 1, 3])
            parts.append(g.op("RotaryEmbedding", part, cos, sin, positions) if turned else part)
        query, *new = parts
        held = []
        for which, rows in zip(("key", "value"), new, strict=True):
            past = g.input(f"past_key_values.{layer}.{which}", F32, cache)
            held.append(g.op("TensorScatter", past, rows, start, axis=2))
            g.output(held[-1], f"present.{layer}.{which}", F32, cache)
        context = g.op("Attention", query, *held, "", "", "", ends, is_causal=1, scale=size**-0.5)
        context = g.op("Reshape", g.op("Transpose", context, perm=[0, 2, 1, 3]), g.constant([0, 0, hidden]))
        x = g.added(x, g.product(context, hidden, hidden, 2 * gain))
        x = g.mlp(x, hidden, inner, gain)
    g.output(g.product(g.norm(x, hidden), hidden, vocabulary), "logits", F32, [1, "sequence", vocabulary])
    return g.model()


def recurrent(
    seed: int = 8, layers: int = 3, hidden: int = 64, heads: int = 4, kv_heads: int = 2, inner: int = 160,
    vocabulary: int = 256, window: int = 4, rules: tuple[str, ...] = ("gated_delta", "gated", "delta"),
    domain: str = "",
) -> onnx.ModelProto:  # fmt: skip
    """input_ids i64 [batch, sequence] and recurrent states → logits and the states behind the last token: a Gated
    DeltaNet (Yang et al. 2024) with the update rules of `rules`, one a layer in turn. The operators with a state are
    those of `domain`; onnxruntime has them in com.microsoft."""
    size = hidden // heads
    g = _Writer("recurrent_decoder", seed, opset=24 if domain else 27)
    ids = g.input("input_ids", I64, ["batch", "sequence"])
    x = g.op("Gather", g.weight(g.normal(vocabulary, hidden), "embed_tokens"), ids, axis=0)
    gain = 1 / (2 * layers) ** 0.5
    widths = [heads * size, kv_heads * size, kv_heads * size]
    for layer in range(layers):
        rule = rules[layer % len(rules)]
        y = g.norm(x, hidden)
        mixed = g.op("Transpose", g.product(y, hidden, sum(widths)), perm=[0, 2, 1])
        shape: list[int | str] = ["batch", sum(widths), window - 1]
        past = g.input(f"past_conv_state.{layer}", F32, shape)
        kernel = g.weight(g.normal(sum(widths), 1, window, std=0.7))
        mixed, present = g.ops("CausalConvWithState", 2, mixed, kernel, g.weight(g.normal(sum(widths), std=0.1)), past,
                               activation="silu", domain=domain)  # fmt: skip
        g.output(present, f"present_conv_state.{layer}", F32, shape)
        mixed = g.op("Transpose", mixed, perm=[0, 2, 1])
        query, key, value = g.ops("Split", 3, mixed, g.constant(widths), axis=-1)
        unit = []
        for part, count in ((query, heads), (key, kv_heads)):
            split = g.op("Reshape", part, g.constant([0, 0, count, size]))
            split = g.op("LpNormalization", split, axis=-1, p=2)
            unit.append(g.op("Reshape", split, g.constant([0, 0, count * size])))
        # A decay a key element with the rule "gated", one a head with the others.
        decays = kv_heads * size if rule == "gated" else kv_heads
        decay = g.op("Neg", g.op("Softplus", g.product(y, hidden, decays))) if rule.startswith("gated") else ""
        beta = g.op("Sigmoid", g.product(y, hidden, kv_heads)) if rule.endswith("delta") else ""
        state: list[int | str] = ["batch", kv_heads, size, size]
        past = g.input(f"past_recurrent_state.{layer}", F32, state)
        operands = [*unit, value, past, decay, beta]
        while not operands[-1]:
            operands.pop()
        context, present = g.ops("LinearAttention", 2, *operands, q_num_heads=heads, kv_num_heads=kv_heads,
                                 update_rule=rule, domain=domain)  # fmt: skip
        g.output(present, f"present_recurrent_state.{layer}", F32, state)
        context = g.op("RMSNormalization", g.op("Reshape", context, g.constant([0, 0, heads, size])),
                       g.weight(g.normal(size, std=0.1, mean=1.0)), axis=-1, epsilon=EPSILON)  # fmt: skip
        context = g.op("Reshape", context, g.constant([0, 0, hidden]))
        context = g.op("Mul", context, g.silu(g.product(y, hidden, hidden)))
        x = g.added(x, g.product(context, hidden, hidden, 2 * gain))
        x = g.mlp(x, hidden, inner, gain)
    g.output(g.product(g.norm(x, hidden), hidden, vocabulary), "logits", F32, ["batch", "sequence", vocabulary])
    return g.model()
