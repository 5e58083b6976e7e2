"""Products with words of codes: native code of every host class against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.targets import target
from codegen.tile.build import ProgramBuilder
from codegen.tile.interpreter import interpret
from codegen.tile.ir import Program, axis
from codegen.tile.verifier import verify
from tensor_types.dtypes import DTYPES, F32, I32, U32
from tensor_types.formats import code_panels
from tests.kernels.lowered import aligned
from tests.llvm.emulation import EMULATED
from tests.llvm.native import HOSTS, Kernel

K, N, NR = 64, 40, 32


def program(left: str, bits: int) -> Program:
    """c [m, N] = a [m, K] @ codes, added to what c holds, by panels of NR columns."""
    b = ProgramBuilder("codes")
    m, f = b.dim("m"), 32 // bits
    a = b.param("a", DTYPES[left], (m, K))
    w = b.param("w", U32, (2, K // f, NR))
    c = b.param("c", F32 if left.startswith("f") else I32, (m, N), "inout")
    for panel, columns in ((0, NR), (1, N - NR)):
        left_view = a.view(axis(0), f * axis(1) + axis(2), shape=(m, K // f, f))
        words = w.view(panel, axis(0), axis(1), shape=(K // f, columns))
        made = c.view(axis(0), NR * panel + axis(1), shape=(m, columns))
        b.matmul_acc(made, left_view, words, nm=1, nk=2, bits=bits)
    return b.finish()


@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("left", ["f32", "i8", "u8", "f16"])
def test_against_numpy(left: str, bits: int) -> None:
    rng = np.random.default_rng(bits)
    codes = rng.integers(0, 1 << bits, (K, N)).astype(np.uint8)
    packed = code_panels(NR, bits).to_physical(codes)
    words = aligned(packed.reshape(-1).view(np.uint32).reshape(2, K * bits // 32, NR))
    made = program(left, bits)
    whole = not left.startswith("f")
    kernels = [(h, Kernel(made, h)) for h in (*HOSTS, *(EMULATED if whole else ()))]
    for m in (1, 2, 7):
        a = rng.integers(0, 256, (m, K)).astype(np.uint8) if whole else rng.standard_normal((m, K))
        a = a.view(np.int8) if left == "i8" else a.astype(DTYPES[left].numpy)
        held = rng.integers(-9, 9, (m, N)).astype(np.int32 if whole else np.float32)
        exact = np.int64 if whole else np.float64
        want = held + a.astype(exact) @ codes.astype(exact)
        tensors = {"a": aligned(a), "w": words}
        verify(made, target(HOSTS[-1]))
        seen = held.copy()
        interpret(made, {**tensors, "c": seen}, {"m": m})
        np.testing.assert_allclose(seen, want, rtol=1e-6, atol=1e-6)
        for name, kernel in kernels:
            got = aligned(held)
            assert kernel.run({**tensors, "c": got}, {"m": m}) == 0
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5, err_msg=f"{name} {m} rows")
