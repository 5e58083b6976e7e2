"""Winograd's convolutions against onnxruntime and sums in f64: geometry, sizes, choice, error."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

from codegen.kernels.conv import lower_conv
from codegen.kernels.operands import NotLowerable
from codegen.kernels.tiling import parse_tiling
from codegen.targets import target
from graph_opt.plan.records import KernelRecord
from tests.kernels.lowered import HOSTS, Case, check
from tests.kernels.test_conv import conv_case

rng = np.random.default_rng(0)

GEOMETRIES = [
    ((1, 16, 15, 17), (33, 16, 3, 3), "4x4 tiles=2x2 panel=16 split=2", {"pads": [1, 1, 1, 1]}),
    ((2, 40, 9, 30), (16, 40, 3, 3), "4x4 tiles=1x3 panel=8 split=1", {"pads": [0, 2, 1, 0]}),
    ((1, 8, 6, 5), (7, 8, 3, 3), "4x4 tiles=4x4 panel=16 split=1", {}),
    ((1, 5, 20, 20), (8, 5, 5, 5), "4x4 tiles=2x5 panel=8 split=1", {"pads": [2, 2, 2, 2]}),
    ((1, 12, 13, 9), (8, 12, 1, 3), "1x4 tiles=3x2 panel=8 split=1", {"pads": [0, 1, 0, 1]}),
    ((1, 12, 13, 9), (8, 12, 7, 1), "2x1 tiles=3x9 panel=8 split=1", {"pads": [3, 0, 3, 0]}),
    ((3, 35, 250), (20, 35, 3), "4 tiles=32 panel=16 split=1", {"pads": [1, 1]}),
    ((1, 8, 50), (24, 8, 6), "3 tiles=7 panel=16 split=2", {"auto_pad": "SAME_UPPER"}),
    ((1, 16, 9, 11), (16, 16, 3, 3), "6x2 tiles=1x2 panel=16 split=1", {"pads": [1, 1, 1, 1]}),
    ((1, 16, 101), (24, 16, 3), "4 tiles=8 panel=16 split=2", {"dilations": [4], "pads": [4, 3]}),
    ((2, 40, 150), (8, 40, 3), "4 tiles=8 panel=8 split=1", {"dilations": [24], "pads": [0, 9]}),
    ((1, 8, 61), (8, 8, 5), "4 tiles=4 panel=8 split=1", {"dilations": [2], "pads": [4, 4]}),
    ((1, 8, 9, 9), (8, 8, 2, 2), "5x5 tiles=2x2 panel=8 split=1", {"pads": [1, 0, 0, 1]}),
]


def points(words: str) -> Any:
    return partial(lower_conv, tiling=parse_tiling(f"winograd outputs={words}"))


@pytest.mark.parametrize(("x", "w", "words", "attrs"), GEOMETRIES, ids=str)
@pytest.mark.parametrize("symbolic", [False, True])
def test_geometries(x: tuple[int, ...], w: tuple[int, ...], words: str, attrs: dict[str, Any], symbolic: bool) -> None:
    if symbolic:  # the case works out its run-time extents from numbers
        attrs = {k: v for k, v in attrs.items() if k != "auto_pad"}
    case = conv_case(x, w, tail=symbolic, bias=not symbolic, symbolic=symbolic, **attrs)
    check(case, points(words), 1e-4, 5e-5, HOSTS[-1:])


@pytest.mark.parametrize("host", HOSTS)
def test_every_host_class(host: str) -> None:
    case = conv_case((1, 16, 14, 14), (32, 16, 3, 3), tail=True, pads=[1, 1, 1, 1])
    check(case, points("4x4 tiles=2x4 panel=32 split=1"), 1e-4, 1e-4, [host])


@pytest.mark.parametrize(("x", "w", "words", "attrs"), [GEOMETRIES[i] for i in (0, 4, 6, 9)], ids=str)
@pytest.mark.parametrize("dtype", [np.float16, bfloat16])
def test_halves(
    x: tuple[int, ...], w: tuple[int, ...], words: str, attrs: dict[str, Any], dtype: type
) -> None:
    """Halves are converted once; points, products and sums are f32, so the result has one rounding."""
    case = conv_case(x, w, **attrs)
    case.arrays, case.wide = {k: v.astype(dtype) for k, v in case.arrays.items()}, True
    check(case, points(words), 1e-2 if dtype is bfloat16 else 1e-3, 1e-3, HOSTS[-1:])


def test_the_estimate_knows_the_rate_of_halves() -> None:
    """Against products of pairs of bf16 numbers the points, which are f32, have to gain twice as much."""
    pads = {"pads": [1, 1, 1, 1]}
    for channels, way in ((64, "winograd"), (24, "conv")):
        case = conv_case((1, channels, 28, 28), (channels, channels, 3, 3), **pads)
        case.arrays, case.wide = {k: v.astype(bfloat16) for k, v in case.arrays.items()}, True
        assert kind(case, "x86-64-v4-bf16") == way
        assert kind(case, "x86-64-v4") == "winograd"


@pytest.mark.parametrize("words", ["5x5 tiles=2x2 panel=16 split=1", "4 tiles=2 panel=16 split=1"])
def test_what_has_no_scheme_is_refused(words: str) -> None:
    case = conv_case((1, 8, 9, 9), (8, 8, 3, 3))
    with pytest.raises(NotLowerable):
        points(words)(case.node(case.expected()), target(HOSTS[-1]))


def kind(case: Case, host: str = "x86-64-v3", **attrs: Any) -> str:
    """The kind of tiling that the family chooses for the case's convolution."""
    node = case.node(case.expected())
    node.subgraphs["body"].nodes[0].attrs.update(attrs)
    (record,) = lower_conv(node, target(host))
    assert isinstance(record, KernelRecord)
    return record.tiling.split()[0]


