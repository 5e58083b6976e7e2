"""Operators of com.microsoft that are read as standard ones, against onnxruntime, or numpy where it has no kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import atc
from acl_runtime import InferSession

rng = np.random.default_rng(7)


def f32(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def i8(*shape: int, low: int = -128, dtype: Any = np.int8) -> np.ndarray:
    return rng.integers(low, low + 256, shape).astype(dtype)


def number(value: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(value, dtype)


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def group_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Of x [n, h, w, 8] in 2 groups, with SiLU."""
    parts = x.reshape(x.shape[0], -1, 2, 4)
    mean, var = parts.mean((1, 3), keepdims=True), parts.var((1, 3), keepdims=True)
    y = ((parts - mean) / np.sqrt(var + 1e-5)).reshape(x.shape) * gamma + beta
    return y / (1 + np.exp(-y))


U8 = np.uint8
SCALES = [number(0.02), number(3, np.int8)]
BOXES = np.array([[0.1, 0.2, 0.7, 0.9], [0.8, 0.1, 0.3, 0.6], [-0.3, 0.5, 1.2, 1.1], [0, 0, 1, 1]], np.float32)
Case = tuple[str, list[np.ndarray | None], dict[str, Any], int, Callable[..., list[np.ndarray]] | None]
CASES: list[Case] = [
    ("FusedGemm", [f32(3, 4), f32(5, 4), f32(5)], {"transB": 1, "alpha": 0.5, "activation": "LeakyRelu",
                                                   "activation_alpha": 0.3}, 1, None),
    ("TransposeMatMul", [f32(2, 4, 3), f32(2, 4, 5)], {"transA": 1, "alpha": 2.0}, 1, None),
    ("GridSample", [f32(1, 2, 5, 6), f32(1, 3, 4, 2)], {"mode": "bilinear", "padding_mode": "border"}, 1, None),
    ("Trilu", [f32(2, 4, 5), number(1, np.int64)], {"upper": 0}, 1, None),
    ("Unique", [np.round(f32(20))], {}, 3, None),
    ("ExpandDims", [f32(2, 3), number(-1, np.int32)], {}, 1, None),
    ("Range", [number(2, np.int32), number(17, np.int32), number(4, np.int32)], {}, 1, None),
    ("Pad", [f32(2, 3), np.array([1, 0, 2, 1]), number(0.5)], {"mode": "constant"}, 1, None),
    ("QuantizeLinear", [f32(3, 4), number(0.03), number(5, U8)], {}, 1, None),
    ("CDist", [f32(5, 3), f32(4, 3)], {"metric": "euclidean"}, 1, None),
    ("QGemm", [i8(3, 4), *SCALES, i8(4, 5), *SCALES, np.arange(5, dtype=np.int32) * 100, number(0.5), number(1, np.int8)],
     {"alpha": 1.0}, 1, None),
    ("QLinearWhere", [f32(3, 4) > 0, i8(3, 4, low=0, dtype=U8), number(0.02), number(3, U8), i8(1, 4, low=0, dtype=U8),
                      number(0.05), number(9, U8), number(0.03), number(4, U8)], {}, 1, None),
    ("NhwcMaxPool", [i8(1, 7, 6, 3)], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}, 1, None),
    # Weights are small: onnxruntime's products of bytes saturate on processors without VNNI.
    ("QLinearConv", [i8(1, 6, 5, 3, low=0, dtype=U8), number(0.02), number(7, U8), i8(4, 3, 3, 3) // 4, number(0.01),
                     number(0, np.int8), number(0.1), number(100, U8)], {"channels_last": 1, "pads": [1, 1, 1, 1]}, 1,
     None),
    ("IsAllFinite", [f32(4), np.array([1, np.inf], np.float32)], {}, 1, lambda x, y: [np.array(False)]),
    ("BiasSoftmax", [f32(2, 3, 4), f32(1, 1, 4)], {"axis": 2}, 1,
     lambda x, b: [np.exp(x + b) / np.exp(x + b).sum(-1, keepdims=True)]),
    ("CropAndResize", [f32(2, 3, 7, 9), BOXES, np.array([1, 0, 1, 1], np.int32), np.array([4, 5], np.int32)],
     {"extrapolation_value": 7.0}, 1, None),
    ("CropAndResize", [f32(2, 3, 7, 9), BOXES, np.array([1, 0, 1, 1], np.int32), np.array([4, 1], np.int32)],
     {"mode": "nearest"}, 1, None),
    ("Inverse", [f32(2, 4, 4) + 3 * np.eye(4, dtype=np.float32)], {}, 1, None),
    ("Rfft", [f32(2, 3, 8)], {"onesided": 1, "signal_ndim": 1, "normalized": 0}, 1,
     lambda x: [np.stack([np.fft.rfft(x).real, np.fft.rfft(x).imag], -1)]),
    ("Irfft", [f32(2, 3, 5, 2)], {"onesided": 1, "signal_ndim": 1, "normalized": 0}, 1,
     lambda x: [np.fft.irfft(x[..., 0] + 1j * x[..., 1])]),
    ("BiasAdd", [f32(2, 3, 4), f32(4), f32(2, 3, 4)], {}, 1, lambda x, b, s: [x + b + s]),
    ("GemmFastGelu", [f32(3, 4), f32(4, 5), f32(5)], {}, 1, lambda a, b, c: [gelu(a @ b + c)]),
    ("GroupNorm", [f32(2, 3, 4, 8), f32(8), f32(8)], {"groups": 2, "activation": 1}, 1,
     lambda x, g, b: [group_norm(x, g, b)]),
    ("SkipGroupNorm", [f32(2, 3, 4, 8), f32(8), f32(8), f32(2, 8), f32(8)], {"groups": 2, "activation": 1}, 2,
     lambda x, g, b, s, c: [group_norm(x + s[:, None, None] + c, g, b), x + s[:, None, None] + c]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_forms(case: Case, tmp_path: Path) -> None:
    op, inputs, attrs, count, formula = case
    assert all(i is not None for i in inputs)
    feeds = {f"x{k}": a for k, a in enumerate(inputs)}
    graph = helper.make_graph(
        [helper.make_node(op, list(feeds), [f"y{k}" for k in range(count)], domain="com.microsoft", **attrs)], "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()],
        [onnx.ValueInfoProto(name=f"y{k}") for k in range(count)],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), tmp_path / "m.onnx")
    if formula is None:
        wanted = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, feeds)
    else:
        wanted = formula(*inputs)
    atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    for ours, theirs in zip(InferSession(0, tmp_path / "m.om").infer(feeds), wanted, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
