"""TEXPANDS of an expression of the program's dims: text, interpreter and native code."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.targets import target
from codegen.tile.build import ProgramBuilder
from codegen.tile.ir import Imm, Program
from codegen.tile.verifier import verify
from tensor_types.dims import dmin
from tensor_types.dtypes import DTYPES, I64
from tests.llvm.checked import compare


def sizes(dtype: str) -> Program:
    b = ProgramBuilder("sizes")
    n, m = b.dim("n"), b.dim("m", 0, 1000)
    single, row = b.param("y", DTYPES[dtype], (5,), "out"), b.param("z", I64, (n,), "out")
    for place, value in enumerate((n, n * n - m * 3, (n + 7) // 8, dmin(n, m) % 5, n // 4294967296)):
        b.expands(single.view(place, shape=()), Imm(value))
    b.expands(row.whole(), Imm(m + n))
    return b.finish()


@pytest.mark.parametrize("dtype", ["i64", "i32", "u8"])
def test_sizes_are_numbers_that_wrap(dtype: str) -> None:
    program = sizes(dtype)
    verify(program, target("x86-64-v3"))
    for n, m in ((0, 0), (1, 1000), (37, 5), (70000, 3)):
        compare(program, {}, {"n": n, "m": m})


def test_what_a_size_is() -> None:
    kernel = compare(sizes("i64"), {}, {"n": 100, "m": 7})[0]
    y, z = np.zeros(5, np.int64), np.zeros(100, np.int64)
    kernel.run({"y": y, "z": z}, {"n": 100, "m": 7})
    np.testing.assert_array_equal(y, [100, 9979, 13, 2, 0])
    assert (z == 107).all()
