"""Gather, scatter, running sums, and statuses."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.tile.build import ProgramBuilder
from codegen.tile.ir import View, axis
from tensor_types.dtypes import BF16, DTYPES, F16, F32, I8, I32, I64, DType
from tests.llvm.checked import compare

rng = np.random.default_rng(0)


def rows_program(dtype: DType, index: DType, wrap: int, columns: int = 37) -> ProgramBuilder:
    """y[i, :] = x[idx[i], :]"""
    b = ProgramBuilder("rows")
    n = b.dim("n")
    x, idx, y = b.param("x", dtype, (9, columns)), b.param("idx", index, (n,)), b.param("y", dtype, (n, columns), "out")
    b.gather(
        y.whole(),
        x.view(axis(0), axis(1), shape=(9, columns)),
        idx.view(axis(0), shape=(n, columns)),
        axis=0,
        wrap=wrap,
    )
    return b


@pytest.mark.parametrize("dtype", [F32, F16, I8, I64], ids=str)
@pytest.mark.parametrize("index", [I32, I64, DTYPES["u8"]], ids=str)
def test_rows(dtype: DType, index: DType) -> None:
    x = rng.integers(0, 50, (9, 37)).astype(dtype.numpy)
    for wrap in (0, 1):
        for values in ([], [0, 8, 3, 3], [1, -2, 9], [-10, 2], [8, 200]):
            with np.errstate(all="ignore"):
                idx = np.array(values, np.int64).astype(index.numpy)
            compare(rows_program(dtype, index, wrap).finish(), {"x": x, "idx": idx}, {"n": len(values)})


@pytest.mark.parametrize("where", [0, 1, 2])
def test_elements_along_each_axis(where: int) -> None:
    shape, source = [4, 5, 6], [4, 5, 6]
    source[where] = 11
    b = ProgramBuilder("elements")
    x, idx = b.param("x", F32, source), b.param("idx", I64, shape)
    y = b.param("y", F32, shape, "out")
    b.gather(y.whole(), x.view(axis(0), axis(1), axis(2), shape=source), idx.whole(), axis=where, wrap=1)
    tensors = {"x": rng.normal(size=source).astype(np.float32), "idx": rng.integers(-11, 11, shape)}
    compare(b.finish(), tensors)
    tensors["idx"][2, 3, 1] = 11
    tensors["idx"][3, 0, 0] = -12
    compare(b.finish(), tensors)


@pytest.mark.parametrize("reduce", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", [F32, BF16, I32], ids=str)
def test_scatter(dtype: DType, reduce: str) -> None:
    b = ProgramBuilder("scatter")
    src, idx = b.param("src", dtype, (8, 21)), b.param("idx", I64, (8,))
    y = b.param("y", dtype, (5, 21), "inout")
    b.scatter(
        y.view(axis(0), axis(1), shape=(5, 21)),
        src.whole(),
        idx.view(axis(0), shape=(8, 21)),
        axis=0,
        reduce=reduce,
        wrap=1,
    )
    tensors = {"src": rng.integers(-3, 4, (8, 21)).astype(dtype.numpy), "idx": np.array([0, 4, 1, -1, 1, 1, 0, 2])}
    tensors["y"] = rng.integers(-3, 4, (5, 21)).astype(dtype.numpy)
    compare(b.finish(), tensors)
    tensors["idx"][5] = 5
    compare(b.finish(), tensors)


@pytest.mark.parametrize("dtype", [F32, F16, I32, I8], ids=str)
@pytest.mark.parametrize("where", [0, 1])
def test_running_sums(dtype: DType, where: int) -> None:
    for shape in ((1, 1), (7, 33), (33, 7)):
        for attrs in ({}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}):
            b = ProgramBuilder("scan")
            x, y = b.param("x", dtype, shape), b.param("y", dtype, shape, "out")
            t = b.tile("t", dtype, shape)
            b.cumsum(t, x.whole(), axis=where, **attrs)
            b.store(y, t)
            compare(b.finish(), {"x": rng.integers(-5, 6, shape).astype(dtype.numpy)})


def test_a_length_read_from_a_tensor() -> None:
    b = ProgramBuilder("lengths")
    x, count, y = b.param("x", F32, (4, 40)), b.param("count", I32, (4,)), b.param("y", F32, (4,), "out")
    t, s = b.tile("t", F32, (40,)), b.tile("s", F32, (1,))
    row = b.grid("row", 4)
    n = b.read("n", count.view(row, shape=()), 0, 40)
    b.load(t.window((0,), (n,)), x.view(row, axis(0), shape=(n,)))
    b.rowsum(View("s", (0,), (n,)), t.window((0,), (n,)), axes=(0,))
    with b.when(n, "<", 5):
        b.mul(s, s, 10.0)
    with b.otherwise():
        b.mul(s, s, -1.0)
    b.store(y.view(row + axis(0), shape=(1,)), s)
    x_values = rng.integers(-9, 9, (4, 40)).astype(np.float32)
    compare(b.finish(), {"x": x_values, "count": np.array([0, 3, 40, 17], np.int32)})
    compare(b.finish(), {"x": x_values, "count": np.array([0, 41, -1, 17], np.int32)})
