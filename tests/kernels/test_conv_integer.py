"""Integer convolutions: bytes times bytes, exact, against numpy's convolution in i64."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from codegen.kernels.conv import lower_conv
from codegen.kernels.operands import NotLowerable
from tests.kernels.lowered import CHIPS, HOSTS, Case, check

rng = np.random.default_rng(3)


def convolve(x: np.ndarray, w: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    """A loop over taps in i64; pads count as `pad_value`."""
    rank = w.ndim - 2
    pads, strides = attrs.get("pads", [0] * 2 * rank), attrs.get("strides", [1] * rank)
    dilations, kernel = attrs.get("dilations", [1] * rank), w.shape[2:]
    widths = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    x = np.pad(x.astype(np.int64), widths, constant_values=attrs.get("pad_value", 0))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    out = [(n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, strides, strict=True)]
    total = np.zeros((x.shape[0], w.shape[0], *out), np.int64)
    for taps in product(*map(range, kernel)):
        window = tuple(slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in zip(taps, dilations, out, strides, strict=True))
        total += np.einsum("nc...,mc->nm...", x[(..., *window)], w[(..., *taps)].astype(np.int64))
    return total


class Exact(Case):
    """The first operator by `convolve`, a requantisation to u8 behind it in f32."""

    def expected(self) -> dict[str, np.ndarray]:
        attrs = self.ops[0][3]
        total = convolve(self.arrays["x"], self.arrays["w"], dict(attrs)).astype(np.int32)
        results = {"c": total}
        if len(self.ops) > 1:
            wide = total.astype(np.float32)
            results["f"] = wide
            results["k"] = wide * self.arrays["s"]
            results["t"] = np.clip(results["k"], np.float32(0), np.float32(255))
            results["r"] = np.rint(results["t"])
            results["i"] = results["r"].astype(np.int32)
            results["y"] = results["i"].astype(np.uint8)
        return results


def case(x: tuple[int, ...], w: tuple[int, ...], kinds: tuple[type, type], tail: bool = False, **attrs: Any) -> Exact:
    def codes(kind: type, shape: tuple[int, ...]) -> np.ndarray:
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max, shape, endpoint=True).astype(kind)

    arrays = {"x": codes(kinds[0], x), "w": codes(kinds[1], w)}
    ops: list[Any] = [("ConvInteger", ["x", "w"], ["c"], attrs)]
    if not tail:
        return Exact("conv", ops, arrays, ["c"], ["w"], last=["x", "c"])
    scale = (0.003 / np.sqrt(np.prod(w[1:])) * (1 + np.arange(w[0]) % 3)).astype(np.float32)
    arrays |= {"s": scale.reshape(-1, *(1 for _ in x[2:])), "lo": np.float32(0), "hi": np.float32(255)}
    ops += [
        ("Cast", ["c"], ["f"], {"to": 1}),
        ("Mul", ["f", "s"], ["k"], {}),
        ("Clip", ["k", "lo", "hi"], ["t"], {}),
        ("Round", ["t"], ["r"], {}),
        ("Cast", ["r"], ["i"], {"to": 6}),
        ("Cast", ["i"], ["y"], {"to": 2}),
    ]
    arrays = {k: np.asarray(v) for k, v in arrays.items()}
    return Exact("conv", ops, arrays, ["y"], ["w", "s", "lo", "hi"], last=["x", "c", "f", "k", "t", "r", "i", "y"])


GEOMETRIES = [
    ((1, 4, 1, 1), (1, 4, 1, 1), {}),
    ((1, 8, 9, 7), (33, 8, 3, 3), {"pads": [1, 1, 1, 1], "pad_value": 77}),
    ((2, 20, 14, 14), (16, 20, 1, 1), {}),
    ((1, 12, 15, 11), (70, 12, 3, 3), {"strides": [2, 2], "pads": [1, 1, 0, 1], "pad_value": 3}),
    ((1, 36, 6, 6), (17, 36, 1, 1), {"strides": [2, 2]}),
    ((1, 8, 10, 12), (24, 8, 3, 5), {"dilations": [2, 1], "pads": [2, 2, 2, 2]}),
    ((2, 16, 40), (7, 16, 3), {"pads": [1, 1], "strides": [2], "pad_value": 100}),
    ((1, 132, 13, 13), (65, 132, 3, 3), {"pads": [1, 1, 1, 1]}),
]
KINDS = list(product((np.uint8, np.int8), repeat=2))


@pytest.mark.parametrize(("x", "w", "attrs"), GEOMETRIES, ids=str)
@pytest.mark.parametrize("tail", [False, True])
def test_hosts(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any], tail: bool) -> None:
    check(case(x, w, (np.uint8, np.int8), tail, **attrs), lower_conv)


@pytest.mark.parametrize("kinds", KINDS, ids=str)
def test_every_pair_of_byte_types(kinds: tuple[type, type]) -> None:
    for x, w, attrs in GEOMETRIES[1:4]:
        check(case(x, w, kinds, **attrs), lower_conv)


class ZeroPoints(Exact):
    """A weight with a zero point; what lies outside of the input is the zero point that the run gives."""

    def expected(self) -> dict[str, np.ndarray]:
        w = self.arrays["w"].astype(np.int64) - int(self.arrays["wz"])
        attrs = dict(self.ops[0][3]) | {"pad_value": int(self.arrays["xz"])}
        return {"c": convolve(self.arrays["x"], w, attrs).astype(np.int32)}


@pytest.mark.parametrize("kinds", KINDS, ids=str)
@pytest.mark.parametrize("zero", [-128, 37])
def test_zero_points_of_the_weight_and_of_pads(kinds: tuple[type, type], zero: int) -> None:
    for x, w, attrs in (GEOMETRIES[1], GEOMETRIES[2], GEOMETRIES[3], GEOMETRIES[6]):
        made = case(x, w, kinds, **{k: v for k, v in attrs.items() if k != "pad_value"}, zero_outside=1)
        zeros = {"xz": np.array(91, kinds[0]), "wz": np.array(zero % 256).astype(kinds[1])}
        ops = [("ConvInteger", ["x", "w", "xz", "wz"], ["c"], made.ops[0][3])]
        check(ZeroPoints("conv", ops, made.arrays | zeros, ["c"], ["w", "wz"], last=["x", "c"]), lower_conv)


@pytest.mark.parametrize(("x", "w", "attrs"), GEOMETRIES, ids=str)
def test_chips(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any]) -> None:
    check(case(x, w, (np.int8, np.int8), tail=True, **attrs), lower_conv, hosts=CHIPS)


def test_run_time_sizes() -> None:
    made = case((2, 8, 11, 9), (20, 8, 3, 3), (np.uint8, np.int8), pads=[1, 1, 1, 1], pad_value=9)
    made.symbolic = {"x": ("n", 8, "h", "w"), "c": ("n", 20, "h", "w")}
    made.dims = {"n": 2, "h": 11, "w": 9}
    check(made, lower_conv, hosts=HOSTS[-1:])


def test_what_has_no_kernel_says_why() -> None:
    with pytest.raises(NotLowerable, match="multiple of 4"):
        check(case((1, 3, 5, 5), (8, 3, 3, 3), (np.uint8, np.int8)), lower_conv)
    with pytest.raises(NotLowerable, match="signed bytes"):
        check(case((1, 8, 5, 5), (8, 8, 3, 3), (np.uint8, np.int8)), lower_conv, hosts=CHIPS)
