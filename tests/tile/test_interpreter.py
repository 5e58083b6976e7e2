"""The interpreter: results against numpy, and the mistakes that it must find."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from codegen.tile.instructions import STATUS_INDEX, STATUS_RANGE
from codegen.tile.interpreter import InterpreterError, TaskStatus, interpret
from codegen.tile.text import parse_program
from tensor_types.dtypes import BF16, F16, F32, I8, DType
from tests.tile import programs

rng = np.random.default_rng(7)


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 40])
@pytest.mark.parametrize("dtype", [F32, F16, BF16, I8], ids=str)
def test_matmul_with_tails(rows: int, dtype: DType) -> None:
    a = rng.integers(-9, 9, (rows, 24)).astype(dtype.numpy)
    b = rng.integers(-9, 9, (24, 32)).astype(dtype.numpy)
    c = np.zeros((rows, 32), np.int32 if dtype == I8 else np.float32)
    interpret(programs.matmul(dtype), {"a": a, "b": b, "c": c}, {"m": rows})
    np.testing.assert_array_equal(c, a.astype(np.int64) @ b.astype(np.int64))


def test_any_grid_order_and_strided_outputs() -> None:
    a, b = rng.standard_normal((50, 24), np.float32), rng.standard_normal((24, 32), np.float32)
    wide = np.full((50, 64), 5, np.float32)
    c = wide[:, ::2]
    interpret(programs.matmul(), {"a": a[::1], "b": b, "c": c}, {"m": 50}, grid_order=[2, 0, 3, 1])
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-6, atol=1e-6)
    assert (wide[:, 1::2] == 5).all()
    with pytest.raises(ValueError, match="permutation"):
        interpret(programs.matmul(), {"a": a, "b": b, "c": c}, {"m": 50}, grid_order=[0, 0, 1, 2])


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_softmax(rows: int) -> None:
    x = rng.standard_normal((rows, 33)).astype(np.float32) * 20
    y = np.zeros_like(x)
    interpret(programs.softmax(), {"x": x, "y": y}, {"m": rows})
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True, initial=-np.inf))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("height", [1, 2, 7])
def test_convolution(height: int) -> None:
    x = rng.standard_normal((2, height, 9, 4)).astype(np.float32)
    w = rng.standard_normal((3, 3, 4, 8)).astype(np.float32)
    rows = (height - 1) // 2 + 1
    y = np.zeros((2, rows, 5, 8), np.float32)
    interpret(programs.convolution(), {"x": x, "w": w, "y": y}, {"h": height})
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    want = np.zeros(y.shape)
    for r in range(rows):
        for c in range(5):
            want[:, r, c] = np.einsum("nyxc,yxco->no", padded[:, 2 * r : 2 * r + 3, 2 * c : 2 * c + 3], w)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)


def test_gather_and_its_status() -> None:
    table = rng.standard_normal((10, 8)).astype(np.float32)
    idx = np.array([3, 0, 9, 3])
    y = np.zeros((4, 8), np.float32)
    interpret(programs.gather(), {"table": table, "idx": idx, "y": y}, {"m": 4})
    np.testing.assert_array_equal(y, table[idx])
    with pytest.raises(TaskStatus) as caught:
        interpret(programs.gather(), {"table": table, "idx": np.array([3, 0, -1, 10]), "y": y}, {"m": 4})
    assert (caught.value.code, caught.value.index) == (STATUS_INDEX, 2)
    interpret(programs.gather(wrap=True), {"table": table, "idx": np.array([-1, -10, 9, 0]), "y": y}, {"m": 4})
    np.testing.assert_array_equal(y, table[[-1, -10, 9, 0]])
    with pytest.raises(TaskStatus):
        interpret(programs.gather(wrap=True), {"table": table, "idx": np.array([0, 0, 0, -11]), "y": y}, {"m": 4})


def test_row_counts_from_a_tensor() -> None:
    x = rng.standard_normal((4, 8, 16)).astype(np.float16)
    w = rng.standard_normal((4, 16, 32)).astype(np.float16)
    counts = np.array([3, 0, 8, 1], np.int32)
    y = np.full((4, 8, 32), 7, np.float32)
    interpret(programs.grouped_matmul(), {"x": x, "w": w, "counts": counts, "y": y}, {})
    for e, n in enumerate(counts):
        np.testing.assert_allclose(
            y[e, :n], x[e, :n].astype(np.float64) @ w[e].astype(np.float64), rtol=1e-5, atol=1e-5
        )
        assert (y[e, n:] == 7).all()
    counts[2] = 9
    with pytest.raises(TaskStatus) as caught:
        interpret(programs.grouped_matmul(), {"x": x, "w": w, "counts": counts, "y": y}, {})
    assert (caught.value.code, caught.value.index) == (STATUS_RANGE, 9)


def test_explicit_memory_gives_the_same() -> None:
    a, b = rng.standard_normal((21, 64)).astype(np.float16), rng.standard_normal((64, 32)).astype(np.float16)
    c = np.zeros((21, 32), np.float32)
    interpret(programs.chip_matmul(), {"a": a, "b": b, "c": c}, {"m": 21})
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-5)


def _run(body: str, declarations: str = "", grid: str = "", **arrays: np.ndarray) -> dict[str, np.ndarray]:
    """Runs a program with input x[4, 6] and output y[4, 6], beside what the test declares."""
    text = f"program p () {{ param in x: f32[4, 6] param out y: f32[4, 6] {declarations} {grid} body {{ {body} }} }}"
    tensors = {"x": np.arange(24, dtype=np.float32).reshape(4, 6), "y": np.zeros((4, 6), np.float32), **arrays}
    interpret(parse_program(text), tensors, {})
    return tensors


TILE = "tile t: f32[6] UB"


@pytest.mark.parametrize(
    ("body", "declarations", "grid", "reason"),
    [
        ("TEXP y[0, _0]{6}, t[_0]{6}", TILE, "", "undefined"),
        ("TLOAD t[_0]{5}, x[0, _0]{5} TEXP y[0, _0]{6}, t[_0]{6}", TILE, "", "undefined"),
        ("if i == 0 { TLOAD t[_0]{6}, x[i, _0]{6} } TSTORE y[i, _0]{6}, t[_0]{6}", TILE, "grid i < 4", "undefined"),
        ("TADD y[0, _0]{6}, y[0, _0]{6}, x[0, _0]{6}", "", "", "undefined"),
        ("TADD w[_0]{6}, w[_0]{6}, x[0, _0]{6}", "param workspace w: f32[6]", "", "undefined"),
        ("TMATMUL_ACC t[_0]{6}, x[0, _0]{4}, x[_0, _1]{4, 6} nm=0 nk=1", TILE, "", "undefined"),
        ("TROWSUM t[0]{6}, x[0, _0]{6} axes=(0) acc=1", TILE, "", "undefined"),
        ("TEXP y[0, _0]{6}, x[i, _0]{6}", "", "grid i < 4", "two grid indices"),
        ("TEXP y[i, _0]{6}, x[i, _0]{6} TEXP t[_0]{6}, y[0, _0]{6}", TILE, "grid i < 4", "two grid indices"),
        ("TEXP t[_0]{6}, z[3 - i, _0]{6} TEXP z[i, _0]{6}, t[_0]{6}", "param inout z: f32[4, 6] " + TILE, "grid i < 4",
         "two grid indices"),
        ("TEXP y[0, _0]{6}, x[4, _0]{6}", "", "", "has 4 elements"),
        ("TEXP y[0, _0]{6}, x[0, _0 - 1]{6}", "", "", "spans -1..4"),
        ("for i < 5 { TEXP y[i, _0]{6}, x[0, _0]{6} }", "", "", "has 4 elements"),
        ("TEXP y[0, _0]{2 - 3}, x[0, _0]{2 - 3}", "", "", "negative extent"),
    ],
)  # fmt: skip
def test_finds_mistakes(body: str, declarations: str, grid: str, reason: str) -> None:
    with pytest.raises(InterpreterError, match=reason):
        _run(body, declarations, grid, z=np.ones((4, 6), np.float32))


def test_empty_views_touch_nothing() -> None:
    out = _run("TEXP y[4, _0]{0}, x[9, _0]{0} TEXPANDS y[_0, _1]{4, 6}, 2")
    assert (out["y"] == 2).all()


def test_loops_carry_tiles_and_conditions_choose() -> None:
    body = """TEXPANDS t[_0]{6}, 0
      for i < 4 { if i < 3 { TADD t[_0]{6}, t[_0]{6}, x[i, _0]{6} } else { TMULS t[_0]{6}, t[_0]{6}, 10 }
                  TSTORE y[i, _0]{6}, t[_0]{6} }"""
    out = _run(body, TILE)
    x = out["x"]
    np.testing.assert_array_equal(out["y"], np.stack([x[0], x[0] + x[1], x[:3].sum(0), x[:3].sum(0) * 10]))


@pytest.mark.parametrize("reduce", ["none", "add", "mul", "max", "min"])
def test_scatter_applies_in_index_order(reduce: str) -> None:
    idx = rng.integers(0, 5, (4, 6)).astype(np.int32)
    x = rng.standard_normal((4, 6)).astype(np.float32)
    z = rng.standard_normal((4, 5)).astype(np.float32)
    want = z.copy()
    combine = {"none": lambda a, b: b, "add": np.add, "mul": np.multiply, "max": max, "min": min}[reduce]
    for i in range(4):
        for j in range(6):
            want[i, idx[i, j]] = combine(want[i, idx[i, j]], x[i, j])
    attr = "" if reduce == "none" else f" reduce={reduce}"
    _run(f"TSCATTER z[_0, _1]{{4, 5}}, x[_0, _1]{{4, 6}}, idx[_0, _1]{{4, 6}} axis=1{attr}",
         "param inout z: f32[4, 5] param in idx: i32[4, 6]", x=x, z=z, idx=idx)  # fmt: skip
    np.testing.assert_array_equal(z, want)


def test_conversion_while_storing() -> None:
    out = _run("TLOAD t[_0]{6}, x[1, _0]{6} TSTORE z[_0]{6}, t[_0]{6}", "param out z: bf16[6] " + TILE,
               z=np.zeros(6, ml_dtypes.bfloat16))  # fmt: skip
    np.testing.assert_array_equal(out["z"].astype(np.float32), np.arange(6, 12))


def test_arguments_are_checked() -> None:
    x, y = np.zeros((3, 33), np.float32), np.zeros((3, 33), np.float32)
    for tensors, dims in [({"x": x}, {"m": 3}), ({"x": x, "y": y}, {"m": 4}), ({"x": x, "y": y.astype(int)}, {"m": 3}),
                          ({"x": x, "y": y}, {})]:  # fmt: skip
        with pytest.raises(ValueError):
            interpret(programs.softmax(), tensors, dims)
