"""Batched products of transposed operands with one row or one column: axes of 1 never stand for the batch."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.kernels.matmul import lower_matmul
from tests.kernels.lowered import HOSTS, Case, check

RNG = np.random.default_rng(3)


class Numpy(Case):
    """Expected results by numpy.matmul: onnxruntime lacks FusedMatMul of transposed operands in some ranks."""

    def expected(self) -> dict[str, np.ndarray]:
        ((_, _, _, attrs),) = self.ops
        a, b = (
            x.swapaxes(-1, -2) if attrs.get(f"trans{n.upper()}") else x
            for n, x in ((n, self.arrays[n].astype(np.float64)) for n in "ab")
        )
        return {"y": (a @ b).astype(np.float32)}


@pytest.mark.parametrize("rows,columns", [(1, 1), (1, 5), (4, 1)])
@pytest.mark.parametrize("turned", [0, 1])
def test_transposed_operands(rows: int, columns: int, turned: int) -> None:
    arrays = {"a": RNG.normal(size=(2, 7, rows)).astype(np.float32)}
    arrays["b"] = RNG.normal(size=(2, columns, 7) if turned else (2, 7, columns)).astype(np.float32)
    ops = [("com.microsoft::FusedMatMul", ["a", "b"], ["y"], {"transA": 1, "transB": turned})]
    check(Numpy("matmul", ops, arrays, ["y"]), lower_matmul, hosts=HOSTS[-1:], rtol=1e-5, atol=1e-6)
