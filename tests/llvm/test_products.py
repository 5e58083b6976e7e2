"""Matrix products with fused epilogues, from the serialised program to numbers."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.llvm.lower import scratch_bytes
from codegen.tile.build import ProgramBuilder
from codegen.tile.ir import View, axis
from tensor_types.dims import ceildiv, dmin
from tensor_types.dtypes import BF16, F16, F32, I8, I32, DType
from tests.llvm.checked import compare

rng = np.random.default_rng(0)


def linear(k: int, n: int, dtype: DType = F32, block: int = 32) -> ProgramBuilder:
    """y = relu(x @ w + bias) * gate[row] + residual, the accumulator read by nothing else."""
    b = ProgramBuilder("linear")
    m = b.dim("m", 1)
    x, w, bias = b.param("x", dtype, (m, k)), b.param("w", dtype, (k, n)), b.param("bias", F32, (n,))
    _gate, residual, y = (
        b.param("gate", F32, (m,)),
        b.param("residual", dtype, (m, n)),
        b.param("y", dtype, (m, n), "out"),
    )
    tx, tw = b.tile("tx", dtype, (block, k), "L1"), b.tile("tw", dtype, (k, n), "L1")
    c, u = b.tile("c", F32, (block, n), "L0C"), b.tile("u", F32, (block, n))
    tb, tr = b.tile("tb", F32, (n,)), b.tile("tr", F32, (block, n))
    g = b.grid("g", ceildiv(m, block))
    r = dmin(block, m - block * g)
    out = (r, n)
    b.load(tx.window((0, 0), (r, k)), x.window((block * g, 0), (r, k)))
    b.load(tw, w)
    b.load(tb, bias)
    b.instr("TMATMUL", c.window((0, 0), out), tx.window((0, 0), (r, k)), tw, nm=1, nk=1)
    b.add(u.window((0, 0), out), c.window((0, 0), out), View("tb", (axis(1),), out))
    b.relu(u.window((0, 0), out), u.window((0, 0), out))
    b.mul(u.window((0, 0), out), u.window((0, 0), out), View("gate", (block * g + axis(0),), out))
    b.cvt(tr.window((0, 0), out), residual.window((block * g, 0), out)) if dtype != F32 else b.load(
        tr.window((0, 0), out), residual.window((block * g, 0), out)
    )
    b.add(u.window((0, 0), out), u.window((0, 0), out), tr.window((0, 0), out))
    b.store(y.window((block * g, 0), out), u.window((0, 0), out))
    return b


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 5, 17), (7, 3, 1), (33, 40, 70), (40, 16, 48)], ids=str)
def test_linear(shape: tuple[int, int, int], dtype: DType) -> None:
    m, k, n = shape
    program = linear(k, n, dtype).finish()
    tensors = {"x": (m, k), "w": (k, n), "bias": (n,), "gate": (m,), "residual": (m, n)}
    kinds = {"x": dtype, "w": dtype, "bias": F32, "gate": F32, "residual": dtype}
    values = {name: rng.integers(-4, 5, s).astype(kinds[name].numpy) for name, s in tensors.items()}
    compare(program, values, {"m": m}, rtol=1e-5)
    assert scratch_bytes(program, "x86-64-v4") == 0, "the accumulator tile is not materialised"


def test_integers_with_requantise() -> None:
    b = ProgramBuilder("quantised")
    x, w, y = b.param("x", I8, (9, 40)), b.param("w", I8, (40, 33)), b.param("y", I8, (9, 33), "out")
    b.param("scale", F32, (33,))
    c, f, q = b.tile("c", I32, (9, 33), "L0C"), b.tile("f", F32, (9, 33)), b.tile("q", I8, (9, 33))
    b.instr("TMATMUL", c, x.whole(), w.whole(), nm=1, nk=1)
    b.cvt(f, c)
    b.mul(f, f, View("scale", (axis(1),), (9, 33)))
    b.cvt(q, f, round=1)
    b.store(y, q)
    tensors = {
        "x": rng.integers(-128, 128, (9, 40)).astype(np.int8),
        "w": rng.integers(-128, 128, (40, 33)).astype(np.int8),
    }
    tensors["scale"] = rng.uniform(0, 0.01, 33).astype(np.float32)
    compare(b.finish(), tensors)
    assert scratch_bytes(b.finish(), "x86-64-v4") == 0


def test_accumulates_over_blocks_of_k() -> None:
    b = ProgramBuilder("blocks")
    x, w, y = b.param("x", F32, (10, 100)), b.param("w", F32, (100, 20)), b.param("y", F32, (10, 20), "out")
    tx, tw = b.tile("tx", F32, (10, 32), "L1", 2), b.tile("tw", F32, (32, 20), "L1", 2)
    c = b.tile("c", F32, (10, 20), "L0C")
    b.expands(c, 0.0)
    with b.loop("i", 4) as i:
        k = dmin(32, 100 - 32 * i)
        b.load(tx.window((0, 0), (10, k)), x.window((0, 32 * i), (10, k)))
        b.load(tw.window((0, 0), (k, 20)), w.window((32 * i, 0), (k, 20)))
        b.instr("TMATMUL_ACC", c, tx.window((0, 0), (10, k)), tw.window((0, 0), (k, 20)), nm=1, nk=1)
    b.exp(c, c)
    b.store(y, c)
    tensors = {"x": rng.normal(0, 0.1, (10, 100)), "w": rng.normal(0, 0.1, (100, 20))}
    compare(b.finish(), {n: v.astype(np.float32) for n, v in tensors.items()}, rtol=1e-5)


def test_convolution_through_an_image_to_column_view() -> None:
    b = ProgramBuilder("conv")
    x, w = b.param("x", F32, (9, 11, 5)), b.param("w", F32, (3, 3, 5, 18))
    _bias, y = b.param("bias", F32, (18,)), b.param("y", F32, (7, 9, 18), "out")
    c, u = b.tile("c", F32, (7, 9, 18), "L0C"), b.tile("u", F32, (7, 9, 18))
    columns = x.view(axis(0) + axis(2), axis(1) + axis(3), axis(4), shape=(7, 9, 3, 3, 5))
    b.instr("TMATMUL", c, columns, w.whole(), nm=2, nk=3)
    b.add(u, c, View("bias", (axis(2),), (7, 9, 18)))
    b.max(u, u, 0.0)
    b.store(y, u)
    tensors = {
        n: rng.normal(size=s).astype(np.float32) for n, s in (("x", (9, 11, 5)), ("w", (3, 3, 5, 18)), ("bias", (18,)))
    }
    compare(b.finish(), tensors, rtol=1e-5, atol=1e-5)


def test_attention_block_with_online_softmax() -> None:
    """Scores stay in one block; running maximum, sum and output are carried over key blocks."""
    b = ProgramBuilder("attention")
    n = b.dim("n", 1)
    q, _k, v = b.param("q", F32, (n, 16)), b.param("k", F32, (n, 16)), b.param("v", F32, (n, 16))
    y = b.param("y", F32, (n, 16), "out")
    s, p = b.tile("s", F32, (8, 8), "L0C"), b.tile("p", F32, (8, 8))
    o, pv = b.tile("o", F32, (8, 16)), b.tile("pv", F32, (8, 16), "L0C")
    m, mn, total, f, ls = (b.tile(name, F32, (8,)) for name in ("m", "mn", "l", "f", "ls"))
    g = b.grid("g", ceildiv(n, 8))
    r = dmin(8, n - 8 * g)
    b.expands(m.window((0,), (r,)), -3e38)
    b.expands(total.window((0,), (r,)), 0.0)
    b.expands(o.window((0, 0), (r, 16)), 0.0)
    with b.loop("j", ceildiv(n, 8)) as j:
        c = dmin(8, n - 8 * j)
        sv, pw, rows = s.window((0, 0), (r, c)), p.window((0, 0), (r, c)), (r, c)
        key = View("k", (8 * j + axis(1), axis(0)), (16, c))
        b.instr("TMATMUL", sv, q.window((8 * g, 0), (r, 16)), key, nm=1, nk=1)
        b.rowmax(View("mn", (axis(0),), rows), sv, axes=(1,))
        w = {t.name: t.window((0,), (r,)) for t in (m, mn, total, f, ls)}
        b.max(w["mn"], w["mn"], w["m"])
        b.sub(w["f"], w["m"], w["mn"])
        b.exp(w["f"], w["f"])
        b.mov(w["m"], w["mn"])
        b.sub(pw, sv, View("mn", (axis(0),), rows))
        b.exp(pw, pw)
        b.rowsum(View("ls", (axis(0),), rows), pw, axes=(1,))
        b.mul(w["l"], w["l"], w["f"])
        b.add(w["l"], w["l"], w["ls"])
        ov, pvv = o.window((0, 0), (r, 16)), pv.window((0, 0), (r, 16))
        b.mul(ov, ov, View("f", (axis(0),), (r, 16)))
        b.instr("TMATMUL", pvv, pw, v.window((8 * j, 0), (c, 16)), nm=1, nk=1)
        b.add(ov, ov, pvv)
    b.div(o.window((0, 0), (r, 16)), o.window((0, 0), (r, 16)), View("l", (axis(0),), (r, 16)))
    b.store(y.window((8 * g, 0), (r, 16)), o.window((0, 0), (r, 16)))
    for size in (1, 7, 8, 29):
        tensors = {name: rng.normal(size=(size, 16)).astype(np.float32) for name in "qkv"}
        compare(b.finish(), tensors, {"n": size}, rtol=2e-5, atol=1e-6)
