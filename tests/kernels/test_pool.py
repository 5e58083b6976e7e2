"""Pooling against onnxruntime: windows, pads, ceil mode, dilations, formats, run-time sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from codegen.kernels.pool import lower_pool
from tensor_types.dims import Dim, dim, floordiv
from tests.kernels.lowered import CHIPS, Case, check

rng = np.random.default_rng(0)
WINDOWS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1, 64, 17, 20), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((2, 19, 12, 9), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ((1, 8, 7, 7), {"kernel_shape": [7, 7]}),
    ((1, 5, 13, 13), {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2]}),
    ((1, 16, 20, 20), {"kernel_shape": [13, 13], "pads": [6, 6, 6, 6]}),
    ((1, 33, 10, 11), {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1}),
    ((2, 3, 30), {"kernel_shape": [4], "strides": [3]}),
    ((1, 4, 5, 6, 7), {"kernel_shape": [2, 3, 2], "pads": [1, 1, 0, 0, 1, 1]}),
    ((1, 7, 9, 9), {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
]


def pool_case(op: str, shape: tuple[int, ...], attrs: dict[str, Any], last: bool, symbolic: bool = False) -> Case:
    names, dims = {}, {}
    if symbolic:
        rank = len(shape) - 2
        pads, strides = attrs.get("pads", [0] * 2 * rank), attrs.get("strides", [1] * rank)
        out: list[int | str | Dim] = ["n", shape[1]]
        for i, k in enumerate(attrs["kernel_shape"]):
            out.append(floordiv(dim(f"s{i}") + (pads[i] + pads[rank + i] - k), strides[i]) + 1)
        names = {"x": ("n", shape[1], *(f"s{i}" for i in range(rank))), "y": tuple(out)}
        dims = {"n": shape[0], **{f"s{i}": d for i, d in enumerate(shape[2:])}}
    arrays = {"x": rng.normal(size=shape).astype(np.float32)}
    return Case("pool", [(op, ["x"], ["y"], attrs)], arrays, ["y"], (), names, ["x", "y"] if last else [], dims)


@pytest.mark.parametrize(("shape", "attrs"), WINDOWS, ids=str)
@pytest.mark.parametrize("last", [True, False])
def test_windows(shape: tuple[int, ...], attrs: dict[str, Any], last: bool) -> None:
    check(pool_case("MaxPool", shape, attrs, last), lower_pool)
    check(pool_case("AveragePool", shape, attrs, last), lower_pool)
    if "ceil_mode" not in attrs:
        check(pool_case("AveragePool", shape, {**attrs, "count_include_pad": 1}, last), lower_pool)
    if "auto_pad" not in attrs and "ceil_mode" not in attrs:
        check(pool_case("MaxPool", shape, attrs, last, True), lower_pool)
        check(pool_case("AveragePool", shape, {**attrs, "count_include_pad": 1}, last, True), lower_pool)
        check(pool_case("AveragePool", shape, attrs, last, True), lower_pool)


def test_dilated_maximum() -> None:
    attrs = {"kernel_shape": [3, 3], "dilations": [2, 2], "pads": [1, 1, 1, 1]}
    for last in (True, False):
        check(pool_case("MaxPool", (1, 20, 9, 10), attrs, last), lower_pool)


@pytest.mark.parametrize(("shape", "attrs"), WINDOWS, ids=str)
def test_chips(shape: tuple[int, ...], attrs: dict[str, Any]) -> None:
    for last in (True, False):
        check(pool_case("MaxPool", shape, attrs, last), lower_pool, hosts=CHIPS)
        check(pool_case("AveragePool", shape, attrs, last), lower_pool, hosts=CHIPS)
    if "auto_pad" not in attrs and "ceil_mode" not in attrs:
        check(pool_case("MaxPool", shape, attrs, True, True), lower_pool, hosts=CHIPS)
        check(pool_case("AveragePool", shape, attrs, last, True), lower_pool, hosts=CHIPS)
        case = pool_case("AveragePool", shape, {**attrs, "count_include_pad": 1}, True)
        case.arrays, case.wide = {"x": case.arrays["x"].astype(np.float16)}, True
        check(case, lower_pool, 2e-3, 1e-3, CHIPS)
