"""State: rows appended to a cache in place, and as many rows read as a length says; nothing depends on the capacity."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.kernels import lower_node
from codegen.targets import target
from codegen.tile.instructions import STATUS_RANGE
from codegen.tile.interpreter import TaskStatus
from graph_opt.plan.records import KernelRecord
from tests.kernels.lowered import Case
from tests.probes.probe import CHIPS, HOSTS, Sample, check, check_aarch64, from_bytes, run_interpreted, run_native

SHAPES = [  # cache, rows
    ((1, 2, 7, 5), (1, 2, 3, 5)),
    ((3, 40, 64), (3, 1, 64)),
    ((2, 3, 4099, 33), (2, 3, 2, 33)),
    ((1, 1, 2, 1), (1, 1, 2, 1)),
    ((2, 1, 9, 8200), (2, 1, 2, 8200)),
]


def _case(cache: tuple[int, ...], rows: tuple[int, ...], starts: list[int], dtype: type, count: str | int) -> Case:
    rng = np.random.default_rng(3)
    arrays = {"cache": rng.normal(size=cache).astype(dtype), "rows": rng.normal(size=rows).astype(dtype),
              "starts": np.array(starts, np.int64)}  # fmt: skip
    symbolic = {"rows": (*rows[:-2], count, rows[-1])}
    ops = [("TensorScatter", ["cache", "rows", "starts"], ["y"], {})]
    return Case("tensor_scatter", ops, arrays, ["y"], [], symbolic, dims={"n": rows[-2]})


def _lowered(case: Case, target_name: str) -> tuple[KernelRecord, dict[str, np.ndarray]]:
    """The task, and its arguments by parameter; the result already holds the cache."""
    values = {**case.arrays, "y": case.arrays["cache"].copy()}
    (record,) = lower_node(case.node({"y": values["y"]}), target(target_name))
    assert isinstance(record, KernelRecord)
    assert [(o.value, o.role) for o in record.operands if o.role != "in"] == [("y", "inout")]
    data = record.program.encode()
    params = from_bytes(data, target_name).params
    arrays = {p.name: values[str(o.value)] for p, o in zip(params, record.operands, strict=True)}
    return record, arrays


def _run(case: Case, target_name: str) -> tuple[int, np.ndarray, str]:
    """Status, the cache afterwards and the program's text."""
    record, arrays = _lowered(case, target_name)
    data = record.program.encode()
    program = from_bytes(data, target_name)
    dims = {d.name: case.dims["n"] for d in program.dims}
    shaped = {p.name: arrays[p.name].reshape([d if isinstance(d, int) else case.dims["n"] for d in p.shape])
              for p in program.params}  # fmt: skip
    run = run_interpreted if target_name in CHIPS else run_native
    status = run(data, target_name, shaped, dims)
    name = next(p.name for p, o in zip(program.params, record.operands, strict=True) if o.value == "y")
    return status, shaped[name].reshape(case.arrays["cache"].shape), record.program


def _expected(case: Case) -> np.ndarray:
    found = case.arrays["cache"].copy()
    for b, start in enumerate(case.arrays["starts"]):
        found[b, ..., start : start + case.dims["n"], :] = case.arrays["rows"][b]
    return found


def _check(target_name: str, dtype: type, shapes: list) -> None:
    for cache, rows in shapes:
        room = cache[-2] - rows[-2]
        for starts in ([0] * cache[0], [room] * cache[0], [(5 * b + 1) % (room + 1) for b in range(cache[0])]):
            for count in (rows[-2], "n"):
                case = _case(cache, rows, starts, dtype, count)
                status, got, _ = _run(case, target_name)
                assert status == 0
                np.testing.assert_array_equal(got, _expected(case))


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
def test_rows_are_appended_in_place(host: str, dtype: type) -> None:
    _check(host, dtype, SHAPES)


@pytest.mark.parametrize("chip", CHIPS)
def test_chip(chip: str) -> None:
    _check(chip, np.float16, SHAPES[:2])


