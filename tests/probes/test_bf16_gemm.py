"""GEMM of bf16 numbers, accumulated in f32 and rounded once."""

from __future__ import annotations

import numpy as np
import pytest
from ml_dtypes import bfloat16

from codegen.kernels import NotLowerable, lower_node
from codegen.targets import target
from codegen.targets.hosts import HOST_CLASSES
from codegen.tile.text import parse_program
from codegen.tile.verifier import VerifyError, verify
from tests.kernels.lowered import Case
from tests.llvm.emulation import EMULATED
from tests.probes.probe import HOSTS, Sample, check, check_aarch64, records_for, sample


def bf16_gemm(m: int, k: int, n: int, run_time: bool = False) -> Sample:
    """A product of bf16 numbers; the result may lie half a unit of bf16 (and what f32 loses) from the exact one."""
    rng = np.random.default_rng(m + k + n)
    a, b = rng.normal(size=(m, k)).astype(bfloat16), (rng.normal(size=(k, n)) / np.sqrt(k)).astype(bfloat16)
    symbolic = {"a": ("m", k), "y": ("m", n)} if run_time else {}
    case = Case("matmul", [("MatMul", ["a", "b"], ["y"], {})], {"a": a, "b": b}, ["y"], ["b"], symbolic, dims={"m": m},
                wide=True)  # fmt: skip
    return sample(case, {"y": a.astype(np.float64) @ b.astype(np.float64)}, 2.0**-8, 1e-5)


STATIC = [(1, 1, 1), (1, 64, 33), (7, 13, 17), (12, 32, 65), (97, 129, 31)]


@pytest.mark.parametrize("host", HOSTS)
def test_static_sizes(host: str) -> None:
    check([bf16_gemm(*shape) for shape in STATIC], host)


@pytest.mark.parametrize("host", [name for name in EMULATED if HOST_CLASSES[name].engines.dot_bf16])
def test_two_k_at_a_time(host: str) -> None:
    """Constants lie in pairs, whatever the number of rows; rows of b that a run makes are interleaved as they come."""
    for m, k in ((97, 64), (1, 64), (5, 63)):
        given = bf16_gemm(m, k, 33)
        (record,) = records_for(given, host)
        assert ("split(0,2)" in str(record.operands[1].packing)) == (k % 2 == 0)
        check([given], host)
    check([bf16_gemm(m, 40, 73, run_time=True) for m in (1, 95)], host, one_program=True)


@pytest.mark.parametrize("host", HOSTS)
def test_run_time_rows(host: str) -> None:
    check([bf16_gemm(m, 40, 73, run_time=True) for m in (0, 1, 13, 95, 96, 97)], host, one_program=True)


def test_aarch64() -> None:
    (record,) = records_for(bf16_gemm(97, 64, 64), "aarch64")
    check_aarch64(record.program.encode(), "fmla")


def test_chip() -> None:
    check([bf16_gemm(*shape) for shape in [(1, 1, 1), (7, 13, 17), (129, 31, 127)]], "Ascend910B2")
    check([bf16_gemm(m, 40, 73, run_time=True) for m in (0, 1, 127, 129)], "Ascend910B2", one_program=True)


def test_a_chip_without_bf16_refuses() -> None:
    """Neither the family nor the verifier lets bf16 onto the cube of Ascend310P3."""
    given = bf16_gemm(7, 13, 17)
    with pytest.raises(NotLowerable, match="bf16"):
        lower_node(given.case.node(given.results), target("Ascend310P3"))
    (record,) = records_for(given, "Ascend910B2")
    with pytest.raises(VerifyError, match="bf16"):
        verify(parse_program(record.program), target("Ascend310P3"))
