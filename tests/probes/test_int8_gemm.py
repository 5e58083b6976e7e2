"""8-bit GEMM with requantisation: scale per column, bias, rounding half to even and saturation, exact."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.lowered import Case, Op
from tests.llvm.emulation import EMULATED
from tests.probes.probe import CHIPS, HOSTS, Sample, check, check_aarch64, records_for, sample

_ZERO = 3
_OPS: list[Op] = [
    ("MatMulInteger", ["a", "b"], ["i"], {}),
    ("Cast", ["i"], ["f"], {"to": 1}),
    ("Mul", ["f", "s"], ["g"], {}),
    ("Add", ["g", "c"], ["h"], {}),
    ("QuantizeLinear", ["h", "step", "zero"], ["y"], {}),
]


def int8_gemm(m: int, k: int, n: int, run_time: bool = False) -> Sample:
    """Scales and biases are such that every number before rounding is exact in f32, halves included."""
    rng = np.random.default_rng(m + k + n)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (k, n)))
    scale = np.exp2(rng.integers(-9, -5, n)).astype(np.float32)
    bias = (rng.integers(-64, 64, n) / 4).astype(np.float32)
    arrays = {"a": a, "b": b, "s": scale, "c": bias}
    arrays |= {"step": np.array(0.5, np.float32), "zero": np.array(_ZERO, np.int8)}
    symbolic = {name: ("m", n) for name in "ifghy"} | {"a": ("m", k)} if run_time else {}
    case = Case("matmul", _OPS, arrays, ["y"], ["b", "s", "c", "step", "zero"], symbolic, dims={"m": m}, opset=21)
    exact = (a.astype(np.int64) @ b.astype(np.int64)) * scale.astype(np.float64) + bias
    want = np.clip(np.rint(exact / 0.5) + _ZERO, -128, 127).astype(np.int8)
    return sample(case, {"y": want})


STATIC = [(1, 1, 1), (7, 13, 17), (95, 63, 65), (97, 64, 33)]


@pytest.mark.parametrize("host", HOSTS)
def test_static_sizes(host: str) -> None:
    check([int8_gemm(*shape) for shape in STATIC], host)


@pytest.mark.parametrize("host", EMULATED)
def test_classes_that_this_machine_emulates(host: str) -> None:
    check([int8_gemm(97, 64, 33)], host)
    check([int8_gemm(m, 40, 37, run_time=True) for m in (1, 95)], host, one_program=True)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("k", [40, 41])
def test_run_time_rows(host: str, k: int) -> None:
    check([int8_gemm(m, k, 37, run_time=True) for m in (0, 1, 13, 95, 96, 97)], host, one_program=True)


def test_the_numbers_round_and_saturate() -> None:
    """The samples hold what they are for: results at both ends, and halves before rounding."""
    given = int8_gemm(97, 64, 33)
    assert {-128, 127} <= set(given.want["y"].flat)
    halves = np.mod(given.results["h"].astype(np.float64) / 0.5, 1) == 0.5
    assert halves.any()


def test_aarch64() -> None:
    (record,) = records_for(int8_gemm(97, 64, 64), "aarch64")
    check_aarch64(record.program.encode(), "mla", "scvtf")


@pytest.mark.parametrize("chip", CHIPS)
def test_chip(chip: str) -> None:
    check([int8_gemm(*shape) for shape in [(1, 1, 1), (7, 13, 17), (127, 44, 72), (129, 63, 130)]], chip)
    check([int8_gemm(m, 40, 37, run_time=True) for m in (0, 1, 127, 129)], chip, one_program=True)
