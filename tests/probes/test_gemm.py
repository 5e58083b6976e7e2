"""GEMM: y[m, n] = a[m, k] @ b[k, n] with a constant b, static sizes and run-time rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.lowered import Case
from tests.probes.probe import CHIPS, HOSTS, Sample, check, check_aarch64, records_for, sample


def gemm(m: int, k: int, n: int, dtype: type = np.float32, run_time: bool = False) -> Sample:
    """A product of normal numbers; with `run_time` m is a dim of the program."""
    rng = np.random.default_rng(m + k + n)
    a, b = rng.normal(size=(m, k)).astype(dtype), (rng.normal(size=(k, n)) / np.sqrt(k)).astype(dtype)
    symbolic = {"a": ("m", k), "y": ("m", n)} if run_time else {}
    case = Case("matmul", [("MatMul", ["a", "b"], ["y"], {})], {"a": a, "b": b}, ["y"], ["b"], symbolic, dims={"m": m})
    tolerance = 2e-3 if dtype == np.float16 else 1e-5
    return sample(case, {"y": a.astype(np.float64) @ b.astype(np.float64)}, tolerance, tolerance)


STATIC = [(1, 1, 1), (7, 13, 17), (23, 64, 31), (97, 127, 65), (131, 33, 130)]
ROWS = [0, 1, 2, 11, 12, 13, 95, 96, 97, 193]


@pytest.mark.parametrize("host", HOSTS)
def test_static_sizes(host: str) -> None:
    check([gemm(*shape) for shape in STATIC], host)


@pytest.mark.parametrize("host", HOSTS)
def test_run_time_rows(host: str) -> None:
    check([gemm(m, 40, 73, run_time=True) for m in ROWS], host, one_program=True)


def test_aarch64() -> None:
    for given in (gemm(97, 64, 64), gemm(97, 64, 64, run_time=True)):
        (record,) = records_for(given, "aarch64")
        check_aarch64(record.program.encode(), "fmla")


@pytest.mark.parametrize("chip", CHIPS)
def test_chip(chip: str) -> None:
    dtype = np.float16 if chip == "Ascend310P3" else np.float32
    check([gemm(*shape, dtype) for shape in [(1, 1, 1), (7, 13, 17), (129, 31, 127), (130, 300, 129)]], chip)
    check([gemm(m, 40, 73, dtype, run_time=True) for m in (0, 1, 17, 127, 128, 129)], chip, one_program=True)
