"""Softmax over an axis whose length only the run knows, longer and shorter than a block."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.lowered import Case
from tests.probes.probe import CHIPS, HOSTS, Sample, check, check_aarch64, records_for


def softmax(rows: int, length: int, dtype: type = np.float32, run_time: bool = True) -> Sample:
    """Rows of numbers far outside the range of exp; where there is room, -inf among them and a row of one peak."""
    x = np.random.default_rng(rows + length).normal(0, 30, (rows, length)).astype(dtype)
    if rows > 1 and length > 2:
        x[0, 1:] = -np.inf
        x[1, ::2] = -np.inf
        x[-1, length // 2] = 1e4
    wide = x.astype(np.float64)
    weights = np.exp(wide - wide.max(-1, keepdims=True, initial=-np.inf)) if length else wide
    want = weights / weights.sum(-1, keepdims=True)
    symbolic = {"x": ("n", "m"), "y": ("n", "m")} if run_time else {}
    case = Case("reduction", [("Softmax", ["x"], ["y"], {"axis": -1})], {"x": x}, ["y"], [], symbolic,
                dims={"n": rows, "m": length})  # fmt: skip
    tolerance = 2e-3 if dtype == np.float16 else 1e-5
    return Sample(case, {"y": want}, {"y": want.astype(dtype)}, tolerance, tolerance if dtype == np.float16 else 1e-9)


SIZES = [(0, 5), (3, 0), (1, 1), (5, 1), (1, 2), (3, 63), (4, 64), (2, 65), (2, 4095), (2, 4096), (2, 4097), (1, 9001)]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_run_time_length(host: str, dtype: type) -> None:
    check([softmax(*size, dtype) for size in SIZES], host, one_program=True)


@pytest.mark.parametrize("host", HOSTS)
def test_static_length(host: str) -> None:
    check([softmax(rows, length, run_time=False) for rows, length in SIZES[2:10]], host)


def test_aarch64() -> None:
    (record,) = records_for(softmax(3, 65), "aarch64")
    check_aarch64(record.program.encode(), "fmla", "fcmgt", "fadd")


@pytest.mark.parametrize("chip", CHIPS)
def test_chip(chip: str) -> None:
    for dtype in (np.float32, np.float16):
        check([softmax(*size, dtype) for size in [(1, 1), (3, 63), (2, 65), (1, 4097)]], chip, one_program=True)
