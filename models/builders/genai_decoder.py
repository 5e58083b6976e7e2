"""A small decoder in the form of onnxruntime-genai's model builder: GroupQueryAttention with caches as inputs and
outputs, MatMulNBits or MatMul, SimplifiedLayerNormalization and its form with a residual."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from models.builders.graph_writer import GraphWriter

EPSILON = 1e-5
BLOCK = 32
_CONTRIB = {"domain": "com.microsoft"}


class _Writer(GraphWriter):
    """`bits`: 0 for products of numbers, else those of the codes of the weights, multiplied at `accuracy`, a level of
    MatMulNBits. Numbers are of `kind`."""

    bits = 0
    accuracy = 1
    kind: type[np.floating] = np.float32

    def weight(self, array: np.ndarray, name: str | None = None) -> str:
        return super().weight(array.astype(self.kind) if array.dtype.kind == "f" else array, name)

    def product(self, x: str, fan_in: int, fan_out: int, gain: float = 1.0) -> str:
        """x [.., fan_in] times a seeded weight."""
        weight = self.normal(fan_in, fan_out, std=gain / fan_in**0.5)
        if not self.bits:
            return self.op("MatMul", x, self.weight(weight))
        codes, scales = _quantised(weight.T, self.bits)
        return self.op("MatMulNBits", x, self.weight(codes), self.weight(scales), K=fan_in, N=fan_out, bits=self.bits,
                       block_size=BLOCK, accuracy_level=self.accuracy, **_CONTRIB)  # fmt: skip


def _quantised(weight: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes u8 [N, blocks, BLOCK * bits / 8] and scales f32 [N * blocks] of weights [N, K], the zero in the middle."""
    middle = 1 << (bits - 1)
    blocks = weight.reshape(len(weight), -1, BLOCK)
    scales = np.abs(blocks).max(axis=-1, keepdims=True) / (middle - 1)
    codes = np.clip(np.rint(blocks / scales) + middle, 0, 2 * middle - 1).astype(np.uint8)
    if bits == 4:
        codes = codes[..., ::2] | codes[..., 1::2] << 4
    return codes, scales.astype(np.float32).reshape(-1)


def _experts(g: _Writer, x: str, hidden: int, inner: int, experts: int, gain: float) -> str:
    """As gpt-oss has them: gate and linear part in turns, with a limit and biases."""
    router = g.product(g.op("Reshape", x, g.constant([-1, hidden])), hidden, experts, 2.0)
    up, down = g.normal(experts, 2 * inner, hidden, std=hidden**-0.5), g.normal(experts, hidden, inner, std=inner**-0.5)
    biases = [g.weight(g.normal(experts, width, std=0.1)) for width in (2 * inner, hidden)]
    return g.op("MoE", x, router, g.weight(up), biases[0], g.weight(down * np.float32(gain)), biases[1],
                k=2, activation_type="swiglu", swiglu_fusion=1, swiglu_limit=7.0, activation_alpha=1.702,
                activation_beta=1.0, normalize_routing_weights=1, **_CONTRIB)  # fmt: skip


