"""Reductions over every choice of axes, fused with what surrounds them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from codegen.llvm.lower import lower, scratch_bytes
from codegen.tile.build import ProgramBuilder
from codegen.tile.ir import View, axis
from tensor_types.dims import ceildiv, dmin
from tensor_types.dtypes import BF16, F16, F32, I8, I32, I64, DType
from tests.llvm.checked import compare

OPS = ["TROWSUM", "TROWMAX", "TROWMIN", "TROWPROD"]


def data(dtype: DType, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        return rng.uniform(0.5, 1.5, shape).astype(dtype.numpy)
    return rng.integers(-3, 4, shape).astype(dtype.numpy)


def reduction(dtype: DType, shape: tuple[int, ...], axes: tuple[int, ...], **attrs: object) -> ProgramBuilder:
    """All reductions of x over `axes`."""
    b = ProgramBuilder("reduce")
    x, t = b.param("x", dtype, shape), b.tile("t", dtype, shape)
    b.load(t, x)
    kept = [k for k in range(len(shape)) if k not in axes]
    out_shape = tuple(shape[k] for k in kept) or (1,)
    index = tuple(axis(k) for k in kept) or (0,)
    for op in OPS:
        r, y = b.tile(f"r{op.lower()}", dtype, out_shape), b.param(f"y{op.lower()}", dtype, out_shape, "out")
        b.instr(op, View(r.name, index, shape), t, axes=axes, **attrs)
        b.store(y, r)
    return b


@pytest.mark.parametrize("dtype", [F32, F16, BF16, I32, I8], ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (3, 16), (17, 33), (2, 3, 65), (4, 1, 9)], ids=str)
def test_every_choice_of_axes(shape: tuple[int, ...], dtype: DType) -> None:
    rank = len(shape)
    for count in range(1, rank + 1):
        for axes in combinations(range(rank), count):
            tolerance = 1e-5 if dtype == F32 else 2e-3 if dtype == F16 else 1e-2
            compare(reduction(dtype, shape, axes).finish(), {"x": data(dtype, shape)}, rtol=tolerance)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("where", [0, 1])
@pytest.mark.parametrize("shape", [(7, 40), (40, 7), (1, 5), (5, 1), (3, 130)], ids=str)
def test_positions_of_extremes(shape: tuple[int, int], where: int, last: int) -> None:
    for dtype in (F32, I32, I8):
        b = ProgramBuilder("arg")
        x, t = b.param("x", dtype, shape), b.tile("t", dtype, shape)
        b.load(t, x)
        out = (shape[1 - where],)
        for op in ("TROWARGMAX", "TROWARGMIN"):
            for kind in (I64, I32):
                r, y = b.tile(f"r{op}{kind}", kind, out), b.param(f"y{op}{kind}", kind, out, "out")
                b.instr(op, View(r.name, (axis(1 - where),), shape), t, axes=(where,), last=last)
                b.store(y, r)
        values = np.random.default_rng(1).integers(-2, 3, shape).astype(dtype.numpy)  # many ties
        if dtype == F32:
            values.flat[::5] = np.nan
            values[:, :1] = np.nan
        compare(b.finish(), {"x": values})


def test_nan_is_skipped_or_wins() -> None:
    shape = (6, 21)
    values = data(F32, shape)
    values[0] = np.nan
    values[1, 3] = np.nan
    values[2, :] = -np.inf
    values[3, 5] = np.inf
    for attrs in ({}, {"nan": 1}):
        b = ProgramBuilder("nan")
        x, t = b.param("x", F32, shape), b.tile("t", F32, shape)
        b.load(t, x)
        for op in ("TROWMAX", "TROWMIN"):
            for axes in ((0,), (1,)):
                out = (shape[1 - axes[0]],)
                name = f"{op.lower()}{axes[0]}"
                r, y = b.tile(f"r{name}", F32, out), b.param(f"y{name}", F32, out, "out")
                b.instr(op, View(r.name, (axis(1 - axes[0]),), shape), t, axes=axes, **attrs)
                b.store(y, r)
        compare(b.finish(), {"x": values})


def test_accumulates_over_a_loop() -> None:
    b = ProgramBuilder("acc")
    m = b.dim("m")
    x, y = b.param("x", F32, (m, 33)), b.param("y", F32, (33,), "out")
    t, s, mx = b.tile("t", F32, (8, 33)), b.tile("s", F32, (33,)), b.tile("mx", F32, (33,))
    z = b.param("z", F32, (33,), "out")
    b.expands(s, 0.0)
    b.expands(mx, float("-inf"))
    with b.loop("i", ceildiv(m, 8)) as i:
        rows = dmin(8, m - 8 * i)
        block = t.window((0, 0), (rows, 33))
        b.load(block, x.window((8 * i, 0), (rows, 33)))
        b.rowsum(View("s", (axis(1),), (rows, 33)), block, axes=(0,), acc=1)
        b.rowmax(View("mx", (axis(1),), (rows, 33)), block, axes=(0,), acc=1)
    b.store(y, s)
    b.store(z, mx)
    for rows in (0, 1, 8, 21):
        compare(b.finish(), {"x": data(F32, (rows, 33))}, {"m": rows}, rtol=1e-5)


def softmax(rows: int, columns: int, block: int = 64) -> ProgramBuilder:
    b = ProgramBuilder("softmax")
    x, y = b.param("x", F32, (rows, columns)), b.param("y", F32, (rows, columns), "out")
    t, e = b.tile("t", F32, (block, columns)), b.tile("e", F32, (block, columns))
    _mx, s = b.tile("mx", F32, (block,)), b.tile("s", F32, (block,))
    g = b.grid("g", ceildiv(rows, block))
    r = dmin(block, rows - block * g) if rows % block else block
    at, row, column = (0, 0), (axis(0),), (r, columns)
    b.load(t.window(at, column), x.window((block * g, 0), column))
    b.rowmax(View("mx", row, column), t.window(at, column), axes=(1,))
    b.sub(e.window(at, column), t.window(at, column), View("mx", row, column))
    b.exp(e.window(at, column), e.window(at, column))
    b.rowsum(View("s", row, column), e.window(at, column), axes=(1,))
    b.recip(s.window((0,), (r,)), s.window((0,), (r,)))
    b.mul(e.window(at, column), e.window(at, column), View("s", row, column))
    b.store(y.window((block * g, 0), column), e.window(at, column))
    return b


@pytest.mark.parametrize(
    "shape", [(1, 1), (3, 1), (1, 50), (77, 13), (64, 16), (66, 128), (5, 1000), (130, 7)], ids=str
)
def test_softmax(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).normal(0, 3, shape).astype(np.float32)
    compare(softmax(*shape).finish(), {"x": x}, rtol=2e-5, atol=1e-7)


def test_softmax_is_one_nest_with_three_inner_loops() -> None:
    program = softmax(128, 1024).finish()
    text = lower(program, "x86-64-v4")
    assert text.count("phi i64") == 5  # grid, rows, maximum, sum of exponentials, product
    assert scratch_bytes(program, "x86-64-v4") <= 4 * 1024 * 4  # rows of exponentials for one block, no tile


def layer_norm(rows: int, columns: int, block: int = 32) -> ProgramBuilder:
    b = ProgramBuilder("norm")
    m = b.dim("m", 1)
    x, y = b.param("x", F32, (m, columns)), b.param("y", F32, (m, columns), "out")
    gain, bias = b.param("gain", F32, (columns,)), b.param("bias", F32, (columns,))
    t, d, q, u = (b.tile(n, F32, (block, columns)) for n in "tdqu")
    mean, var = b.tile("mean", F32, (block,)), b.tile("var", F32, (block,))
    tg, tb = b.tile("tg", F32, (columns,)), b.tile("tb", F32, (columns,))
    g = b.grid("g", ceildiv(m, block))
    r = dmin(block, m - block * g)
    shape = (r, columns)
    full = {n.name: n.window((0, 0), shape) for n in (t, d, q, u)}
    row, column, stat = (axis(0),), (axis(1),), (r,)
    b.load(full["t"], x.window((block * g, 0), shape))
    b.load(tg, gain)
    b.load(tb, bias)
    b.rowsum(View("mean", row, shape), full["t"], axes=(1,))
    b.mul(mean.window((0,), stat), mean.window((0,), stat), 1 / columns)
    b.sub(full["d"], full["t"], View("mean", row, shape))
    b.mul(full["q"], full["d"], full["d"])
    b.rowsum(View("var", row, shape), full["q"], axes=(1,))
    b.mul(var.window((0,), stat), var.window((0,), stat), 1 / columns)
    b.add(var.window((0,), stat), var.window((0,), stat), 1e-5)
    b.rsqrt(var.window((0,), stat), var.window((0,), stat))
    b.mul(full["u"], full["d"], View("var", row, shape))
    b.mul(full["u"], full["u"], View("tg", column, shape))
    b.add(full["u"], full["u"], View("tb", column, shape))
    b.store(y.window((block * g, 0), shape), full["u"])
    return b


@pytest.mark.parametrize("shape", [(1, 1), (5, 70), (40, 128), (33, 5)], ids=str)
def test_layer_norm(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    tensors = {"x": rng.normal(1, 2, shape), "gain": rng.normal(0, 1, shape[1]), "bias": rng.normal(0, 1, shape[1])}
    tensors = {k: v.astype(np.float32) for k, v in tensors.items()}
    compare(layer_norm(*shape).finish(), tensors, {"m": shape[0]}, rtol=1e-4, atol=1e-5)


def test_mean_over_pixels_with_channels_last_runs_in_channel_lanes() -> None:
    shape = (7, 7, 70)
    b = ProgramBuilder("pool")
    x, y = b.param("x", F32, shape), b.param("y", F32, (70,), "out")
    t, s = b.tile("t", F32, shape), b.tile("s", F32, (70,))
    b.load(t, x)
    b.rowsum(View("s", (axis(2),), shape), t, axes=(0, 1))
    b.mul(s, s, 1 / 49)
    b.store(y, s)
    program = b.finish()
    compare(program, {"x": data(F32, shape)}, rtol=1e-5)
    assert scratch_bytes(program, "x86-64-v4") == 0
    assert "extractelement" not in lower(program, "x86-64-v4")


@pytest.mark.parametrize("form", ["chain", "sum"])
@pytest.mark.parametrize("shape", [(9, 11, 40), (4, 3, 5), (8, 8, 16)], ids=str)
def test_depthwise_windows(shape: tuple[int, int, int], form: str) -> None:
    """Neighbouring outputs share taps; a sum of products has no product tile."""
    h, w, c = shape
    out = (h - 2, w - 2, c)
    b = ProgramBuilder("depthwise")
    x, k, y = b.param("x", F32, shape), b.param("k", F32, (3, 3, c)), b.param("y", F32, out, "out")
    acc = b.tile("acc", F32, out)
    if form == "chain":
        b.mul(acc, x.view(axis(0), axis(1), axis(2), shape=out), k.view(0, 0, axis(2), shape=out))
        for i in range(1, 9):
            tap = x.view(axis(0) + i // 3, axis(1) + i % 3, axis(2), shape=out)
            b.fma(acc, tap, k.view(i // 3, i % 3, axis(2), shape=out), acc)
    else:
        full = (h - 2, w - 2, 3, 3, c)
        terms = b.tile("terms", F32, full)
        b.mul(
            terms,
            x.view(axis(0) + axis(2), axis(1) + axis(3), axis(4), shape=full),
            k.view(axis(2), axis(3), axis(4), shape=full),
        )
        b.rowsum(acc.view(axis(0), axis(1), axis(4), shape=full), terms, axes=(2, 3))
    b.store(y, acc)
    tensors = {"x": data(F32, shape), "k": data(F32, (3, 3, c), 1)}
    compare(b.finish(), tensors, rtol=1e-6)
    assert scratch_bytes(b.finish(), "x86-64-v4") == 0


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_maximum_over_windows(stride: int) -> None:
    for rows, columns in ((9, 40), (3, 3), (20, 71)):
        out = (2, (rows - 3) // stride + 1, (columns - 3) // stride + 1)
        b = ProgramBuilder("pool")
        x, y = b.param("x", F32, (2, rows, columns)), b.param("y", F32, out, "out")
        t = b.tile("t", F32, out)
        full = (*out, 3, 3)
        window = x.view(axis(0), stride * axis(1) + axis(3), stride * axis(2) + axis(4), shape=full)
        b.rowmax(t.view(axis(0), axis(1), axis(2), shape=full), window, axes=(3, 4))
        b.store(y, t)
        compare(b.finish(), {"x": data(F32, (2, rows, columns))})
