"""Products with codes of a few bits, scaled block by block."""

from __future__ import annotations

import numpy as np

from acl_runtime.aicpu.elementwise import widened
from acl_runtime.aicpu.registry import Array, Attrs, Inputs, get, implementation
from tensor_types.dtypes import dtype


@implementation("BlockMatMul")
def _block_matmul(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    a, codes, scales = (np.asarray(v) for v in inputs[:3])
    block = max(min(int(attrs.get("block_size", 0)) or codes.shape[0], codes.shape[0]), 1)

    def spread(value: object, axis: int, extent: int) -> Array:
        whole = np.repeat(np.asarray(value).astype(np.float32), block, axis)
        return whole[(slice(None),) * axis + (slice(extent),)]

    weight = codes.astype(np.float32)
    if get(inputs, 3) is not None:
        weight = weight - spread(inputs[3], 0, codes.shape[0])
    weight = weight * spread(scales, 0, codes.shape[0])
    if get(inputs, 4) is not None:
        a = a.astype(np.float32) * spread(inputs[4], a.ndim - 1, a.shape[-1])
    wanted = attrs.get("result_dtype")
    return np.matmul(widened(a), weight).astype(dtype(wanted).numpy if wanted else np.asarray(inputs[0]).dtype)


@implementation("QuantizeBlocks")
def _quantize_blocks(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, ...]:
    x = np.asarray(inputs[0]).astype(np.float32)
    parts = x.reshape(*x.shape[:-1], -1, int(attrs["block_size"]))
    scales = np.abs(parts).max(axis=-1) / np.float32(127)
    factors = np.float32(1) / np.where(scales == 0, np.float32(1), scales)
    codes = np.rint(parts * factors[..., None]).astype(np.int8)
    return codes.reshape(x.shape), scales, codes.sum(axis=-1, dtype=np.int32).astype(np.float32)
