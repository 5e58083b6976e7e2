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

        def of_a(value: object) -> Array:
            each = np.asarray(value)
            return np.repeat(each, a.shape[-1] // max(each.shape[-1], 1), -1)

        lows = get(inputs, 6)
        a = a.astype(np.float32) * of_a(inputs[4]) + (0 if lows is None else of_a(lows))
    wanted = attrs.get("result_dtype")
    return np.matmul(widened(a), weight).astype(dtype(wanted).numpy if wanted else np.asarray(inputs[0]).dtype)


@implementation("QuantizeBlocks")
def _quantize_blocks(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, ...]:
    x = np.asarray(inputs[0]).astype(np.float32)
    parts = x.reshape(*x.shape[:-1], -1, int(attrs["block_size"]))
    lows = parts.min(axis=-1) if attrs.get("lows") else None
    largest = np.abs(parts).max(axis=-1) if lows is None else parts.max(axis=-1) - lows
    scales = largest / np.float32(127 if lows is None else 255)
    factors = np.float32(1) / np.where(scales == 0, np.float32(1), scales)
    moved = parts if lows is None else parts - lows[..., None]
    codes = np.rint(moved * factors[..., None]).astype(np.int8 if lows is None else np.uint8)
    sums = codes.sum(axis=-1, dtype=np.int32).astype(np.float32)
    return codes.reshape(x.shape), scales, sums, *(() if lows is None else (lows,))
