"""Caches in pages: rows written at slots, attention that finds keys and values through a block table."""

from __future__ import annotations

import numpy as np

from acl_runtime.aicpu.reductions import softmax, wide
from acl_runtime.aicpu.registry import Array, Attrs, Inputs, get, implementation


@implementation("ScatterPages")
def _scatter_pages(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    pages, rows, slots = np.array(inputs[0]), np.asarray(inputs[1]), np.asarray(inputs[2])
    flat = pages.reshape(-1, *pages.shape[2:])
    if slots.size and not 0 <= slots.min() <= slots.max() <= len(flat):
        raise IndexError(f"a slot outside 0..{len(flat)}")
    written = slots < len(flat)
    flat[slots[written]] = rows[written]
    return pages


@implementation("PagedAttention")
def _paged_attention(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    q, keys, values, table, starts, lengths = (np.asarray(a) for a in inputs[:6])
    sink = get(inputs, 6)
    values = values[..., : attrs.get("v_head_size", 0) or values.shape[-1]]
    scale, cap, left = attrs.get("scale"), attrs.get("softcap", 0.0), attrs.get("left_window_size", -1)
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    pages, size, heads = keys.shape[:3]
    if starts[0] < 0 or (np.diff(starts) < 0).any() or starts[-1] > len(q):
        raise IndexError("starts are no rising numbers of queries")
    if (lengths < 0).any() or (lengths > table.shape[1] * size).any():
        raise IndexError(f"a length outside 0..{table.shape[1] * size}")
    result = np.zeros((*q.shape[:2], values.shape[-1]), q.dtype)
    for line, first, last, length in zip(table, starts[:-1], starts[1:], lengths, strict=True):
        used = line[: -(-length // size)]
        if used.size and not 0 <= used.min() <= used.max() < pages:
            raise IndexError(f"a page outside 0..{pages - 1}")
        k, v = (
            np.repeat(wide(a[used].reshape(-1, heads, a.shape[-1])[:length]), q.shape[1] // heads, axis=1)
            for a in (keys, values)
        )
        scores = np.einsum("qhd,khd->hqk", wide(q[first:last]) * factor, k)
        scores = np.tanh(scores / cap) * cap if cap else scores
        behind = np.arange(length) - (np.arange(last - first)[:, None] + length - (last - first))
        if attrs.get("is_causal", 1):
            scores = np.where(behind > 0, -np.inf, scores)
        if left >= 0:
            scores = np.where(behind < -left, -np.inf, scores)
        if sink is not None:
            own = np.broadcast_to(wide(np.asarray(sink))[:, None, None], (*scores.shape[:2], 1))
            scores = np.concatenate([scores, own], axis=-1)
        if not scores.shape[-1]:
            continue
        nothing = np.isneginf(scores).all(axis=-1, keepdims=True)
        weights = np.where(nothing, 0, softmax(np.where(nothing, 0, scores)))[..., :length]
        result[first:last] = np.einsum("hqk,khd->qhd", weights, v).astype(q.dtype)
    return result
