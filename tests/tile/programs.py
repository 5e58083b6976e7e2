"""Programs that several tests share."""

from __future__ import annotations

from codegen.tile.build import ProgramBuilder, broadcast
from codegen.tile.ir import Program, axis
from tensor_types.dims import ceildiv, dmin
from tensor_types.dtypes import BF16, F16, F32, I8, I32, I64, DType


def matmul(dtype: DType = F32, block: int = 16, depth: int = 24, width: int = 32, k_block: int = 10) -> Program:
    """c[m, width] = a[m, depth] @ b, m dynamic, blocked over m and k with tails."""
    b = ProgramBuilder("matmul")
    m = b.dim("m", low=1)
    total = I32 if dtype == I8 else F32
    left = b.param("a", dtype, (m, depth))
    right = b.param("b", dtype, (depth, width))
    out = b.param("c", total, (m, width), "out")
    acc = b.tile("acc", total, (block, width), "L0C")
    mb = b.grid("mb", ceildiv(m, block))
    rows = dmin(block, m - block * mb)
    sums = acc.window((0, 0), (rows, width))
    b.expands(sums, 0)
    with b.loop("kb", ceildiv(depth, k_block)) as kb:
        ks = dmin(k_block, depth - k_block * kb)
        b.matmul_acc(
            sums,
            left.window((block * mb, k_block * kb), (rows, ks)),
            right.window((k_block * kb, 0), (ks, width)),
            nm=1,
            nk=1,
        )
    b.store(out.window((block * mb, 0), (rows, width)), sums)
    return b.finish()


def softmax(width: int = 33) -> Program:
    """y = softmax of x[m, width] over its last axis."""
    b = ProgramBuilder("softmax")
    m = b.dim("m", low=0)
    x = b.param("x", F32, (m, width))
    y = b.param("y", F32, (m, width), "out")
    row, top, total = b.tile("row", F32, (width,)), b.tile("top", F32, (1,)), b.tile("total", F32, (1,))
    i = b.grid("i", m)
    b.load(row, x.view(i, axis(0), shape=(width,)))
    b.rowmax(top.view(0, shape=(width,)), row, axes=(0,))
    b.sub(row, row, top.view(0, shape=(width,)))
    b.exp(row, row)
    b.rowsum(total.view(0, shape=(width,)), row, axes=(0,))
    b.div(row, row, broadcast(total.view(0, shape=()), (width,), ()))
    b.store(y.view(i, axis(0), shape=(width,)), row)
    return b.finish()


def convolution() -> Program:
    """3x3 convolution, stride 2, padding 1, NHWC, through an image-to-column view with padding."""
    b = ProgramBuilder("conv")
    h = b.dim("h", low=1, high=99)
    oh = (h - 1) // 2 + 1
    x = b.param("x", F32, (2, h, 9, 4))
    w = b.param("w", F32, (3, 3, 4, 8))
    y = b.param("y", F32, (2, oh, 5, 8), "out")
    patch = b.tile("patch", F32, (5, 3, 3, 4))
    n, row = b.grid("n", 2), b.grid("row", oh)
    b.load(
        patch,
        x.view(n, 2 * row + axis(1) - 1, 2 * axis(0) + axis(2) - 1, axis(3), shape=(5, 3, 3, 4)),
        pad=0.0,
    )
    b.matmul(y.view(n, row, axis(0), axis(1), shape=(5, 8)), patch, w, nm=1, nk=3)
    return b.finish()


def gather(wrap: bool = False) -> Program:
    """y[i] = table[idx[i]], rows of 8."""
    b = ProgramBuilder("gather")
    m = b.dim("m", low=0)
    table = b.param("table", F32, (10, 8))
    idx = b.param("idx", I64, (m,))
    y = b.param("y", F32, (m, 8), "out")
    b.gather(y, table, idx.view(axis(0), shape=(m, 8)), axis=0, wrap=int(wrap))
    return b.finish()


def grouped_matmul() -> Program:
    """Rows of x belong to experts in turn, `counts` rows each; a block of at most 8 rows per expert."""
    b = ProgramBuilder("grouped")
    x = b.param("x", F16, (4, 8, 16))
    w = b.param("w", F16, (4, 16, 32))
    counts = b.param("counts", I32, (4,))
    y = b.param("y", F32, (4, 8, 32), "inout")
    e = b.grid("e", 4)
    rows = b.read("rows", counts.view(e, shape=()), 0, 8)
    b.matmul(
        y.view(e, axis(0), axis(1), shape=(rows, 32)),
        x.view(e, axis(0), axis(1), shape=(rows, 16)),
        w.view(e, axis(0), axis(1), shape=(16, 32)),
        nm=1,
        nk=1,
    )
    return b.finish()


def chip_matmul(dtype: DType = F16) -> Program:
    """c[m, 32] = a @ b with every move explicit, as a 910B-class chip needs it."""
    b = ProgramBuilder("chip_matmul")
    m = b.dim("m", low=1)
    a = b.param("a", dtype, (m, 64))
    w = b.param("b", dtype, (64, 32))
    c = b.param("c", F32, (m, 32), "out")
    a1, b1 = b.tile("a1", dtype, (16, 64), "L1", depth=2), b.tile("b1", dtype, (64, 32), "L1")
    a0, b0 = b.tile("a0", dtype, (16, 64), "L0A"), b.tile("b0", dtype, (64, 32), "L0B")
    c0 = b.tile("c0", F32, (16, 32), "L0C")
    mb = b.grid("mb", ceildiv(m, 16))
    rows = dmin(16, m - 16 * mb)
    b.load(a1.window((0, 0), (rows, 64)), a.window((16 * mb, 0), (rows, 64)))
    b.load(b1, w)
    b.extract(a0.window((0, 0), (rows, 64)), a1.window((0, 0), (rows, 64)))
    b.extract(b0, b1)
    b.matmul(c0.window((0, 0), (rows, 32)), a0.window((0, 0), (rows, 64)), b0, nm=1, nk=1)
    b.store(c.window((16 * mb, 0), (rows, 32)), c0.window((0, 0), (rows, 32)))
    return b.finish()


ALL = {
    "matmul": matmul(),
    "matmul_bf16": matmul(BF16),
    "matmul_i8": matmul(I8),
    "softmax": softmax(),
    "convolution": convolution(),
    "gather": gather(),
    "grouped_matmul": grouped_matmul(),
    "chip_matmul": chip_matmul(),
}
