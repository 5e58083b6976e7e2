"""Gather of rows: indices may be negative, and one out of range ends the task with its position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from codegen.kernels import lower_node
from codegen.targets import target
from codegen.tile.instructions import STATUS_INDEX
from codegen.tile.interpreter import TaskStatus
from graph_opt.plan.records import KernelRecord
from tensor_types.dims import evaluate
from tests.kernels.lowered import Case
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
)  # fmt: skip

_ROWS, _WIDTH = 30, 48


def gather(indices: np.ndarray, width: int = _WIDTH, dtype: type = np.float32, run_time: bool = False) -> Sample:
    """y[i] = table[indices[i]] with rows of `width` numbers; with `run_time` the count of indices is a dim."""
    table = np.random.default_rng(width).normal(size=(_ROWS, width)).astype(dtype)
    symbolic = {"i": ("m",), "y": ("m", width)} if run_time else {}
    case = Case("movement", [("Gather", ["x", "i"], ["y"], {"axis": 0})], {"x": table, "i": indices}, ["y"], ["x"],
                symbolic, dims={"m": len(indices)})  # fmt: skip
    want = table[np.where((indices < -_ROWS) | (indices >= _ROWS), 0, indices)]
    return Sample(case, {"y": want.astype(np.float64)}, {"y": want})


def indices(count: int, dtype: type = np.int64) -> np.ndarray:
    """Indices in range of both signs, both ends among them."""
    found = np.random.default_rng(count).integers(-_ROWS, _ROWS, count)
    found[:2] = [-_ROWS, _ROWS - 1][:count]
    return found.astype(dtype)


COUNTS = [0, 1, 2, 7, 169, 170, 171, 341, 509]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_counts(host: str, index: type) -> None:
    check([gather(indices(count, index)) for count in COUNTS[1:]], host)
    check([gather(indices(count, index), run_time=True) for count in COUNTS], host, one_program=True)


@pytest.mark.parametrize("host", HOSTS)
def test_widths_and_dtypes(host: str) -> None:
    for width in (1, 15, 16, 17, 63, 65):
        for dtype in (np.float32, np.float16, np.int8, np.int64):
            check([gather(indices(13), width, dtype)], host)


def ended(given: Sample, target_name: str) -> tuple[int, int]:
    """Runs a gather that must not end well; (code, index) of its status."""
    (record,) = lower_node(given.case.node(given.results), target(target_name))
    assert isinstance(record, KernelRecord), f"no kernel for {target_name}"
    data = record.program.encode()
    program = from_bytes(data, target_name)
    dims = {d.name: evaluate(v, given.case.dims) for d, v in zip(program.dims, record.dims, strict=True)}
    values = {**given.case.arrays, "y": np.zeros_like(given.results["y"])}
    arrays = {}
    for param, operand in zip(program.params, record.operands, strict=True):
        assert operand.value is not None
        arrays[param.name] = values[operand.value].reshape([evaluate(d, dims) for d in param.shape])
    if target_name not in CHIPS:
        status = run_native(data, target_name, arrays, dims)
        assert status, "an index out of range went unnoticed"
        return status & 255, status >> 8
    with pytest.raises(TaskStatus) as stop:
        run_interpreted(data, target_name, arrays, dims)
    return stop.value.code, stop.value.index


# Position of the wrong index, and its value; the block of the family holds 170 rows of 48 numbers.
WRONG: Sequence[tuple[int, int]] = [(0, _ROWS), (5, -_ROWS - 1), (12, 1 << 30), (3, -(1 << 31))]


@pytest.mark.parametrize(("place", "value"), WRONG)
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("host", HOSTS)
def test_out_of_range(host: str, index: type, place: int, value: int) -> None:
    """The position counts elements of the index tensor."""
    wrong = indices(13, index)
    wrong[place] = value
    for run_time in (False, True):
        assert ended(gather(wrong, run_time=run_time), host) == (STATUS_INDEX, place)


@pytest.mark.parametrize("host", HOSTS)
def test_the_first_of_several(host: str) -> None:
    wrong = indices(13)
    wrong[[11, 4]] = 99
    assert ended(gather(wrong), host) == (STATUS_INDEX, 4)


def test_aarch64() -> None:
    (record,) = records_for(gather(indices(13), run_time=True), "aarch64")
    check_aarch64(record.program.encode(), "cmp", "b.hs")


@pytest.mark.parametrize("chip", CHIPS)
def test_chip(chip: str) -> None:
    check([gather(indices(count, np.int32)) for count in (1, 2, 7, 171)], chip)
    check([gather(indices(count, np.int32), run_time=True) for count in (0, 1, 169, 341)], chip, one_program=True)


@pytest.mark.parametrize(("place", "value"), WRONG)
@pytest.mark.parametrize("chip", CHIPS)
def test_out_of_range_on_a_chip(chip: str, place: int, value: int) -> None:
    wrong = indices(13, np.int32)
    wrong[place] = value
    assert ended(gather(wrong), chip) == (STATUS_INDEX, place)
