"""Shapes, dtypes and contents of single operators against onnxruntime, for random shapes and attributes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

_spec = importlib.util.spec_from_file_location("onnx_oracle", Path(__file__).with_name("onnx_oracle.py"))
assert _spec is not None and _spec.loader is not None
_oracle = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_oracle)
check = _oracle.check

quick = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
EXTENT = st.integers(1, 6)


def shapes(low: int = 0, high: int = 4) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(EXTENT, min_size=low, max_size=high).map(tuple)


def f32(shape: tuple[int, ...]) -> np.ndarray:
    return np.ones(shape, np.float32)


def i64(values: Any) -> np.ndarray:
    return np.array(values, np.int64)


@st.composite
def broadcastable(draw: st.DrawFn, count: int) -> list[tuple[int, ...]]:
    full = draw(shapes())
    found = []
    for _ in range(count):
        part = full[draw(st.integers(0, len(full))) :]
        found.append(tuple(1 if draw(st.booleans()) else d for d in part))
    return found


@quick
@given(broadcastable(2), st.sampled_from(["Add", "Sub", "Mul", "Div", "Pow", "Less", "Equal", "GreaterOrEqual"]))
def test_binary(pair: list[tuple[int, ...]], op: str) -> None:
    check(op, [f32(s) for s in pair])


@quick
@given(broadcastable(3))
def test_where_and_variadic(triple: list[tuple[int, ...]]) -> None:
    check("Where", [np.ones(triple[0], bool), f32(triple[1]), f32(triple[2])])
    check("Max", [f32(s) for s in triple])
    check("Sum", [f32(s) for s in triple])


@quick
@given(
    st.lists(st.integers(-20, 20), min_size=1, max_size=5),
    st.integers(1, 7),
    st.sampled_from(["Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Equal", "Less", "LessOrEqual", "Greater"]),
)
def test_integer_content(values: list[int], other: int, op: str) -> None:
    check(op, [i64(values), i64(other)], constants={0, 1}, content=True)
    check(op, [i64(values), i64([-other])], {"fmod": 1} if op == "Mod" else {}, constants={0, 1})


@quick
@given(shapes(1), st.data())
def test_transpose(shape: tuple[int, ...], data: st.DataObject) -> None:
    perm = data.draw(st.permutations(range(len(shape))))
    check("Transpose", [f32(shape)], {"perm": tuple(perm)})
    check("Transpose", [f32(shape)])


@quick
@given(st.lists(EXTENT, min_size=2, max_size=4), st.data())
def test_reshape(shape: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(shape) - 1))
    check("Reshape", [f32(tuple(shape)), i64([*shape[:at], -1, *shape[at + 1 :]])], constants={1}, symbolic=False)
    merged = [0] * at + [-1]
    check("Reshape", [f32(tuple(shape)), i64(merged)], constants={1})
    check("Flatten", [f32(tuple(shape))], {"axis": at})


@quick
@given(shapes(1), st.data())
def test_squeeze_and_unsqueeze(shape: tuple[int, ...], data: st.DataObject) -> None:
    rank = len(shape)
    axes = data.draw(st.lists(st.integers(-rank, rank - 1), min_size=1, max_size=2, unique_by=lambda a: a % rank))
    ones = tuple(1 if i in {a % rank for a in axes} else d for i, d in enumerate(shape))
    check("Squeeze", [f32(ones), i64(axes)], constants={1})
    check("Squeeze", [f32(ones)], symbolic=False)
    total = rank + len(axes)
    assume(len({a % total for a in axes}) == len(axes))
    check("Unsqueeze", [f32(shape), i64(axes)], constants={1})


@quick
@given(shapes(1), st.data())
def test_slice(shape: tuple[int, ...], data: st.DataObject) -> None:
    rank = len(shape)
    axes = data.draw(st.lists(st.integers(-rank, rank - 1), min_size=1, max_size=3, unique_by=lambda a: a % rank))
    bound = st.one_of(st.integers(-9, 9), st.sampled_from([2**31 - 1, 2**63 - 1, -(2**31), -(2**63)]))
    starts, ends = [data.draw(bound) for _ in axes], [data.draw(bound) for _ in axes]
    steps = [data.draw(st.sampled_from([1, 1, 2, 3, -1, -2])) for _ in axes]
    check("Slice", [f32(shape), i64(starts), i64(ends), i64(axes), i64(steps)], constants={1, 2, 3, 4})


@quick
@given(st.lists(st.integers(0, 99), min_size=1, max_size=6), st.data())
def test_slice_of_content(values: list[int], data: st.DataObject) -> None:
    bound = st.one_of(st.integers(-8, 8), st.sampled_from([2**63 - 1, -(2**63)]))
    start, end, step = data.draw(bound), data.draw(bound), data.draw(st.sampled_from([1, 2, -1, -2]))
    check(
        "Slice", [i64(values), i64([start]), i64([end]), i64([0]), i64([step])], constants={0, 1, 2, 3, 4},
        content=True,
    )  # fmt: skip


@quick
@given(shapes(1), st.integers(2, 4), st.data())
def test_concat_and_split(shape: tuple[int, ...], count: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    place = axis % len(shape)
    sizes = [data.draw(EXTENT) for _ in range(count)]
    parts = [f32((*shape[:place], s, *shape[place + 1 :])) for s in sizes]
    check("Concat", parts, {"axis": axis})
    whole = np.concatenate(parts, axis)
    check("Split", [whole, i64(sizes)], {"axis": axis}, outputs=count, constants={1})
    even = (whole.shape[place] + count - 1) // count
    assume(even * (count - 1) <= whole.shape[place])
    check("Split", [whole], {"axis": axis, "num_outputs": count}, outputs=count)


@quick
@given(shapes(1), shapes(0, 2), st.data())
def test_gathers(shape: tuple[int, ...], places: tuple[int, ...], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    check("Gather", [f32(shape), np.zeros(places, np.int64)], {"axis": axis})
    check("GatherElements", [f32(shape), np.zeros(shape, np.int64)], {"axis": axis})
    depth = data.draw(st.integers(1, len(shape)))
    check("GatherND", [f32(shape), np.zeros((*places, depth), np.int64)], symbolic=False)


@quick
@given(shapes(1), st.data())
def test_expand_tile_pad(shape: tuple[int, ...], data: st.DataObject) -> None:
    narrow = tuple(1 if data.draw(st.booleans()) else d for d in shape)
    check("Expand", [f32(narrow), i64(shape)], constants={1}, symbolic=False)
    repeats = [data.draw(st.integers(1, 3)) for _ in shape]
    check("Tile", [f32(shape), i64(repeats)], constants={1})
    pads = [data.draw(st.integers(0, 3)) for _ in range(2 * len(shape))]
    check("Pad", [f32(shape), i64(pads)], constants={1})


REDUCTIONS = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp", "ReduceProd"]


@quick
@given(shapes(1), st.sampled_from(REDUCTIONS), st.integers(0, 1), st.integers(0, 1), st.data())
def test_reductions(shape: tuple[int, ...], op: str, keep: int, noop: int, data: st.DataObject) -> None:
    rank = len(shape)
    axes = data.draw(st.lists(st.integers(-rank, rank - 1), max_size=3, unique_by=lambda a: a % rank))
    attrs = {"keepdims": keep, "noop_with_empty_axes": noop}
    check(op, [f32(shape), i64(axes)], attrs, constants={1})
    check(op, [f32(shape)], attrs)
    check("ArgMax", [f32(shape)], {"axis": rank - 1, "keepdims": keep})
    check("TopK", [f32(shape), i64([1])], {"axis": -1}, outputs=2, constants={1})
    check("CumSum", [f32(shape), i64(0)], constants={1})
    check("Softmax", [f32(shape)], {"axis": -1})


@quick
@given(shapes(0, 2), st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2)]), EXTENT, EXTENT, EXTENT)
def test_matmul(lead: tuple[int, ...], ranks: tuple[int, int], m: int, k: int, n: int) -> None:
    a = f32((k,) if ranks[0] == 1 else (*lead, m, k))
    b = f32((k,) if ranks[1] == 1 else (*lead[1:], k, n))
    check("MatMul", [a, b])
    check("Gemm", [f32((k, m)), f32((n, k))], {"transA": 1, "transB": 1})


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[int], dict[str, Any]]:
    rank = draw(st.integers(1, 2))
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": [draw(st.integers(1, 3)) for _ in range(rank)]}
    padding = draw(st.sampled_from(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if padding == "NOTSET":
        attrs["pads"] = [draw(st.integers(0, kernel[i % rank] - 1)) for i in range(2 * rank)]
        attrs["dilations"] = [draw(st.integers(1, 2)) for _ in range(rank)]
    else:
        attrs["auto_pad"] = padding
    return [draw(st.integers(7, 12)) for _ in range(rank)], attrs


@quick
@given(windows(), st.integers(1, 2), st.integers(1, 2), st.booleans())
def test_convolution_and_pooling(window: tuple[list[int], dict[str, Any]], batch: int, group: int, ceil: bool) -> None:
    spatial, attrs = window
    # onnxruntime computes negative paddings for a SAME window below its stride.
    assume("SAME" not in attrs.get("auto_pad", "") or max(attrs["strides"]) <= min(attrs["kernel_shape"]))
    x = f32((batch, 2 * group, *spatial))
    w = f32((3 * group, 2, *attrs["kernel_shape"]))
    check("Conv", [x, w], {**attrs, "group": group}, constants={1})
    pooled = {**attrs, "ceil_mode": int(ceil and attrs.get("auto_pad", "NOTSET") == "NOTSET")}
    check("MaxPool", [x], pooled)
    check("MaxPool", [x], pooled, outputs=2)
    check("AveragePool", [x], pooled)
    check("GlobalAveragePool", [x])


@quick
@given(windows(), st.integers(1, 2), st.integers(1, 2))
def test_transposed_convolution(window: tuple[list[int], dict[str, Any]], batch: int, group: int) -> None:
    spatial, attrs = window
    assume(attrs.get("auto_pad", "NOTSET") == "NOTSET")
    x = f32((batch, 2 * group, *spatial))
    w = f32((2 * group, 3, *attrs["kernel_shape"]))
    check("ConvTranspose", [x, w], {**attrs, "group": group}, constants={1})
    extra = [s - 1 for s in attrs["strides"]]
    check("ConvTranspose", [x, w], {**attrs, "group": group, "output_padding": extra}, constants={1})


@quick
@given(st.lists(st.integers(1, 9), min_size=2, max_size=2), st.sampled_from([0.5, 1.0, 1.5, 2.0, 0.25, 3.0]), EXTENT)
def test_resize(spatial: list[int], scale: float, size: int) -> None:
    assume(int(min(spatial) * scale) > 0)
    x = f32((1, 2, *spatial))
    scales = np.array([1, 1, scale, scale], np.float32)
    common = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    check("Resize", [x, None, scales], common, constants={2})
    check("Resize", [x, None, None, i64([1, 2, size, size])], common, constants={3}, symbolic=False)


@quick
@given(EXTENT, EXTENT, EXTENT, EXTENT, st.sampled_from(["forward", "bidirectional"]))
def test_recurrent(length: int, batch: int, size: int, hidden: int, direction: str) -> None:
    d = 2 if direction == "bidirectional" else 1
    attrs = {"hidden_size": hidden, "direction": direction}
    x = f32((length, batch, size))
    for op, gates, outputs in (("LSTM", 4, 3), ("GRU", 3, 2), ("RNN", 1, 2)):
        w, r = f32((d, gates * hidden, size)), f32((d, gates * hidden, hidden))
        more = {"activations": ["Tanh"] * d} if op == "RNN" else {}
        check(op, [x, w, r], {**attrs, **more}, outputs=outputs, constants={1, 2})


@pytest.mark.parametrize(
    ("equation", "operands"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("...ij,...jk->...ik", [(2, 7, 3, 4), (1, 7, 4, 5)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("ii->i", [(3, 3)]),
        ("i,j->ij", [(3,), (4,)]),
    ],
)
def test_einsum(equation: str, operands: list[tuple[int, ...]]) -> None:
    check("Einsum", [f32(s) for s in operands], {"equation": equation})


@pytest.mark.parametrize("past", [0, 3])
def test_attention(past: int) -> None:
    q, kv = f32((2, 4, 5, 8)), f32((2, 2, 6, 8))
    inputs = [q, kv, kv] + ([None, f32((2, 2, past, 8)), f32((2, 2, past, 8))] if past else [])
    check("Attention", inputs, outputs=3 if past else 1)
    flat = [f32((2, 5, 32)), f32((2, 6, 16)), f32((2, 6, 16))]
    check("Attention", flat + inputs[3:], {"q_num_heads": 4, "kv_num_heads": 2}, outputs=3 if past else 1)


def test_normalizations_and_rotary_embedding() -> None:
    x = f32((2, 3, 4))
    check("LayerNormalization", [x, f32((4,)), f32((4,))], outputs=1)
    check("LayerNormalization", [x, f32((3, 4))], {"axis": -2}, outputs=3)
    check("RMSNormalization", [x, f32((4,))])
    check("InstanceNormalization", [x, f32((3,)), f32((3,))])
    check("RotaryEmbedding", [f32((2, 3, 5, 8)), f32((9, 4)), f32((9, 4)), np.zeros((2, 5), np.int64)])


def test_quantization() -> None:
    x, scale, zero = f32((2, 3)), np.float32(0.1), np.int8(0)
    check("QuantizeLinear", [x, np.array(scale), np.array(zero)])
    check("QuantizeLinear", [x, np.array(scale)])
    check("DequantizeLinear", [np.zeros((2, 3), np.uint8), np.array(scale), np.array(zero, np.uint8)])
    check("DynamicQuantizeLinear", [x], outputs=3)
    check("MatMulInteger", [np.zeros((2, 3), np.uint8), np.zeros((3, 4), np.int8)])
    check("ConvInteger", [np.zeros((1, 2, 5, 5), np.uint8), np.zeros((3, 2, 3, 3), np.uint8)], constants={1})


def test_shape_makers() -> None:
    check("Shape", [f32((2, 3, 4))], content=True)
    check("Shape", [f32((2, 3, 4))], {"start": -2, "end": 9}, content=True)
    check("Size", [f32((2, 3, 4))], content=True)
    check("ConstantOfShape", [i64([2, 3])], constants={0}, content=True)
    check("Range", [i64(2), i64(11), i64(3)], constants={0, 1, 2}, content=True)
    check("Range", [i64(11), i64(2), i64(-4)], constants={0, 1, 2}, content=True)
    check("Range", [np.array(v, np.float32) for v in (0, 1, 0.3)], constants={0, 1, 2})
    check("ReduceProd", [i64([2, 3, 4])], {"keepdims": 0}, constants={0}, content=True)
    check("Cast", [i64([2, 300])], {"to": 1}, constants={0}, content=True)
    check("Cast", [i64([2, 300])], {"to": 2}, constants={0})
    check("Cast", [np.float32([2, 0])], {"to": 9}, constants={0}, content=True)
    check("Where", [np.array([True, False]), i64([1, 2]), i64([3, 4])], constants={0, 1, 2}, content=True)
    check("CumSum", [i64([1, 2, 3]), i64(0)], {"exclusive": 1, "reverse": 1}, constants={0, 1}, content=True)
    check("OneHot", [i64([0, 1]), i64(3), i64([0, 1])], {"axis": -1}, constants={1})


def test_further_movement() -> None:
    check("DepthToSpace", [f32((1, 8, 2, 3))], {"blocksize": 2})
    check("SpaceToDepth", [f32((1, 2, 4, 6))], {"blocksize": 2}, symbolic=False)
    check("ScatterND", [f32((4, 3)), i64([[1], [2]]), f32((2, 3))])
    check("ScatterElements", [f32((4, 3)), i64([[1, 0, 1]]), f32((1, 3))])
    check("Trilu", [f32((4, 3))], {"upper": 0})
    check("GridSample", [f32((1, 2, 4, 5)), f32((1, 3, 6, 2))])
    check("STFT", [f32((1, 32, 1)), i64(4), f32((8,))], constants={1})
    check("DFT", [f32((1, 16, 1))], {"onesided": 1})
    check("Det", [f32((2, 3, 3))])
    check("EyeLike", [f32((2, 3))])
    check("HannWindow", [i64(9)], constants={0})


MS = "com.microsoft::"


def test_operators_of_the_quantizer_and_optimizer() -> None:
    scale, zero = np.array(0.1, np.float32), np.array(0, np.uint8)
    u8 = np.zeros((2, 3), np.uint8)
    check(MS + "FusedMatMul", [f32((4, 2, 3)), f32((4, 5, 3))], {"transB": 1, "alpha": 0.5})
    check(MS + "FusedMatMul", [f32((3, 2)), f32((3, 4))], {"transA": 1})
    check(MS + "FusedMatMul", [f32((2, 4, 3)), f32((4, 3, 5))], {"transBatchA": 1})
    check(MS + "QLinearAdd", [u8, scale, zero, u8[:1], scale, zero, scale, zero])
    check(MS + "QLinearSigmoid", [u8, scale, zero, scale, zero])
    check(MS + "QLinearConcat", [scale, zero, u8, scale, zero, u8, scale, zero], {"axis": 1})
    check(MS + "SkipLayerNormalization", [f32((2, 3, 4)), f32((2, 3, 4)), f32((4,))])
    check(MS + "QuickGelu", [f32((2, 3))])
    check(MS + "BiasGelu", [f32((2, 3)), f32((3,))])
    lstm = [
        f32((5, 2, 3)),
        np.zeros((2, 3, 16), np.uint8),
        np.zeros((2, 4, 16), np.uint8),
        None,
        None,
        None,
        None,
        None,
    ]
    per_direction = [np.ones(2, np.float32), np.zeros(2, np.uint8)] * 2
    check(
        MS + "DynamicQuantizeLSTM", lstm + per_direction, {"hidden_size": 4, "direction": "bidirectional"}, outputs=3,
        constants={1, 2, 8, 9, 10, 11},
    )  # fmt: skip


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_resize_with_axes_and_policies(policy: str) -> None:
    attrs = {"axes": [2, 3], "keep_aspect_ratio_policy": policy, "mode": "linear"}
    for size in ([7, 9], [20, 6], [5, 5]):
        check("Resize", [f32((1, 2, 8, 6)), None, None, i64(size)], attrs, constants={3}, symbolic=False)


def test_resize_with_axes_and_scales() -> None:
    scales = np.array([1.3, 0.7], np.float32)
    attrs = {"axes": [2, 3], "mode": "linear"}
    check("Resize", [f32((1, 2, 8, 6)), None, scales], attrs, constants={2}, symbolic=False)