def build(
    seed: int = 6, layers: int = 2, hidden: int = 64, heads: int = 4, kv_heads: int = 2, inner: int = 160,
    vocabulary: int = 256, positions: int = 512, bits: int = 0, capacity: int = 0, accuracy: int = 1,
    halves: bool = False, window: int = 0, sinks: bool = False, experts: int = 0, page: int = 0,
) -> onnx.ModelProto:  # fmt: skip
    """input_ids [batch, sequence_length], attention_mask [batch, total_sequence_length], both i64, and caches
    → logits f32 [batch, sequence_length, vocabulary] and the caches with the new tokens.

    With `page`, the rows of a page, the same decoder of PagedAttention: input_ids [tokens], those of all sequences,
    cumulative_sequence_length, past_seqlens, block_table and slot_mapping, and caches [blocks, page, heads, size]
    → logits [tokens, vocabulary] and the caches.

    `capacity`: extent of caches that are buffers shared by past and present; 0 for caches that grow. With `halves`, all
    numbers are f16. `window`: the keys that every other layer sees, 0 for all. `sinks`: a logit of each head that takes
    part in the softmax. `experts`: of two for each token, in the form of MoE; 0 for a dense layer.
    """
    size = hidden // heads
    g = _Writer("genai_decoder", seed, opset=21)
    g.bits, g.accuracy = bits, accuracy
    g.kind = np.float16 if halves else np.float32
    number = TensorProto.FLOAT16 if halves else TensorProto.FLOAT
    tokens: list[int | str] = ["tokens"] if page else ["batch_size", "sequence_length"]
    ids = g.input("input_ids", TensorProto.INT64, tokens)
    cache: list[int | str] = ["batch_size", kv_heads, capacity or "past_sequence_length", size]
    grown: list[int | str] = ["batch_size", kv_heads, capacity or "total_sequence_length", size]
    angles = np.arange(positions)[:, None] * 10000.0 ** (-np.arange(0, size, 2) / size)
    cos = g.weight(np.cos(angles).astype(np.float32), "cos_cache")
    sin = g.weight(np.sin(angles).astype(np.float32), "sin_cache")
    where = _pages(g) if page else _lengths(g)
    if page:
        cache = grown = ["blocks", page, kv_heads, size]
    x = g.op("Gather", g.weight(g.normal(vocabulary, hidden), "embed_tokens"), ids, axis=0)
    gain = 1 / (2 * layers) ** 0.5

    def scale() -> str:
        return g.weight(g.normal(hidden, std=0.1, mean=1.0))

    y = g.op("SimplifiedLayerNormalization", x, scale(), axis=-1, epsilon=EPSILON, stash_type=1)
    for layer in range(layers):
        query = g.product(y, hidden, hidden, 1.2)
        key, value = g.product(y, hidden, kv_heads * size, 1.2), g.product(y, hidden, kv_heads * size)
        past = [g.input(f"past_key_values.{layer}.{which}", number, cache) for which in ("key", "value")]
        sink = g.weight(g.normal(heads, std=2.0)) if sinks else ""
        behind = [where[-1], sink] if page else ["", "", sink]
        operands = [query, key, value, *past, *where[: 3 if page else 2], cos, sin, *behind]
        context, *present = g.ops("PagedAttention" if page else "GroupQueryAttention", 3, *operands,
                                  num_heads=heads, kv_num_heads=kv_heads, scale=size**-0.5, do_rotary=1,
                                  rotary_interleaved=0, local_window_size=window if window and layer % 2 == 0 else -1,
                                  softcap=0.0, **_CONTRIB)  # fmt: skip
        for which, made in zip(("key", "value"), present, strict=True):
            g.output(made, f"present.{layer}.{which}", number, grown)
        for step in ("attention", "mlp"):
            if step == "attention":
                added = g.product(context, hidden, hidden, 2 * gain)
            elif experts:
                added = _experts(g, y, hidden, inner, experts, 2 * gain)
            else:
                gate = g.product(y, hidden, inner)
                gate = g.op("Mul", gate, g.op("Sigmoid", gate))
                added = g.product(g.op("Mul", gate, g.product(y, hidden, inner)), inner, hidden, 1.7 * gain)
            y, _mean, _deviation, x = g.ops("SkipSimplifiedLayerNormalization", 4, x, added, scale(),
                                            epsilon=EPSILON, **_CONTRIB)  # fmt: skip
    logits = g.product(y, hidden, vocabulary)
    g.output(logits, "logits", number, [*tokens, vocabulary])
    return g.model()


def _lengths(g: _Writer) -> list[str]:
    """What GroupQueryAttention takes of the mask: the last position of each sequence, and the most tokens."""
    mask = g.input("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"])
    lengths = g.op("Sub", g.op("ReduceSum", mask, g.constant([1]), keepdims=0), g.constant(1))
    total = g.op("Gather", g.op("Shape", mask), g.constant(1), axis=0)
    return [g.op("Cast", x, to=TensorProto.INT32) for x in (lengths, total)]


def _pages(g: _Writer) -> list[str]:
    """What PagedAttention takes of the scheduler."""
    shapes: dict[str, list[int | str]] = {
        "cumulative_sequence_length": ["sequences_and_one"], "past_seqlens": ["sequences"],
        "block_table": ["sequences", "blocks_of_a_sequence"], "slot_mapping": ["tokens"],
    }  # fmt: skip
    return [g.input(name, TensorProto.INT32, shape) for name, shape in shapes.items()]