def test_the_estimate_chooses() -> None:
    pads = {"pads": [1, 1, 1, 1]}
    large = conv_case((1, 64, 28, 28), (64, 64, 3, 3), **pads)
    assert kind(large) == kind(large, "x86-64-v4") == kind(large, "aarch64") == "winograd"
    assert kind(large, direct=1) == "conv"
    assert kind(conv_case((1, 64, 28, 28), (64, 64, 3, 3), strides=[2, 2], **pads)) == "conv"
    assert kind(conv_case((1, 8, 14, 14), (8, 8, 3, 3), **pads)) == "conv"
    # The points of so many weights come from memory for few positions.
    assert kind(conv_case((1, 512, 7, 7), (512, 512, 3, 3), **pads)) == "conv"
    half = conv_case((1, 64, 28, 28), (64, 64, 3, 3), **pads)
    half.arrays, half.wide = {k: v.astype(np.float16) for k, v in half.arrays.items()}, True
    assert kind(half) == "winograd"


def exact(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The convolution without pads in f64."""
    rank = x.ndim - 2
    spatial = tuple(range(2, 2 + rank))
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), w.shape[2:], spatial)
    taken = (1, *range(2 + rank, 2 + 2 * rank))
    return np.moveaxis(np.tensordot(windows, w.astype(np.float64), (taken, (1, *spatial))), -1, 1)


@pytest.mark.parametrize(("shape", "kernel", "words"), [
    ((1, 64, 20, 20), (8, 64, 3, 3), "4x4 tiles=2x5 panel=8 split=1"),
    ((1, 64, 20, 20), (8, 64, 5, 5), "4x4 tiles=2x4 panel=8 split=1"),
    ((1, 64, 200), (8, 64, 3), "4 tiles=16 panel=8 split=1"),
])  # fmt: skip
@pytest.mark.parametrize("inputs", ["normal", "positive", "smooth"])
def test_the_error_stays_within_its_bound(
    shape: tuple[int, ...], kernel: tuple[int, ...], words: str, inputs: str
) -> None:
    """docs/numerics.md: 1e-5 of the largest result."""
    x = rng.normal(size=shape)
    if inputs == "positive":
        x = np.abs(x) + 1
    if inputs == "smooth":
        x = np.cumsum(x, axis=-1)
    w = rng.normal(size=kernel) / np.sqrt(np.prod(kernel[1:]))
    x, w = x.astype(np.float32), w.astype(np.float32)
    case = Case("conv", [("Conv", ["x", "w"], ["y"], {})], {"x": x, "w": w}, ["y"], ["w"], last=["x", "y"])
    expected = exact(x, w)
    case.expected = lambda: {"y": expected.astype(np.float32)}  # type: ignore[method-assign]
    check(case, points(words), 0, 1e-5 * float(np.abs(expected).max()), HOSTS[-1:])
