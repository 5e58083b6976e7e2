"""Operators with a carried state: LinearAttention and CausalConvWithState of opset 27."""

from __future__ import annotations

import numpy as np

from acl_runtime.aicpu.reductions import wide
from acl_runtime.aicpu.registry import Array, Attrs, Inputs, get, implementation
from tensor_types.errors import InvalidModel


@implementation("LinearAttention")
def _linear_attention(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, Array]:
    kind = np.asarray(inputs[0]).dtype
    heads, kv_heads = attrs["q_num_heads"], attrs["kv_num_heads"]
    rule = attrs.get("update_rule", "gated_delta")
    past, decay, beta = (get(inputs, i) for i in (3, 4, 5))
    batch, length = np.shape(inputs[0])[:2]
    q, k, v = (
        wide(x).reshape(batch, length, h, np.shape(x)[2] // h)
        for x, h in zip(inputs[:3], (heads, kv_heads, kv_heads), strict=True)
    )
    depth = q.shape[-1]
    scale = attrs.get("scale", 0.0) or 1 / np.sqrt(max(depth, 1))
    state = np.zeros((batch, kv_heads, depth, v.shape[-1])) if past is None else wide(past)
    gated, delta = rule in ("gated", "gated_delta"), rule in ("delta", "gated_delta")
    if (gated and decay is None) or (delta and beta is None):
        raise InvalidModel(
            f"update rule {rule} needs {'decay' if gated and decay is None else 'beta'}", remedy="check the model"
        )
    # One factor a head, or one a head and key element.
    factors = np.shape(decay)[2] // kv_heads if gated else 0
    keep = np.exp(wide(decay).reshape(batch, length, kv_heads, factors)) if gated else None
    rate = wide(beta)[..., None] if delta else None
    outputs = np.empty((batch, length, heads, v.shape[-1]))
    for t in range(length):
        if keep is not None:
            state = state * keep[:, t, :, :, None]
        write = v[:, t]
        if rate is not None:
            write = (write - np.einsum("bhkv,bhk->bhv", state, k[:, t])) * rate[:, t]
        state = state + k[:, t, :, :, None] * write[:, :, None, :]
        seen = np.repeat(state, heads // kv_heads, axis=1)
        outputs[:, t] = scale * np.einsum("bhkv,bhk->bhv", seen, q[:, t])
    state_kind = kind if past is None else np.asarray(past).dtype
    return outputs.reshape(batch, length, heads * v.shape[-1]).astype(kind), state.astype(state_kind)


@implementation("CausalConvWithState")
def _causal_conv_with_state(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, Array]:
    array, weight = np.asarray(inputs[0]), wide(inputs[1])
    bias, past = get(inputs, 2), get(inputs, 3)
    span = weight.shape[-1]
    before = np.zeros((*array.shape[:2], span - 1), array.dtype) if past is None else np.asarray(past)
    whole = np.concatenate([before, array], axis=2)
    view = np.lib.stride_tricks.sliding_window_view(wide(whole), span, axis=2)
    result = np.einsum("bclk,ck->bcl", view, weight[:, 0])
    if bias is not None:
        result = result + wide(bias)[:, None]
    if attrs.get("activation", "none") in ("silu", "swish"):
        result = result / (1 + np.exp(-result))
    return result.astype(array.dtype), whole[:, :, whole.shape[2] - (span - 1) :].astype(array.dtype)
