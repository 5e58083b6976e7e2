"""Copies, transposes, strided and padded loads."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen.llvm.lower import lower, scratch_bytes
from codegen.tile.build import ProgramBuilder, broadcast
from codegen.tile.ir import View, axis
from tensor_types.dims import ceildiv, dmin
from tensor_types.dtypes import BF16, BOOL, DTYPES, F16, F32, F64, I8, I64, DType
from tests.llvm.checked import compare


def data(dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    values = np.random.default_rng(0).integers(0, 100, shape)
    return (values % 2 == 0) if dtype == BOOL else values.astype(dtype.numpy)


def permuted(dtype: DType, shape: tuple[int, ...], perm: tuple[int, ...], through_tile: bool) -> ProgramBuilder:
    """y = x with permuted axes, turned by the load or by the store."""
    b = ProgramBuilder("permute")
    out = tuple(shape[p] for p in perm)
    x, y = b.param("x", dtype, shape), b.param("y", dtype, out, "out")
    t = b.tile("t", dtype, shape if through_tile else out)
    turned = {k: perm.index(k) for k in range(len(shape))}
    if through_tile:
        b.load(t, x)
        b.store(y, broadcast(t.whole(), out, [turned[k] for k in range(len(shape))]))
    else:
        b.instr("TTRANS", t, broadcast(x.whole(), out, [turned[k] for k in range(len(shape))]))
        b.store(y, t)
    return b


@pytest.mark.parametrize("shape", [(4, 3, 5), (17, 2, 33), (16, 1, 64), (32, 16, 16)], ids=str)
@pytest.mark.parametrize("dtype", [F32, F16, I8, I64], ids=str)
def test_every_permutation(shape: tuple[int, ...], dtype: DType) -> None:
    for perm in permutations(range(3)):
        for through_tile in (False, True):
            compare(permuted(dtype, shape, perm, through_tile).finish(), {"x": data(dtype, shape)})


@pytest.mark.parametrize("name", ["u8", "bool", "f16", "bf16", "f8e4m3fn", "f8e5m2", "i4", "u16", "f64", "c64"])
def test_copies_of_every_dtype(name: str) -> None:
    dtype = DTYPES[name]
    x = data(dtype, (3, 21)) if name not in ("i4", "c64") else (np.arange(63).reshape(3, 21) % 7).astype(dtype.numpy)
    if name in ("c64", "f8e5m2", "f8e4m3fn"):  # numpy cannot compare or stride these
        b = permuted(dtype, (3, 21), (1, 0), False)
        compare_bits(b, x)
        return
    compare(permuted(dtype, (3, 21), (1, 0), False).finish(), {"x": x})
    compare(permuted(dtype, (3, 21), (0, 1), True).finish(), {"x": x})


def compare_bits(b: ProgramBuilder, x: np.ndarray) -> None:
    from tests.llvm.native import HOSTS, Kernel

    for host in HOSTS:
        y = np.zeros(x.T.shape, x.dtype)
        assert Kernel(b.finish(), host).run({"x": x, "y": y}) == 0
        assert y.tobytes() == np.ascontiguousarray(x.T).tobytes()


def test_nan_bits_survive_a_copy() -> None:
    from tests.llvm.native import HOSTS, Kernel

    x = np.arange(0x7C00, 0x7C40, dtype=np.uint16)
    b = permuted(F16, (64,), (0,), True)
    for host in HOSTS:
        y = np.zeros(64, np.uint16)
        assert Kernel(b.finish(), host).run({"x": x.view(np.float16), "y": y.view(np.float16)}) == 0
        np.testing.assert_array_equal(x, y)


def test_dynamic_transposes() -> None:
    b = ProgramBuilder("turn")
    m, n = b.dim("m"), b.dim("n")
    x, y = b.param("x", F32, (m, n)), b.param("y", F32, (n, m), "out")
    i, j = b.grid("i", ceildiv(m, 32)), b.grid("j", ceildiv(n, 32))
    t = b.tile("t", F32, (32, 32))
    r, c = dmin(32, m - 32 * i), dmin(32, n - 32 * j)
    b.load(t.window((0, 0), (r, c)), x.window((32 * i, 32 * j), (r, c)))
    b.store(y.window((32 * j, 32 * i), (c, r)), broadcast(t.window((0, 0), (r, c)), (c, r), (1, 0)))
    for shape in ((1, 1), (7, 40), (64, 33), (0, 5), (16, 16)):
        compare(b.finish(), {"x": data(F32, shape)}, {"m": shape[0], "n": shape[1]})


def test_a_transposed_operand_is_turned_in_registers() -> None:
    b = ProgramBuilder("turned_add")
    x, y, z = b.param("x", F32, (64, 64)), b.param("y", F32, (64, 64)), b.param("z", F32, (64, 64), "out")
    tx, ty = b.tile("tx", F32, (64, 64)), b.tile("ty", F32, (64, 64))
    b.load(tx, x)
    b.load(ty, y)
    u = b.tile("u", F32, (64, 64))
    b.add(u, broadcast(tx.whole(), (64, 64), (1, 0)), ty)
    b.store(z, u)
    program = b.finish()
    compare(program, {"x": data(F32, (64, 64)), "y": data(F32, (64, 64))})
    text = lower(program, "x86-64-v4")
    assert "shufflevector <16 x i32>" in text or "shufflevector <16 x float>" in text
    assert "gather" not in text
    assert scratch_bytes(program, "x86-64-v4") == 0


def test_concatenation_and_slices_in_one_tile() -> None:
    b = ProgramBuilder("concat")
    x, y = b.param("x", F32, (5, 20)), b.param("y", F32, (5, 13))
    z = b.param("z", F32, (5, 33), "out")
    t = b.tile("t", F32, (5, 33))
    b.load(t.window((0, 0), (5, 20)), x)
    b.load(t.window((0, 20), (5, 13)), y)
    b.mul(t, t, 2.0)
    b.store(z, t)
    compare(b.finish(), {"x": data(F32, (5, 20)), "y": data(F32, (5, 13))})


def test_a_load_that_serves_leaves_no_copy() -> None:
    b = ProgramBuilder("views")
    x, y = b.param("x", F32, (40, 24)), b.param("y", F32, (12, 10), "out")
    t, u, v = b.tile("t", F32, (40, 24)), b.tile("u", F32, (20, 12)), b.tile("v", F32, (12, 10))
    b.load(t, x)
    b.instr("TMOV", u, View("t", (2 * axis(0), axis(1) + 5), (20, 12)))
    b.instr("TTRANS", v, View("u", (2 * axis(1) + 1, axis(0)), (12, 10)))
    b.store(y, v)
    program = b.finish()
    compare(program, {"x": data(F32, (40, 24))})
    assert scratch_bytes(program, "x86-64-v4") == 0


def test_a_source_that_is_overwritten_is_copied() -> None:
    b = ProgramBuilder("kept")
    x, y = b.param("x", F32, (16,), "inout"), b.param("y", F32, (16,), "out")
    t = b.tile("t", F32, (16,))
    b.load(t, x)
    b.store(x, View("t", (15 - axis(0),), (16,)))
    b.store(y, t)
    compare(b.finish(), {"x": data(F32, (16,))})


def test_what_an_earlier_iteration_left_in_a_tile_is_no_alias() -> None:
    """Row 0 of the tile is read in every iteration; the move at hand filled row i."""
    b = ProgramBuilder("rows")
    x, y = b.param("x", F32, (4, 16)), b.param("y", F32, (16,), "out")
    t = b.tile("t", F32, (4, 16))
    with b.loop("i", 4) as i:
        b.load(t.view(i, axis(0), shape=(16,)), x.view(i, axis(0), shape=(16,)))
        b.store(y, t.view(0, axis(0), shape=(16,)))
    compare(b.finish(), {"x": data(F32, (4, 16))})


@pytest.mark.parametrize("dtype", [F32, F16, BF16, I8], ids=str)
def test_padded_image_blocks(dtype: DType) -> None:
    for c, h, w in ((3, 7, 9), (2, 1, 1), (1, 20, 35)):
        b = ProgramBuilder("pad")
        x, y = b.param("x", dtype, (c, h, w)), b.param("y", dtype, (c, h + 3, w + 4), "out")
        t = b.tile("t", dtype, (c, h + 3, w + 4))
        b.load(t, x.window((0, -1, -2), (c, h + 3, w + 4)), pad=5)
        b.store(y, t)
        compare(b.finish(), {"x": data(dtype, (c, h, w))})


def test_padded_loads_with_steps_and_several_axes_per_index() -> None:
    b = ProgramBuilder("columns")
    n = b.dim("n", 1)
    x, y = b.param("x", F32, (n, 11)), b.param("y", F32, (6, 3, 3, 7), "out")
    t = b.tile("t", F32, (6, 3, 3, 7))
    b.load(t, x.view(2 * axis(0) + axis(1) - 1, 2 * axis(3) + axis(2) - 1, shape=(6, 3, 3, 7)), pad=-1.5)
    b.store(y, t)
    for rows in (1, 5, 12):
        compare(b.finish(), {"x": data(F32, (rows, 11))}, {"n": rows})
    b = ProgramBuilder("backwards")
    x, y = b.param("x", F32, (11,)), b.param("y", F32, (20,), "out")
    t = b.tile("t", F32, (20,))
    b.load(t, x.view(13 - axis(0), shape=(20,)), pad=0.25)
    b.store(y, t)
    compare(b.finish(), {"x": data(F32, (11,))})


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_strided_windows(draw: st.DataObject) -> None:
    rank = draw.draw(st.integers(1, 3))
    extents = [draw.draw(st.integers(1, 19)) for _ in range(rank)]
    steps = [draw.draw(st.sampled_from([1, 1, 2, 3, -1])) for _ in range(rank)]
    order = draw.draw(st.permutations(range(rank)))
    dtype = draw.draw(st.sampled_from([F32, F64, I8, F16]))
    shape = tuple(extents[order.index(k)] for k in range(rank))
    base = tuple(abs(steps[i]) * (extents[order[i]] - 1) + 3 for i in range(rank))
    index = tuple(
        (1 + steps[i] * axis(order[i])) if steps[i] > 0 else base[i] - 2 + steps[i] * axis(order[i])
        for i in range(rank)
    )
    shape = tuple(extents[k] for k in range(rank))
    b = ProgramBuilder("window")
    x, y = b.param("x", dtype, base), b.param("y", dtype, shape, "out")
    t = b.tile("t", dtype, shape)
    b.add(t, x.view(*index, shape=shape), 1)
    b.store(y, t)
    compare(b.finish(), {"x": data(dtype, base)})
