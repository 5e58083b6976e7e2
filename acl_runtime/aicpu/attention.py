"""Attention and RotaryEmbedding as in ONNX opset 23 and 24."""

from __future__ import annotations

import numpy as np

from acl_runtime.aicpu.reductions import softmax, wide
from acl_runtime.aicpu.registry import Array, Attrs, Inputs, get, implementation


def _heads(x: Array, count: int) -> Array:
    """[B, S, count*D] as [B, count, S, D]."""
    batch, length, width = x.shape
    return x.reshape(batch, length, count, width // count).transpose(0, 2, 1, 3)


@implementation("Attention")
def _attention(inputs: Inputs, attrs: Attrs, n_outputs: int) -> tuple[Array, ...]:
    kind = np.asarray(inputs[0]).dtype
    q, k, v = (np.asarray(a) for a in inputs[:3])
    mask, past_k, past_v, valid = (get(inputs, i) for i in (3, 4, 5, 6))
    flat = q.ndim == 3
    if flat:
        q = _heads(q, attrs["q_num_heads"])
        k, v = _heads(k, attrs["kv_num_heads"]), _heads(v, attrs["kv_num_heads"])
    before = 0
    if past_k is not None:
        before = np.asarray(past_k).shape[2]
        k, v = np.concatenate([past_k, k], axis=2), np.concatenate([past_v, v], axis=2)
    present = (k, v)
    groups = q.shape[1] // k.shape[1]
    keys, values = np.repeat(wide(k), groups, axis=1), np.repeat(wide(v), groups, axis=1)
    scale = attrs.get("scale")
    if scale is None:
        scale = 1 / np.sqrt(q.shape[-1])
    scores = (wide(q) * scale) @ keys.swapaxes(-1, -2)
    raw = scores
    length, total = scores.shape[-2:]
    bias = np.zeros((1, 1, length, total))
    if attrs.get("is_causal", 0):
        if valid is not None and past_k is None:
            offsets = np.asarray(valid).astype(np.int64).reshape(-1, 1, 1, 1) - length
            columns, rows = np.arange(total), np.arange(length)[:, None]
            bias = np.where(columns > rows + offsets, -np.inf, 0.0)
        else:
            bias = np.where(np.tri(length, total, before, dtype=bool), 0.0, -np.inf)[None, None]
    if mask is not None:
        mask = np.asarray(mask)
        if mask.shape[-1] < total:
            fill = False if mask.dtype == np.bool_ else -np.inf
            widths = [(0, 0)] * (mask.ndim - 1) + [(0, total - mask.shape[-1])]
            mask = np.pad(mask.astype(np.float64) if mask.dtype != np.bool_ else mask, widths, constant_values=fill)
        bias = bias + (np.where(mask, 0.0, -np.inf) if mask.dtype == np.bool_ else wide(mask))
    left, right = attrs.get("left_window_size", -1), attrs.get("right_window_size", -1)
    if left >= 0 or right >= 0:
        # Positions of the queries in the whole sequence: behind the cache, whoever keeps it.
        start = np.asarray(valid).astype(np.int64).reshape(-1, 1, 1, 1) - length if valid is not None else 0
        rows = np.arange(length)[:, None] + (before if past_k is not None else start)
        columns = np.arange(total)
        far = (columns < rows - left) & (left >= 0) | (columns > rows + right) & (right >= 0)
        bias = bias + np.where(far, -np.inf, 0.0)
    if valid is not None:
        ends = np.asarray(valid).reshape(-1, 1, 1, 1)
        bias = bias + np.where(np.arange(total) < ends, 0.0, -np.inf)
    cap = attrs.get("softcap", 0.0)
    mode = attrs.get("qk_matmul_output_mode", 0)
    capped = np.tanh(scores / cap) * cap if cap else scores
    biased = capped + bias
    # A row that may see nothing gives zeros.
    weights = np.where(np.isneginf(biased).all(axis=-1, keepdims=True), 0, softmax(np.asarray(biased)))
    result = weights @ values
    if flat:
        result = result.transpose(0, 2, 1, 3).reshape(result.shape[0], length, -1)
    shown = [raw, capped, biased, weights][mode]
    return result.astype(kind), *(p.astype(kind) for p in present), np.asarray(shown).astype(kind)


@implementation("RotaryEmbedding")
def _rotary_embedding(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, cos, sin = (np.asarray(a) for a in inputs[:3])
    positions = get(inputs, 3)
    flat = array.ndim == 3
    x = wide(_heads(array, attrs["num_heads"]) if flat else array)
    width = attrs.get("rotary_embedding_dim", 0) or x.shape[-1]
    if positions is not None:
        cos, sin = cos[np.asarray(positions)], sin[np.asarray(positions)]
    cos, sin = (wide(c)[:, None, :, : width // 2] for c in (cos, sin))
    turned, rest = x[..., :width], x[..., width:]
    if attrs.get("interleaved", 0):
        a, b = turned[..., 0::2], turned[..., 1::2]
        both = np.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(turned.shape)
    else:
        a, b = np.split(turned, 2, axis=-1)
        both = np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
    result = np.concatenate([both, rest], axis=-1)
    if flat:
        result = result.transpose(0, 2, 1, 3).reshape(array.shape)
    return result.astype(array.dtype)
