"""Every element-wise and reduction operator, in every dtype, on NaN, infinities, zeros with signs, denormals, the ends
of the integers and nothing at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import atc
from acl_runtime import InferSession
from tests.conformance.numerics import (
    NUMBERS,
    Case,
    difference,
    elementwise_cases,
    fed,
    model,
    reduction_cases,
    references,
    special,
)

AT_ONCE = 40
"""Cases of one package."""
QUICK = ("float", "int32")


def run(cases: list[Case], folder: Path) -> list[np.ndarray]:
    onnx.save(model(cases), folder / "m.onnx")
    atc.convert(folder / "m.onnx", folder / "m.om")
    return InferSession(0, folder / "m.om").infer(fed(cases))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.long) for n in NUMBERS])
def test_special_values(dtype: str, tmp_path: Path) -> None:
    cases = [c for c in (*elementwise_cases(), *reduction_cases()) if c.dtype == dtype]
    found = []
    for start in range(0, len(cases), AT_ONCE):
        part = cases[start : start + AT_ONCE]
        for case, ours in zip(part, run(part, tmp_path), strict=True):
            theirs = references(case)
            found.append(difference(case, ours, theirs) if theirs else f"{case}: nobody else computes it")
    assert not [f for f in found if f], "\n".join(f for f in found if f)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_the_least_integer_by_minus_one(dtype: str, tmp_path: Path) -> None:
    """Where processors trap: the quotient wraps around, the remainder is 0."""
    values = special(NUMBERS[dtype])
    cases = [Case("Div", dtype, (values, np.array(-1, values.dtype))), Case("Mod", dtype, (values, np.array(-1, values.dtype)))]
    quotient, remainder = run(cases, tmp_path)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(quotient, -values)
    np.testing.assert_array_equal(remainder, np.zeros_like(values))


def test_a_wrong_result_is_seen() -> None:
    case = Case("Neg", "float", (special(NUMBERS["float"]),))
    theirs = references(case)
    right = -case.arrays[0]
    assert not difference(case, right, theirs)
    for at, value in ((0, 0.0), (3, np.nan), (-1, 1.0), (1, -0.10001)):
        wrong = right.copy()
        wrong[at] = value
        assert difference(case, wrong, theirs)