@pytest.mark.parametrize("starts", [[5], [-1], [1 << 40]])
@pytest.mark.parametrize("host", HOSTS)
def test_rows_beyond_the_capacity_end_the_task_and_write_nothing(host: str, starts: list[int]) -> None:
    case = _case((1, 2, 7, 5), (1, 2, 3, 5), starts, np.float32, "n")
    status, got, _ = _run(case, host)
    assert status & 0xFF == STATUS_RANGE
    np.testing.assert_array_equal(got, case.arrays["cache"])


def test_rows_beyond_the_capacity_on_a_chip() -> None:
    with pytest.raises(TaskStatus):
        _run(_case((1, 2, 7, 5), (1, 2, 3, 5), [5], np.float16, "n"), "Ascend910B2")


def test_work_does_not_depend_on_the_capacity() -> None:
    for name in ("x86-64-v3", *CHIPS):
        works = set()
        for capacity in (64, 1 << 20):
            shape = (1, 2, capacity, 64)
            case = Case("tensor_scatter", [("TensorScatter", ["cache", "rows", "starts"], ["y"], {})],
                        {"cache": np.broadcast_to(np.float16(0), shape), "rows": np.zeros((1, 2, 1, 64), np.float16),
                         "starts": np.zeros(1, np.int64)}, ["y"], [])  # fmt: skip
            (record,) = lower_node(case.node({"y": case.arrays["cache"]}), target(name))
            works.add((record.work, record.grid))
        assert len(works) == 1


def test_aarch64() -> None:
    record, _ = _lowered(_case((1, 2, 7, 5), (1, 2, 3, 5), [0], np.float32, "n"), "aarch64")
    check_aarch64(record.program.encode())


# Reading as many rows as a length says


def _attention(capacity: int, lengths: list[int], queries: int, dtype: type, causal: bool) -> Sample:
    """Attention of the newest queries over the first rows of a cache; what lies behind them is NaN."""
    rng, batch, heads, groups, width = np.random.default_rng(7), len(lengths), 4, 2, 16
    q = rng.normal(size=(batch, heads, queries, width)).astype(dtype)
    k, v = (rng.normal(size=(batch, groups, capacity, width)).astype(dtype) for _ in range(2))
    want = np.zeros(q.shape)
    for b, length in enumerate(lengths):
        k[b, :, length:] = v[b, :, length:] = np.nan
        for h, i in np.ndindex(heads, queries):
            seen = max(0, length - queries + i + 1) if causal else length
            keys, values = (a[b, h // 2, :seen].astype(np.float64) for a in (k, v))
            weights = np.exp(keys @ q[b, h, i].astype(np.float64) / np.sqrt(width)) if seen else np.zeros(0)
            want[b, h, i] = weights @ values / weights.sum() if seen else 0
    arrays = {"q": q, "k": k, "v": v, "lengths": np.array(lengths, np.int64)}
    ops = [("Attention", ["q", "k", "v", "", "", "", "lengths"], ["y"], {"is_causal": int(causal)})]
    symbolic = {"q": (batch, heads, "s", width), "y": (batch, heads, "s", width)}
    case = Case("attention", ops, arrays, ["y"], [], symbolic, dims={"s": queries})
    tolerance = 1e-5 if dtype == np.float32 else 4e-3
    return Sample(case, {"y": want}, {"y": np.zeros(q.shape, dtype)}, tolerance, tolerance)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("target_name", [*HOSTS, *CHIPS])
def test_as_many_rows_as_the_length_are_read(target_name: str, causal: bool) -> None:
    dtype = np.float16 if target_name in CHIPS else np.float32
    lengths = ([1, 70], [70, 0], [33, 64], [5, 9])
    check([_attention(70, n, 1, dtype, causal) for n in lengths], target_name, one_program=True)
    check([_attention(70, n, 6, dtype, causal) for n in lengths], target_name)
    if target_name not in CHIPS:
        check(
            [_attention(1500, [1, 1400], 2, dtype, causal), _attention(1500, [600, 513], 70, dtype, causal)],
            target_name,
        )
