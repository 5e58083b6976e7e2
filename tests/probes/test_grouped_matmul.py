"""Grouped matmul: rows sorted by group, how many a group has is read from a tensor at run time."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.tile.instructions import STATUS_RANGE
from codegen.tile.interpreter import TaskStatus
from tensor_types.dims import evaluate
from tests.kernels.lowered import Case, packed
from tests.probes.probe import (
    CHIPS,
    HOSTS,
    Sample,
    check,
    check_aarch64,
    from_bytes,
    records_for,
    run_interpreted,
    run_native,
)

_K, _N = 40, 73
_UNWRITTEN = 77
COUNTS = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 0, 0, 1), (5, 0, 1, 97), (95, 96, 97, 1), (0, 193, 0, 2), (13, 7, 31, 64)]


def grouped(counts: tuple[int, ...], spare: int = 0, dtype: type = np.float32, n: int = _N) -> Sample:
    """Groups of `counts` rows, `spare` rows behind them that stay unwritten, a weight of each row and a bias after."""
    rng = np.random.default_rng(sum(counts))
    m, offsets = sum(counts) + spare, np.cumsum([0, *counts])
    arrays = {"x": rng.normal(size=(m, _K)).astype(dtype),
              "w": (rng.normal(size=(len(counts), _K, n)) / np.sqrt(_K)).astype(dtype),
              "offsets": offsets.astype(np.int64),
              "weight": rng.normal(size=(m, 1)).astype(dtype), "bias": rng.normal(size=n).astype(dtype)}  # fmt: skip
    wide = {k: v.astype(np.float64) for k, v in arrays.items()}
    want = np.full((m, n), float(_UNWRITTEN))
    for g, (first, last) in enumerate(zip(offsets, offsets[1:], strict=False)):
        product = wide["x"][first:last] @ wide["w"][g]
        want[first:last] = product * wide["weight"][first:last] + wide["bias"]
    ops = [("GroupedMatMul", ["x", "w", "offsets"], ["t"], {}), ("Mul", ["t", "weight"], ["s"], {}),
           ("Add", ["bias", "s"], ["y"], {})]  # fmt: skip
    symbolic = {"x": ("m", _K), "weight": ("m", 1), **dict.fromkeys(("t", "s", "y"), ("m", n))}
    case = Case("grouped_matmul", ops, arrays, ["y"], ["w", "bias"], symbolic, dims={"m": m})
    results = dict.fromkeys(("t", "s", "y"), np.zeros((m, n), dtype))
    tolerance = 4e-3 if dtype == np.float16 else 1e-5
    return Sample(case, {"y": want}, results, tolerance, tolerance)


@pytest.mark.parametrize("host", HOSTS)
def test_row_counts(host: str) -> None:
    check([grouped(counts, spare=sum(counts) % 3) for counts in COUNTS], host, one_program=True)
    check([grouped((3, 0, 14), n=n) for n in (1, 65)], host)


# The value that is out of range is the index of the status.
WRONG = [([10, 10, 10, 10], 10), ([3, 2, 9, 9], 2), ([3, 4, 9, 1 << 40], 1 << 40)]


def refused(ends: list[int], target_name: str) -> tuple[bytes, dict[str, np.ndarray]]:
    """The program of four groups, and its arguments with group ends that do not fit nine rows."""
    given = grouped((3, 2, 4, 0))
    (record,) = records_for(given, target_name)
    values = {**given.case.arrays, "y": given.results["y"].copy(), "offsets": np.array([0, *ends], np.int64)}
    data, arrays = record.program.encode(), {}
    for param, operand in zip(from_bytes(data, target_name).params, record.operands, strict=True):
        if operand.value is not None:  # the interpreter has its own scratch
            shape = tuple(evaluate(d, {"d0": 9}) for d in param.shape)
            arrays[param.name] = np.array(packed(operand, values[operand.value])).reshape(shape)
    return data, arrays


@pytest.mark.parametrize(("ends", "value"), WRONG)
@pytest.mark.parametrize("host", HOSTS)
def test_wrong_counts_end_the_task(host: str, ends: list[int], value: int) -> None:
    data, arrays = refused(ends, host)
    assert run_native(data, host, arrays, {"d0": 9}) == STATUS_RANGE | value << 8


def test_aarch64() -> None:
    (record,) = records_for(grouped((3, 0, 14)), "aarch64")
    check_aarch64(record.program.encode(), "fmla")


@pytest.mark.parametrize("chip", CHIPS)
def test_chip(chip: str) -> None:
    dtype = np.float16 if chip == "Ascend310P3" else np.float32
    counts = [(0, 0, 0, 0), (1, 0, 0, 0), (5, 0, 1, 66), (63, 64, 65, 1)]
    check([grouped(c, spare=1, dtype=dtype) for c in counts], chip, one_program=True)
    check([grouped((3, 0, 14), dtype=dtype, n=130)], chip)


@pytest.mark.parametrize(("ends", "value"), WRONG)
def test_wrong_counts_end_the_task_on_a_chip(ends: list[int], value: int) -> None:
    data, arrays = refused(ends, "Ascend910B2")
    with pytest.raises(TaskStatus) as ended:
        run_interpreted(data, "Ascend910B2", arrays, {"d0": 9})
    assert (ended.value.code, ended.value.index) == (STATUS_RANGE, value)
