"""Convolution with bias, clip, residual and a factor per channel, channels last; borders are padded loads."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from tensor_types.dims import Dim, dim, floordiv
from tests.kernels.lowered import Case, Op
from tests.probes.probe import CHIPS, HOSTS, Sample, check, check_aarch64, records_for, sample


def exact(x: np.ndarray, w: np.ndarray, stride: int, pad: int) -> np.ndarray:
    """The convolution of [N, C, H, W] with [M, C, R, S] in float64."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = sliding_window_view(padded, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("ncyxrs,mcrs->nmyx", windows, w.astype(np.float64))


def conv(n: int, c: int, m: int, h: int, w: int, kernel: int = 3, stride: int = 1, dtype: type = np.float32,
         run_time: bool = False, direct: bool = True) -> Sample:  # fmt: skip
    """clip(conv(x) + b, -0.5, 1.5) + r, times s; with `run_time` batch, height and width are dims of the program.

    Without `direct` the family chooses: Winograd's error follows the largest result of a tile (docs/numerics.md).
    """
    rng = np.random.default_rng(n + c + m + h + w)
    pad = kernel // 2
    size = [(e + 2 * pad - kernel) // stride + 1 for e in (h, w)]
    arrays = {
        "x": rng.normal(size=(n, c, h, w)), "w": rng.normal(size=(m, c, kernel, kernel)) / kernel / np.sqrt(c),
        "b": rng.normal(size=m), "lo": np.array(-0.5), "hi": np.array(1.5), "r": rng.normal(size=(n, m, *size)),
        "s": rng.normal(size=(m, 1, 1)),
    }  # fmt: skip
    arrays = {name: np.asarray(a).astype(dtype) for name, a in arrays.items()}
    attrs: dict[str, object] = {"pads": [pad] * 4, "strides": [stride] * 2}
    ops: list[Op] = [
        ("Conv", ["x", "w", "b"], ["c"], attrs), ("Clip", ["c", "lo", "hi"], ["k"], {}),
        ("Add", ["k", "r"], ["t"], {}), ("Mul", ["t", "s"], ["y"], {}),
    ]  # fmt: skip
    symbolic: dict[str, tuple[int | str | Dim, ...]] = {}
    if run_time:
        out = [floordiv(dim(e) + (2 * pad - kernel), stride) + 1 for e in "hw"]
        symbolic = {"x": ("n", c, "h", "w"), **{v: ("n", m, *out) for v in "cktyr"}}
    case = Case("conv", ops, arrays, ["y"], ["w", "b", "lo", "hi", "s"], symbolic, ["x", "r", *"ckty"],
                {"n": n, "h": h, "w": w})  # fmt: skip
    a = {name: v.astype(np.float64) for name, v in arrays.items()}
    want = (np.clip(exact(a["x"], a["w"], stride, pad) + a["b"][:, None, None], -0.5, 1.5) + a["r"]) * a["s"]
    tolerance = 5e-3 if dtype == np.float16 else 1e-5
    given = sample(case, {"y": want}, tolerance, tolerance if direct else tolerance * float(np.abs(want).max()))
    if direct:
        attrs["direct"] = 1  # for the family alone, once onnxruntime has told the shapes
    return given


STATIC = [(1, 1, 1, 1, 1), (2, 3, 5, 7, 9), (1, 17, 33, 6, 13), (1, 16, 70, 13, 12)]
SIZES = [(1, 1), (1, 2), (2, 3), (7, 5), (13, 11), (24, 25), (25, 97)]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (1, 1)])
def test_static_sizes(host: str, kernel: int, stride: int) -> None:
    check([conv(*shape, kernel, stride) for shape in STATIC], host)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(("stride", "direct"), [(1, True), (1, False), (2, True)])
def test_run_time_sizes(host: str, stride: int, direct: bool) -> None:
    sizes = zip([1, 2, 3] * 3, SIZES, strict=False)
    samples = [conv(n, 5, 20, h, w, 3, stride, run_time=True, direct=direct) for n, (h, w) in sizes]
    check(samples, host, one_program=True)


def test_aarch64() -> None:
    for given in (conv(1, 16, 32, 14, 14), conv(1, 16, 32, 14, 14, run_time=True)):
        (record,) = records_for(given, "aarch64")
        check_aarch64(record.program.encode(), "fmla")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (1, 1)])
def test_chip(chip: str, kernel: int, stride: int) -> None:
    dtype = np.float16 if chip == "Ascend310P3" else np.float32
    shapes = [(1, 1, 1, 1, 1), (2, 3, 5, 7, 9), (1, 17, 33, 3, 5)]
    check([conv(*shape, kernel, stride, dtype) for shape in shapes], chip)
