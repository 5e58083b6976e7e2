"""Casts of 64-bit integers on chips, whose vector engines have none: numbers of one word, of two, and of either sign."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from codegen.kernels.region import lower_region
from tests.kernels.lowered import Case
from tests.kernels.on_chips import check_on_chips

EDGES = [0, 1, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 2**32 - 1, -(2**32), 2**62, -(2**62), 16777217]
NUMBERS = np.array([*EDGES, *np.random.default_rng(2).integers(-(2**62), 2**62, 37)], np.int64).reshape(5, 10)


@pytest.mark.parametrize("to", ["FLOAT", "INT32", "BOOL"])
def test_a_cast_of_wide_integers(to: str) -> None:
    case = Case("region", [("Cast", ["x"], ["y"], {"to": getattr(TensorProto, to)})], {"x": NUMBERS}, ["y"])
    check_on_chips(case, lower_region, rtol=2**-23, atol=0)


def test_a_mask_of_token_ids() -> None:
    ops = [
        ("Cast", ["x"], ["f"], {"to": TensorProto.FLOAT}),
        ("Sub", ["one", "f"], ["s"], {}),
        ("Mul", ["s", "far"], ["y"], {}),
    ]
    arrays = {
        "x": np.random.default_rng(0).integers(0, 2, (2, 1, 1, 70)),
        "one": np.array(1, np.float32),
        "far": np.array(-1e30, np.float32),
    }
    case = Case("region", ops, arrays, ["y", "f"], constants=["one", "far"])
    check_on_chips(case, lower_region, rtol=0, atol=0)
