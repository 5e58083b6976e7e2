"""Grouped products with run-time row counts against numpy in float64, on hosts and on chips by the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.kernels.grouped_matmul import grouped_matmul_program
from codegen.targets import target
from codegen.tile.instructions import STATUS_RANGE
from codegen.tile.interpreter import interpret
from codegen.tile.verifier import verify
from tensor_types.dtypes import F16, F32
from tensor_types.formats import panels
from tests.llvm.native import HOSTS, Kernel

rng = np.random.default_rng(0)
GROUPS = [[5], [0, 7, 0, 3], [1, 130, 97], [0, 0], [96, 0, 192, 1, 1]]


def problem(counts: list[int], k: int, n: int, dtype: type) -> tuple[dict[str, np.ndarray], np.ndarray]:
    m = sum(counts)
    x = rng.normal(0, 0.5, (m, k)).astype(dtype)
    w = rng.normal(0, 0.5, (len(counts), k, n)).astype(dtype)
    ends = np.cumsum(counts).astype(np.int64)
    expected = np.zeros((m, n))
    for g, (last, count) in enumerate(zip(ends, counts, strict=True)):
        expected[last - count : last] = x[last - count : last].astype(np.float64) @ w[g].astype(np.float64)
    return {"p0": x, "p1": w, "p2": ends, "p3": np.full((m, n), 77, dtype)}, expected


@pytest.mark.parametrize("counts", GROUPS, ids=str)
@pytest.mark.parametrize("k,n", [(7, 5), (40, 130)])
@pytest.mark.parametrize("host", HOSTS)
def test_hosts(counts: list[int], k: int, n: int, host: str) -> None:
    program = grouped_matmul_program(len(counts), k, n, F32, target(host))
    verify(program, target(host))
    tensors, expected = problem(counts, k, n, np.float32)
    columns = program.params[1].shape[-1]
    tensors["p1"] = panels(int(columns), 3).to_physical(tensors["p1"])  # type: ignore[arg-type]
    kernel = Kernel(program, host)
    assert kernel.run(tensors, {"d0": sum(counts)}) == 0
    np.testing.assert_allclose(tensors["p3"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ends", [[4, 3], [2, 9], [-1, 4]], ids=str)
def test_wrong_row_counts_are_reported(ends: list[int]) -> None:
    program = grouped_matmul_program(2, 8, 16, F32, target(HOSTS[0]))
    tensors, _ = problem([2, 3], 8, 16, np.float32)
    tensors["p1"] = panels(int(program.params[1].shape[-1]), 3).to_physical(tensors["p1"])  # type: ignore[arg-type]
    tensors["p2"] = np.array(ends, np.int64)
    assert Kernel(program, HOSTS[0]).run(tensors, {"d0": 5}) & 255 == STATUS_RANGE


@pytest.mark.parametrize("chip,dtype", [("Ascend910B2", F32), ("Ascend910B2", F16), ("Ascend310P3", F16)])
def test_chips(chip: str, dtype: object) -> None:
    counts = [1, 70, 0, 9]
    numpy_type = np.float32 if dtype is F32 else np.float16
    program = grouped_matmul_program(len(counts), 200, 150, dtype, target(chip))  # type: ignore[arg-type]
    verify(program, target(chip))
    tensors, expected = problem(counts, 200, 150, numpy_type)
    interpret(program, tensors, {"d0": sum(counts)})
    tolerance = 1e-5 if dtype is F32 else 5e-3
    np.testing.assert_allclose(tensors["p3"].astype(np.float64), expected, rtol=tolerance, atol=tolerance * 10)
