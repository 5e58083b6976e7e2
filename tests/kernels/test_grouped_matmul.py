"""Grouped products with run-time row counts and what follows them, against numpy in float64, on hosts and chips."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from acl_runtime.aicpu import evaluate
from codegen.kernels.grouped_matmul import lower_grouped_matmul
from codegen.kernels.operands import NotLowerable
from codegen.targets import target
from tensor_types.dims import dim
from tests.kernels.lowered import Op, check
from tests.kernels.moe_cases import Given
from tests.kernels.on_chips import check_on_chips
from tests.llvm.native import HOSTS

rng = np.random.default_rng(0)
SILU: list[Op] = [("Sigmoid", ["t"], ["s"], {}), ("Mul", ["s", "t"], ["u"], {}), ("Mul", ["u", "gate"], ["y"], {})]
"""A gate: what another product gave is multiplied by the product's SiLU."""


def grouped(
    counts: list[int], k: int, n: int, dtype: type = np.float32, gated: bool = False, wide: bool = False,
    constant: bool = True, static: bool = False,
) -> Given:  # fmt: skip
    """Rows of groups of `counts` rows; `wide` gives f32 of narrow operands, `static` a number of rows that is known."""
    m = sum(counts)
    result = np.float32 if wide else dtype
    arrays = {"x": rng.normal(0, 0.5, (m, k)).astype(dtype), "w": rng.normal(0, 0.5, (len(counts), k, n)).astype(dtype),
              "offsets": np.cumsum([0, *counts]).astype(np.int64),
              "gate": rng.normal(size=(m, n)).astype(result)}  # fmt: skip
    product = np.zeros((m, n))
    for g, (first, last) in enumerate(zip(arrays["offsets"], arrays["offsets"][1:], strict=False)):
        product[first:last] = arrays["x"][first:last].astype(np.float64) @ arrays["w"][g].astype(np.float64)
    made = {"t": product}
    if gated:
        made["s"] = 1 / (1 + np.exp(-product))
        made["u"] = product * made["s"]
        made["y"] = made["u"] * arrays["gate"].astype(np.float64)
    else:
        del arrays["gate"]
    attrs = {"result_dtype": "f32"} if wide else {}
    ops: list[Op] = [("GroupedMatMul", ["x", "w", "offsets"], ["t"], attrs), *(SILU if gated else [])]
    rows = m if static else dim("tokens") * 2
    symbolic = {"x": (rows, k), "gate": (rows, n), **dict.fromkeys(made, (rows, n))}
    outputs = ["y" if gated else "t"]
    constants = ["w"] if constant else []
    return Given("grouped_matmul", ops, arrays, outputs, constants, symbolic, dims={"tokens": m // 2},
                 made={name: a.astype(result) for name, a in made.items()})  # fmt: skip


@pytest.mark.parametrize(("k", "n", "gated"), [(7, 5, False), (40, 130, True)])
def test_hosts(k: int, n: int, gated: bool) -> None:
    given = grouped([0, 7, 1, 130, 97, 96, 0, 192, 1, 0], k, n, gated=gated)
    check(given, lower_grouped_matmul, 2e-5, 1e-5)


def test_static_rows_and_run_time_matrices() -> None:
    check(grouped([3, 0, 98], 33, 17, static=True), lower_grouped_matmul, 1e-5, 1e-5, HOSTS[-1:])
    check(grouped([1, 0], 3, 1, static=True, gated=True), lower_grouped_matmul, 1e-5, 1e-5, HOSTS[-1:])
    check(grouped([4, 0, 98], 33, 70, constant=False), lower_grouped_matmul, 1e-5, 1e-5, HOSTS[-1:])
    assert lower_grouped_matmul(grouped([0, 0], 3, 2, static=True).fused(), target("x86-64-v3")) == []


@pytest.mark.parametrize(
    ("dtype", "wide", "tolerance"),
    [
        (np.float64, False, 1e-12),
        (np.float16, False, 4e-3),
        (np.float16, True, 1e-4),
        (ml_dtypes.bfloat16, False, 3e-2),
        (ml_dtypes.bfloat16, True, 1e-4),
    ],
)
def test_other_dtypes(dtype: type, wide: bool, tolerance: float) -> None:
    """`wide`: the accumulators of narrow operands go on as f32."""
    given = grouped([13, 0, 97], 40, 73, dtype, gated=True, wide=wide)
    check(given, lower_grouped_matmul, tolerance, tolerance, HOSTS[-1:])


def test_ai_cpu() -> None:
    given = grouped([13, 0, 97], 40, 73, np.float16)
    inputs = [given.arrays[name] for name in ("x", "w", "offsets")]
    for wanted, dtype in (("", np.float16), ("f32", np.float32)):
        (result,) = evaluate("GroupedMatMul", {"result_dtype": wanted}, inputs)
        assert result.dtype == dtype
        np.testing.assert_allclose(result, given.made["t"], 4e-3, 4e-3)


def test_what_may_or_may_not_broadcast_is_declined() -> None:
    given = grouped([3, 1], 4, 5, gated=True)
    given.symbolic = {**given.symbolic, "gate": ("other", 5)}
    with pytest.raises(NotLowerable, match="broadcast"):
        lower_grouped_matmul(given.fused(), target("x86-64-v3"))


@pytest.mark.parametrize("chip,dtype", [("Ascend910B2", np.float32), ("Ascend910B2", np.float16),
                                        ("Ascend310P3", np.float16)])  # fmt: skip
def test_chips(chip: str, dtype: type) -> None:
    tolerance = 2e-5 if dtype == np.float32 else 1e-2
    for gated in (False, True):
        given = grouped([1, 70, 0, 9], 200, 150, dtype, gated=gated)
        check_on_chips(given, lower_grouped_matmul, tolerance, tolerance, [chip])
