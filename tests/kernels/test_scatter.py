"""Scatters against onnxruntime: whole rows and elements, every combination, repeated and negative indices, no updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from codegen.kernels.operands import NotLowerable
from codegen.kernels.scatter import lower_scatter
from codegen.targets import target
from tests.kernels.lowered import CHIPS, HOSTS, Case, aligned, check, execute

rng = np.random.default_rng(0)
REDUCTIONS = ["none", "add", "mul", "max", "min"]


def rows(shape: Sequence[int], count: int, dtype: Any = np.float32, repeat: bool = True) -> dict[str, np.ndarray]:
    """Data, `count` row numbers, some negative, and updates."""
    size = shape[0]
    places = rng.integers(-size, size, (count, 1)) if repeat else rng.permutation(size)[:count, None] - size
    values = [rng.integers(-4, 5, s).astype(dtype) for s in (shape, (count, *shape[1:]))]
    return {"x": values[0], "i": places.astype(np.int64), "u": values[1]}


def case(op: str, arrays: Mapping[str, np.ndarray], symbolic: Any = None, dims: Any = None, **attrs: Any) -> Case:
    return Case("scatter", [(op, ["x", "i", "u"], ["y"], attrs)], arrays, ["y"], (), symbolic or {}, (), dims or {})


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(1,), (7,), (5, 3), (67, 1), (4, 255), (3, 257), (130, 2, 17)], ids=str)
def test_rows(shape: tuple[int, ...], reduction: str) -> None:
    for count in (1, 4, 97):
        repeat = reduction != "none"
        count = count if repeat else min(count, shape[0])
        found = case("ScatterND", rows(shape, count, repeat=repeat), reduction=reduction)
        check(found, lower_scatter)
        check(found, lower_scatter, hosts=CHIPS)


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_run_time_extents(reduction: str) -> None:
    """Any number of rows and updates, none included; two threads may share the columns."""
    symbolic = {"x": ("n", "w"), "i": ("m", 1), "u": ("m", "w"), "y": ("n", "w")}
    for n, m, w in ((1, 1, 1), (67, 13, 300), (5, 0, 256), (40, 40, 257)):
        arrays = rows((n, w), m, repeat=reduction == "add")
        check(case("ScatterND", arrays, symbolic, {"n": n, "m": m, "w": w}, reduction=reduction), lower_scatter)
        if m:
            found = case("ScatterND", arrays, symbolic, {"n": n, "m": m, "w": w}, reduction=reduction)
            check(found, lower_scatter, hosts=CHIPS)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float16, np.bool_])
def test_dtypes(dtype: Any) -> None:
    check(case("ScatterND", rows((6, 9), 4, dtype, repeat=False)), lower_scatter)
    if dtype in (np.int64, np.int32):
        check(case("ScatterND", rows((6, 9), 20, dtype), reduction="add"), lower_scatter)


@pytest.mark.parametrize("where", [0, 1, 2, -1])
def test_elements(where: int) -> None:
    shape = [4, 5, 6]
    x = rng.integers(-4, 5, shape).astype(np.float32)
    for count in (1, 3, 70):
        wanted = [count if k == where % 3 else d for k, d in enumerate(shape)]
        u = rng.integers(-4, 5, wanted).astype(np.float32)
        places = rng.integers(-shape[where], shape[where], wanted)
        found = case("ScatterElements", {"x": x, "i": places, "u": u}, axis=where, reduction="add")
        check(found, lower_scatter)
        check(found, lower_scatter, hosts=CHIPS)
    places = np.argsort(rng.normal(size=shape), axis=where)  # each position once
    check(case("ScatterElements", {"x": x, "i": places, "u": -x}, axis=where), lower_scatter)


@pytest.mark.parametrize("bad", [5, -6])
def test_an_index_out_of_range_ends_the_task(bad: int) -> None:
    arrays = rows((5, 8), 4)
    found = case("ScatterND", arrays, reduction="add")
    node = found.node(found.expected())
    for host in HOSTS:
        records = lower_scatter(node, target(host))
        places = arrays["i"].copy()
        places[2] = bad
        values = {k: aligned(v) for k, v in {**arrays, "i": places, "y": np.zeros((5, 8), np.float32)}.items()}
        with pytest.raises(RuntimeError, match="status 1"):
            execute(records, values, {}, host)


def test_what_has_no_kernel() -> None:
    pairs = {"x": np.zeros((3, 4), np.float32), "i": np.zeros((2, 2), np.int64), "u": np.zeros(2, np.float32)}
    corner = {"x": np.zeros((3, 4), np.float32), "i": np.zeros((2, 2), np.int64), "u": np.zeros((2, 2), np.float32)}
    for op, arrays in (("ScatterND", pairs), ("ScatterElements", corner)):
        found = case(op, arrays)
        with pytest.raises(NotLowerable):
            lower_scatter(found.node(found.expected()), target("x86-64-v3"))
