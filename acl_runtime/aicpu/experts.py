"""Routed experts: rows sorted by expert, and products of row groups with a matrix each."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from acl_runtime.aicpu.products import matmul
from acl_runtime.aicpu.registry import Array, Attrs, Inputs, implementation
from tensor_types.dtypes import dtype


@implementation("MoeRoute")
def _route(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, ...]:
    indices, experts = np.asarray(inputs[0]), int(attrs["experts"])
    flat = indices.reshape(-1)
    if flat.size and not 0 <= flat.min() <= flat.max() < experts:
        raise IndexError(f"an expert outside 0..{experts - 1}")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(flat, minlength=experts))])
    choices = np.argsort(flat, kind="stable")
    rows = np.empty_like(choices)
    rows[choices] = np.arange(flat.size)
    found = (offsets, choices, choices // indices.shape[-1], rows.reshape(indices.shape))
    return tuple(a.astype(np.int64) for a in found)


@implementation("GroupedMatMul")
def _grouped_matmul(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    x, w, offsets = (np.asarray(v) for v in inputs)
    wanted = attrs.get("result_dtype")
    result = np.zeros((x.shape[0], w.shape[2]), dtype(wanted).numpy if wanted else x.dtype)
    for matrix, (first, last) in zip(w, pairwise(offsets), strict=True):
        result[first:last] = matmul(x[first:last], matrix).astype(result.dtype)
    return result
