"""Grouped matmul: rows sorted by group, how many a group has is read from a tensor at run time."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.kernels.grouped_matmul import grouped_matmul_program
from codegen.targets import target
from codegen.tile.instructions import STATUS_RANGE
from codegen.tile.interpreter import TaskStatus
from tensor_types.dtypes import F16, F32, DType
from tests.probes.probe import CHIPS, HOSTS, check_aarch64, run_interpreted, run_native, serialised

_GROUPS, _K, _N = 4, 40, 73
_UNWRITTEN = 77
COUNTS = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 0, 0, 1), (5, 0, 1, 97), (95, 96, 97, 1), (0, 193, 0, 2), (13, 7, 31, 64)]


def program(target_name: str, dtype: DType = F32, shape: tuple[int, int, int] = (_GROUPS, _K, _N)) -> bytes:
    return serialised(grouped_matmul_program(*shape, dtype, target(target_name)), target_name)


def panels(w: np.ndarray, host: str) -> np.ndarray:
    """The weights [groups, k, n] in the form that the program of a host class declares, columns padded with zeros."""
    (shape,) = [p.shape for p in grouped_matmul_program(*w.shape, F32, target(host)).params if p.name == "p1"]
    _, blocks, k, width = (int(d) for d in shape)
    padded = np.pad(w, ((0, 0), (0, 0), (0, blocks * width - w.shape[2])))
    return np.ascontiguousarray(padded.reshape(w.shape[0], k, blocks, width).swapaxes(1, 2))


def run(target_name: str, counts: tuple[int, ...], spare: int = 0, dtype: DType = F32, n: int = _N) -> None:
    """Runs groups of `counts` rows, `spare` rows behind them that stay unwritten, and compares with float64."""
    rng = np.random.default_rng(sum(counts))
    m, ends = sum(counts) + spare, np.cumsum(counts)
    x = rng.normal(size=(m, _K)).astype(dtype.numpy)
    w = (rng.normal(size=(len(counts), _K, n)) / np.sqrt(_K)).astype(dtype.numpy)
    chip = target_name in CHIPS
    arrays = {"p0": x, "p1": w if chip else panels(w, target_name), "p2": ends.astype(np.int64),
              "p3": np.full((m, n), _UNWRITTEN).astype(dtype.numpy)}  # fmt: skip
    data = program(target_name, dtype, (len(counts), _K, n))
    assert (run_interpreted if chip else run_native)(data, target_name, arrays, {"d0": m}) == 0
    want = np.full((m, n), float(_UNWRITTEN))
    for g, (first, last) in enumerate(zip([0, *ends], ends, strict=False)):
        want[first:last] = x[first:last].astype(np.float64) @ w[g].astype(np.float64)
    tolerance = 2e-3 if dtype == F16 else 1e-5
    np.testing.assert_allclose(arrays["p3"].astype(np.float64), want, tolerance, tolerance, err_msg=str(counts))


@pytest.mark.parametrize("host", HOSTS)
def test_row_counts(host: str) -> None:
    for counts in COUNTS:
        run(host, counts, spare=sum(counts) % 3)
    for n in (1, 65):
        run(host, (3, 0, 14), n=n)


def refused(ends: list[int]) -> dict[str, np.ndarray]:
    return {"p0": np.ones((9, _K), np.float32), "p1": np.ones((_GROUPS, _K, _N), np.float32),
            "p2": np.array(ends, np.int64), "p3": np.zeros((9, _N), np.float32)}  # fmt: skip


# The value that is out of range is the index of the status.
WRONG = [([10, 10, 10, 10], 10), ([3, 2, 9, 9], 2), ([3, 4, 9, 1 << 40], 1 << 40)]


@pytest.mark.parametrize(("ends", "value"), WRONG)
@pytest.mark.parametrize("host", HOSTS)
def test_wrong_counts_end_the_task(host: str, ends: list[int], value: int) -> None:
    arrays = refused(ends)
    arrays["p1"] = panels(arrays["p1"], host)
    assert run_native(program(host), host, arrays, {"d0": 9}) == STATUS_RANGE | value << 8


def test_aarch64() -> None:
    check_aarch64(program("aarch64"), "fmla")


@pytest.mark.parametrize("chip", CHIPS)
def test_chip(chip: str) -> None:
    dtype = F16 if chip == "Ascend310P3" else F32
    for counts in [(0, 0, 0, 0), (1, 0, 0, 0), (5, 0, 1, 66), (63, 64, 65, 1)]:
        run(chip, counts, spare=1, dtype=dtype)
    run(chip, (3, 0, 14), n=130, dtype=dtype)


@pytest.mark.parametrize(("ends", "value"), WRONG)
def test_wrong_counts_end_the_task_on_a_chip(ends: list[int], value: int) -> None:
    with pytest.raises(TaskStatus) as ended:
        run_interpreted(program("Ascend910B2"), "Ascend910B2", refused(ends), {"d0": 9})
    assert (ended.value.code, ended.value.index) == (STATUS_RANGE, value)
