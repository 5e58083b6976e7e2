"""LSTM: the cell over time, with initial states, run-time steps and batch."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.lowered import Case
from tests.probes.probe import CHIPS, HOSTS, Sample, check, check_aarch64, records_for


def exact(a: dict[str, np.ndarray], hidden: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The equations of ONNX LSTM, one direction, in float64."""
    a = {name: v.astype(np.float64) for name, v in a.items()}
    h, c = a["h0"][0], a["c0"][0]
    bias = a["bias"][0, : 4 * hidden] + a["bias"][0, 4 * hidden :]
    steps = np.zeros((a["x"].shape[0], 1, *h.shape))
    for t, x in enumerate(a["x"]):
        i, o, f, g = np.split(x @ a["w"][0].T + h @ a["r"][0].T + bias, 4, axis=1)
        i, o, f = (1 / (1 + np.exp(-gate)) for gate in (i, o, f))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        steps[t, 0] = h
    return steps, h[None], c[None]


def lstm(t: int, b: int, i: int, h: int, dtype: type = np.float32, run_time: bool = False) -> Sample:
    """A forward layer on [t, b, i]; with `run_time` t and b are dims of the program."""
    rng = np.random.default_rng(t + b + i + h)
    shapes = {"x": (t, b, i), "w": (1, 4 * h, i), "r": (1, 4 * h, h), "bias": (1, 8 * h), "h0": (1, b, h),
              "c0": (1, b, h)}  # fmt: skip
    arrays = {name: rng.normal(0, 0.5, shape).astype(dtype) for name, shape in shapes.items()}
    want = dict(zip(("y", "yh", "yc"), exact(arrays, h), strict=True))
    symbolic = {"x": ("t", "b", i), "y": ("t", 1, "b", h), **{name: (1, "b", h) for name in ("h0", "c0", "yh", "yc")}}
    op = ("LSTM", ["x", "w", "r", "bias", "", "h0", "c0"], list(want), {"hidden_size": h, "direction": "forward"})
    case = Case("lstm", [op], arrays, list(want), ["w", "r", "bias"], symbolic if run_time else {},
                dims={"t": t, "b": b})  # fmt: skip
    tolerance = 5e-3 if dtype == np.float16 else 1e-5
    return Sample(case, want, {name: v.astype(dtype) for name, v in want.items()}, tolerance, tolerance)


STATIC = [(1, 1, 1, 1), (33, 3, 7, 16), (4, 25, 9, 33)]
SIZES = [(0, 3), (1, 1), (2, 7), (31, 8), (32, 9), (33, 1), (7, 17)]


@pytest.mark.parametrize("host", HOSTS)
def test_static_sizes(host: str) -> None:
    check([lstm(*shape) for shape in STATIC], host)


@pytest.mark.parametrize("host", HOSTS)
def test_run_time_sizes(host: str) -> None:
    check([lstm(t, b, 10, 17, run_time=True) for t, b in SIZES], host, one_program=True)


def test_aarch64() -> None:
    for given in (lstm(4, 1, 16, 32), lstm(4, 1, 16, 32, run_time=True)):
        (record,) = records_for(given, "aarch64")
        check_aarch64(record.program.encode(), "fmla")


@pytest.mark.parametrize("chip", CHIPS)
def test_chip(chip: str) -> None:
    dtype = np.float16 if chip == "Ascend310P3" else np.float32
    check([lstm(*shape, dtype) for shape in [(1, 1, 1, 1), (5, 1, 12, 20), (3, 3, 7, 16)]], chip)
    check([lstm(t, b, 10, 17, dtype, run_time=True) for t, b in [(1, 1), (3, 7), (5, 9)]], chip, one_program=True)
