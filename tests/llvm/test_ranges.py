"""What is known of a vector saves work when it becomes integers; numbers stay those of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.llvm.lower import lower
from codegen.llvm.ranges import ANYTHING, Range, of_operation
from codegen.tile.build import ProgramBuilder
from codegen.tile.ir import Program
from tensor_types.dtypes import F32, I32, U8
from tests.llvm.checked import compare

SPECIAL = [0.5, 1.5, 2.5, -0.5, -3.5, 254.5, 255.5, 1e30, -1e30, np.inf, -np.inf, np.nan, 0.0, -0.0]


def quantised(low: float | None, high: float | None, source: str = "f32") -> Program:
    """round(clip(x)) by way of i32 as bytes."""
    b = ProgramBuilder("quantised")
    x = b.param("x", U8 if source == "u8" else F32, (64,), "in").whole()
    y = b.param("y", U8, (64,), "out").whole()
    t, w, n = (b.tile(name, dtype, (64,)).whole() for name, dtype in (("t", F32), ("w", I32), ("n", U8)))
    b.cvt(t, x) if source == "u8" else b.mov(t, x)
    b.mul(t, t, 0.75)
    if low is not None:
        b.max(t, t, low)
    if high is not None:
        b.min(t, t, high)
    b.round(t, t)
    b.cvt(w, t)
    b.cvt(n, w)
    b.store(y, n)
    return b.finish()


@pytest.mark.parametrize("bounds", [(0.0, 255.0), (-7.0, 200.0), (None, 255.0), (0.0, None), (None, None)])
def test_results_are_the_interpreters(bounds: tuple[float | None, float | None]) -> None:
    draw = np.random.default_rng(2).standard_normal(64 - len(SPECIAL)) * 200
    x = np.array([*SPECIAL, *draw], np.float32)
    compare(quantised(*bounds), {"x": x})


@pytest.mark.parametrize(("program", "comparisons"), [(quantised(0.0, 255.0), 3), (quantised(0.0, 255.0, "u8"), 2)])
def test_what_is_clipped_is_converted_by_one_instruction(program: Program, comparisons: int) -> None:
    """Numbers of unknown origin may be NaN; what was a byte is none."""
    text = lower(program, "x86-64-v4")
    assert "llvm.lrint" in text and "fptosi" not in text
    assert text.count("fcmp") == comparisons * text.count("call <16 x i32> @llvm.lrint")


def test_ranges() -> None:
    byte, any_number = Range(0, 255, True), Range(-5, 5, False)
    assert of_operation("TMAX", ANYTHING, Range(0, 0, True)) == Range(0, float("inf"), False)
    assert of_operation("TMIN", any_number, byte) == Range(-5, 5, False)
    doubled = of_operation("TMUL", byte, Range(-2, -2, True))
    assert doubled.numbers and doubled.least <= -510 and doubled.greatest >= 0
    assert of_operation("TADD", byte, any_number) == ANYTHING
    assert of_operation("TMUL", byte, Range(0, 1e38, True)) == ANYTHING
    assert of_operation("TDIV", byte, byte) == ANYTHING
