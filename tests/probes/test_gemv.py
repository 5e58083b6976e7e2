"""GEMV: one row against a constant matrix, and against one whose length only the run knows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.lowered import Case
from tests.probes.probe import CHIPS, HOSTS, Sample, check, check_aarch64, records_for, sample


def gemv(k: int, n: int, dtype: type = np.float32, run_time: bool = False) -> Sample:
    """y[1, n] = a[1, k] @ b[k, n]; with `run_time` b is an argument and k a dim of the program."""
    rng = np.random.default_rng(k + n)
    a = rng.normal(size=(1, k)).astype(dtype)
    b = (rng.normal(size=(k, n)) / np.sqrt(max(k, 1))).astype(dtype)
    symbolic = {"a": (1, "k"), "b": ("k", n)} if run_time else {}
    case = Case("matmul", [("MatMul", ["a", "b"], ["y"], {})], {"a": a, "b": b}, ["y"], [] if run_time else ["b"],
                symbolic, dims={"k": k})  # fmt: skip
    tolerance = 2e-3 if dtype == np.float16 else 1e-5
    return sample(case, {"y": a.astype(np.float64) @ b.astype(np.float64)}, tolerance, tolerance)


STATIC = [(1, 1), (1, 67), (67, 1), (63, 64), (64, 65), (257, 509), (1000, 127)]
LENGTHS = [0, 1, 2, 13, 127, 128, 129, 1021]


@pytest.mark.parametrize("host", HOSTS)
def test_constant_matrix(host: str) -> None:
    check([gemv(*shape) for shape in STATIC], host)


@pytest.mark.parametrize("host", HOSTS)
def test_run_time_length(host: str) -> None:
    check([gemv(k, 67, run_time=True) for k in LENGTHS], host, one_program=True)


def test_aarch64() -> None:
    for given in (gemv(64, 128), gemv(64, 128, run_time=True)):
        (record,) = records_for(given, "aarch64")
        check_aarch64(record.program.encode(), "fmla")


@pytest.mark.parametrize("chip", CHIPS)
def test_chip(chip: str) -> None:
    dtype = np.float16 if chip == "Ascend310P3" else np.float32
    check([gemv(*shape, dtype) for shape in STATIC], chip)
    check([gemv(k, 67, dtype, run_time=True) for k in (0, 1, 13, 127, 129, 600)], chip, one_program=True)
