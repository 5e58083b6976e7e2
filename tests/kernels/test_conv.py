"""Convolutions against onnxruntime: geometry, formats, groups, epilogues, run-time sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

from codegen.kernels.conv import lower_conv
from codegen.kernels.operands import NotLowerable
from codegen.kernels.tiling import parse_tiling
from codegen.targets import target
from codegen.tile.text import parse_program
from tensor_types.dims import Dim, dim, floordiv
from tests.kernels.lowered import CHIPS, HOSTS, Case, check, reference

rng = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def conv_case(x: tuple[int, ...], w: tuple[int, ...], bias: bool = True, tail: bool = False, last: bool = True,
              symbolic: bool = False, out_last: bool | None = None, **attrs: Any) -> Case:  # fmt: skip
    """A convolution, with `tail` followed by a clip, a residual and a per-channel scale."""
    arrays = {"x": f32(*x), "w": f32(*w) / np.float32(np.sqrt(np.prod(w[1:]))), "b": f32(w[0])}
    ops: list[Any] = [("Conv", ["x", "w", "b"] if bias else ["x", "w"], ["c"], attrs)]
    if not bias:
        del arrays["b"]
    result = "c"
    shape = reference(ops, arrays, ["c"])["c"].shape
    if tail:
        arrays |= {"lo": np.float32(-0.5), "hi": np.float32(1.5), "r": f32(*shape), "s": f32(w[0], *(1 for _ in x[2:]))}
        arrays = {k: np.asarray(v) for k, v in arrays.items()}
        ops += [("Clip", ["c", "lo", "hi"], ["k"], {}), ("Add", ["k", "r"], ["t"], {}), ("Mul", ["t", "s"], ["y"], {})]
        result = "y"
    names: dict[str, tuple[int | str | Dim, ...]] = {}
    dims: dict[str, int] = {}
    if symbolic:
        dims = {"n": x[0], **{f"s{i}": d for i, d in enumerate(x[2:])}}
        names["x"] = ("n", x[1], *(f"s{i}" for i in range(len(x) - 2)))
        out: list[int | str | Dim] = ["n", w[0]]
        rank = len(x) - 2
        usual = {"pads": [0] * 2 * rank, "strides": [1] * rank, "dilations": [1] * rank}
        pads, strides, dilations = (attrs.get(k, d) for k, d in usual.items())
        for i in range(rank):
            reach = (w[2 + i] - 1) * dilations[i] + 1
            out.append(floordiv(dim(f"s{i}") + (pads[i] + pads[rank + i] - reach), strides[i]) + 1)
        names |= {k: tuple(out) for k in ("c", "k", "t", "y", "r")}
    formats = (["x", "r"] if last else []) + (["c", "k", "t", "y"] if (last if out_last is None else out_last) else [])
    if not last and out_last:
        formats += ["r"]
    constants = [k for k in ("w", "b", "lo", "hi", "s") if k in arrays]
    return Case("conv", ops, arrays, [result], constants, names, formats, dims)


GEOMETRIES = [
    ((1, 3, 15, 17), (16, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 3, 23, 20), (33, 3, 7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 2]}),
    ((1, 8, 9, 9), (24, 8, 3, 3), {"pads": [0, 1, 2, 1], "strides": [2, 1]}),
    ((1, 20, 7, 5), (70, 20, 1, 1), {}),
    ((3, 32, 14, 14), (64, 32, 1, 1), {"strides": [2, 2]}),
    ((1, 17, 10, 12), (5, 17, 3, 5), {"dilations": [2, 1], "pads": [2, 2, 2, 2]}),
    ((1, 6, 5, 5), (8, 6, 5, 5), {}),
    ((1, 4, 1, 1), (4, 4, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 130, 13, 13), (150, 130, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 12, 11, 11), (6, 12, 4, 4), {"auto_pad": "SAME_LOWER"}),
    ((2, 5, 40), (7, 5, 3), {"pads": [1, 1], "strides": [2]}),
    ((1, 20, 700), (9, 20, 3), {"dilations": [300]}),
    ((1, 3, 5, 6, 7), (4, 3, 3, 2, 3), {"pads": [1, 0, 1, 1, 1, 1]}),
    ((1, 8, 6, 6), (12, 4, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    ((1, 24, 6, 6), (48, 4, 1, 1), {"group": 6}),
    ((1, 4, 6, 6), (8, 1, 3, 3), {"group": 4}),
    ((1, 40, 4300), (9, 40, 3), {"dilations": [2048], "pads": [40, 0]}),
    ((1, 18, 40, 9), (5, 18, 3, 3), {"dilations": [19, 1], "pads": [1, 1, 1, 1]}),
]


@pytest.mark.parametrize(("x", "w", "attrs"), GEOMETRIES, ids=str)
@pytest.mark.parametrize("tail", [False, True])
def test_geometries(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any], tail: bool) -> None:
    check(conv_case(x, w, bias=not tail, tail=tail, **attrs), lower_conv, 1e-4, 1e-5, HOSTS if tail else HOSTS[-1:])


@pytest.mark.parametrize(("x", "w", "attrs"), GEOMETRIES[:7] + GEOMETRIES[10:14], ids=str)
def test_plain_formats(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any]) -> None:
    check(conv_case(x, w, last=False, tail=True, **attrs), lower_conv, 1e-4, 1e-5, HOSTS[-1:])
    check(conv_case(x, w, last=False, out_last=True, tail=True, **attrs), lower_conv, 1e-4, 1e-5, HOSTS[-1:])


@pytest.mark.parametrize(("x", "w", "attrs"), GEOMETRIES[:8] + GEOMETRIES[10:14], ids=str)
@pytest.mark.parametrize("last", [True, False])
def test_run_time_sizes(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any], last: bool) -> None:
    check(conv_case(x, w, tail=True, symbolic=True, last=last, **attrs), lower_conv, 1e-4, 1e-5, HOSTS[-1:])


DEPTHWISE = [
    ((1, 32, 14, 14), 3, {"pads": [1, 1, 1, 1]}),
    ((2, 96, 15, 9), 3, {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ((1, 320, 7, 7), 5, {"pads": [2, 2, 2, 2]}),
    ((1, 7, 5, 6), 3, {"pads": [0, 1, 1, 0]}),
    ((1, 17, 9, 9), 3, {"dilations": [2, 2], "pads": [2, 2, 2, 2]}),
    ((1, 20, 12, 12), 7, {"pads": [3, 3, 3, 3]}),
    ((1, 16, 2, 1), 5, {"pads": [2, 2, 2, 2]}),
    ((1, 130, 40, 33), 3, {"pads": [1, 1, 1, 1]}),
]


@pytest.mark.parametrize(("x", "k", "attrs"), DEPTHWISE, ids=str)
@pytest.mark.parametrize("symbolic", [False, True])
def test_depthwise(x: tuple[int, ...], k: int, attrs: dict[str, Any], symbolic: bool) -> None:
    for tail in (False, True):
        case = conv_case(x, (x[1], 1, k, k), tail=tail, bias=tail, symbolic=symbolic, group=x[1], **attrs)
        check(case, lower_conv, 1e-4, 1e-5, HOSTS if tail else HOSTS[-1:])


def test_depthwise_over_time() -> None:
    check(conv_case((2, 24, 50), (24, 1, 5), group=24, pads=[2, 2], tail=True), lower_conv, 1e-4, 1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_other_float_types(dtype: type) -> None:
    case = conv_case((1, 8, 9, 9), (12, 8, 3, 3), pads=[1, 1, 1, 1])
    case.arrays, case.wide = {k: v.astype(dtype) for k, v in case.arrays.items()}, True
    check(case, lower_conv, 2e-3, 2e-3)


@pytest.mark.parametrize(("x", "w", "attrs"), GEOMETRIES[:5] + GEOMETRIES[13:15], ids=str)
@pytest.mark.parametrize("host", ["x86-64-v4-bf16", "aarch64-bf16"])
def test_bf16_two_channels_at_a_time(
    x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any], host: str
) -> None:
    """Channels lie in pairs where they are even; the dot products are emulated where the processor has none."""
    case = conv_case(x, w, **attrs)
    case.arrays, case.wide = {k: v.astype(bfloat16) for k, v in case.arrays.items()}, True
    check(case, lower_conv, 2e-2, 2e-2, [host])


@pytest.mark.parametrize(("x", "w", "attrs"), GEOMETRIES[:3] + GEOMETRIES[5:8] + GEOMETRIES[9:11] + GEOMETRIES[12:13], ids=str)
@pytest.mark.parametrize("symbolic", [False, True])
def test_bf16_two_taps_at_a_time(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any], symbolic: bool) -> None:
    """Taps of a plain row lie in pairs; an odd kernel has one more, whose weight is zero."""
    case = conv_case(x, w, last=False, symbolic=symbolic, **attrs)
    case.arrays, case.wide = {k: v.astype(bfloat16) for k, v in case.arrays.items()}, True
    node = check(case, lower_conv, 2e-2, 2e-2, ["x86-64-v4-bf16"])
    (record,) = lower_conv(node, target("x86-64-v4-bf16"))
    weight = parse_program(record.program).params[1]
    assert weight.shape[-1] == 2 and weight.shape[-3] == -(-w[-1] // 2)


@pytest.mark.parametrize(("x", "k", "attrs"), DEPTHWISE, ids=str)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, bfloat16])
def test_depthwise_of_halves(
    x: tuple[int, ...], k: int, attrs: dict[str, Any], symbolic: bool, dtype: type
) -> None:
    """Taps are converted as they are read: no product of one channel stands in the program."""
    case = conv_case(x, (x[1], 1, k, k), symbolic=symbolic, group=x[1], **attrs)
    case.arrays, case.wide = {k: v.astype(dtype) for k, v in case.arrays.items()}, True
    node = check(case, lower_conv, 2e-2, 2e-2, HOSTS[-1:])
    (record,) = lower_conv(node, target(HOSTS[-1]))
    assert "TFMA" in record.program and "TMATMUL" not in record.program


@pytest.mark.skipif("x86-64-v4" not in HOSTS, reason="emulated tiles take long without AVX-512")
@pytest.mark.parametrize(("x", "w", "attrs"), GEOMETRIES[:5] + GEOMETRIES[13:15], ids=str)
def test_bf16_on_a_matrix_unit(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any]) -> None:
    """Channels lie in pairs where they are even; the tile registers are emulated."""
    case = conv_case(x, w, **attrs)
    case.arrays, case.wide = {k: v.astype(bfloat16) for k, v in case.arrays.items()}, True
    check(case, lower_conv, 2e-2, 2e-2, ["x86-64-amx"])


TRANSPOSED = [
    ((1, 24, 7, 9), (24, 20, 2, 2), {"strides": [2, 2]}),
    ((2, 5, 6, 5), (5, 7, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    ((1, 8, 5, 30), (8, 70, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 4, 6, 6), (4, 3, 3, 3), {}),
    ((2, 3, 13, 7), (3, 4, 1, 1), {"strides": [2, 2]}),
    ((1, 4, 5, 5), (4, 2, 2, 2), {"strides": [3, 3]}),
    ((1, 4, 5, 5), (4, 6, 3, 3), {"strides": [2, 1], "dilations": [2, 1]}),
    ((1, 6, 5, 5), (6, 4, 3, 3), {"group": 2, "strides": [2, 2]}),
    ((2, 8, 20), (8, 6, 4), {"strides": [2], "pads": [1, 1]}),
    ((1, 3, 4, 4), (3, 5, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
]


SIDE_BY_SIDE = [
    ((1, 24, 11, 50), (24, 1, 2, 2), {"strides": [2, 2]}),
    ((2, 8, 5, 6), (8, 3, 2, 3), {"strides": [2, 3], "group": 2}),
    ((2, 5, 60), (5, 7, 2), {"strides": [2]}),
]


@pytest.mark.parametrize(("x", "w", "attrs"), SIDE_BY_SIDE, ids=str)
@pytest.mark.parametrize("last", [True, False])
def test_transposed_windows_side_by_side(
    x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any], last: bool
) -> None:
    """The phases of windows that do not overlap are columns of one product."""
    test_transposed(x, w, attrs, last)
    arrays = {"x": f32(*x), "w": f32(*w)}
    case = Case("conv", [("ConvTranspose", ["x", "w"], ["c"], attrs)], arrays, ["c"], ["w"], last=["x", "c"])
    (record,) = lower_conv(case.node(case.expected()), target(HOSTS[-1]))
    assert record.program.count("TMATMUL") == 1


def test_phases_of_windows_that_overlap_are_not_together() -> None:
    arrays = {"x": f32(1, 4, 6, 6), "w": f32(4, 2, 3, 3)}
    ops = [("ConvTranspose", ["x", "w"], ["c"], {"strides": [2, 2]})]
    case = Case("conv", ops, arrays, ["c"], ["w"], last=["x", "c"])
    tiling = parse_tiling("conv_transpose block=2x3 panel=16 together=1")
    with pytest.raises(NotLowerable, match="overlap"):
        lower_conv(case.node(case.expected()), target(HOSTS[-1]), tiling)


@pytest.mark.parametrize(("x", "w", "attrs"), TRANSPOSED, ids=str)
@pytest.mark.parametrize("last", [True, False])
def test_transposed(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any], last: bool) -> None:
    features = w[1] * attrs.get("group", 1)
    arrays = {"x": f32(*x), "w": f32(*w), "b": f32(features)}
    ops: list[Any] = [("ConvTranspose", ["x", "w", "b"], ["c"], attrs), ("Relu", ["c"], ["y"], {})]
    formats = ["x", "c", "y"] if last else []
    case = Case("conv", ops, arrays, ["y"], ["w", "b"], last=formats)
    check(case, lower_conv, 1e-4, 1e-5, HOSTS[:1])
    if "auto_pad" in attrs:
        return
    rank = len(x) - 2
    out: list[int | str | Dim] = ["n", features]
    for i in range(rank):
        pads, strides = attrs.get("pads", [0] * 2 * rank), attrs.get("strides", [1] * rank)
        reach = (w[2 + i] - 1) * attrs.get("dilations", [1] * rank)[i] + 1
        extra = attrs.get("output_padding", [0] * rank)[i]
        out.append((dim(f"s{i}") - 1) * strides[i] + (reach - pads[i] - pads[rank + i] + extra))
    case.symbolic = {"x": ("n", x[1], *(f"s{i}" for i in range(rank))), "c": tuple(out), "y": tuple(out)}
    case.dims = {"n": x[0], **{f"s{i}": d for i, d in enumerate(x[2:])}}
    check(case, lower_conv, 1e-4, 1e-5, HOSTS[-1:])


def half(case: Case) -> Case:
    case.arrays, case.wide = {k: v.astype(np.float16) for k, v in case.arrays.items()}, True
    return case


@pytest.mark.parametrize(("x", "w", "attrs"), GEOMETRIES, ids=str)
def test_chips(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any]) -> None:
    for last in (True, False):
        check(conv_case(x, w, tail=True, last=last, **attrs), lower_conv, 1e-4, 1e-5, ["Ascend910B2"])
    check(half(conv_case(x, w, **attrs)), lower_conv, 2e-2, 2e-2, CHIPS)
    if "auto_pad" not in attrs and attrs.get("group", 1) == 1:
        check(conv_case(x, w, tail=True, symbolic=True, **attrs), lower_conv, 1e-4, 1e-5, ["Ascend910B2"])


def test_chips_have_their_own_float_types() -> None:
    for case, chip in ((conv_case((1, 8, 5, 5), (8, 8, 3, 3)), "Ascend310P3"), (f64_case(), "Ascend910B2")):
        with pytest.raises(NotLowerable, match="cube"):
            check(case, lower_conv, hosts=[chip])


def f64_case() -> Case:
    case = conv_case((1, 8, 5, 5), (8, 8, 3, 3))
    case.arrays, case.wide = {k: v.astype(np.float64) for k, v in case.arrays.items()}, True
    return case


@pytest.mark.parametrize(("x", "k", "attrs"), DEPTHWISE, ids=str)
def test_depthwise_on_chips(x: tuple[int, ...], k: int, attrs: dict[str, Any]) -> None:
    w = (x[1], 1, k, k)
    for last in (True, False):
        check(conv_case(x, w, tail=True, last=last, group=x[1], **attrs), lower_conv, 1e-4, 1e-5, CHIPS)
    check(conv_case(x, w, tail=True, symbolic=True, group=x[1], **attrs), lower_conv, 1e-4, 1e-5, CHIPS[:1])
    check(half(conv_case(x, w, group=x[1], **attrs)), lower_conv, 2e-2, 2e-2, CHIPS)


@pytest.mark.parametrize(("x", "w", "attrs"), TRANSPOSED, ids=str)
def test_transposed_on_chips(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any]) -> None:
    arrays = {"x": f32(*x), "w": f32(*w), "b": f32(w[1] * attrs.get("group", 1))}
    ops: list[Any] = [("ConvTranspose", ["x", "w", "b"], ["c"], attrs), ("Relu", ["c"], ["y"], {})]
    for formats in ([], ["x", "c", "y"]):
        case = Case("conv", ops, arrays, ["y"], ["w", "b"], last=formats)
        check(case, lower_conv, 1e-4, 1e-5, ["Ascend910B2"])
