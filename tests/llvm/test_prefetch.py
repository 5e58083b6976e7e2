"""TPREFETCH: nothing but requests, for lines that the view has."""

from __future__ import annotations

import re

import numpy as np
import pytest

from codegen.llvm.lower import lower
from codegen.targets import target
from codegen.tile.interpreter import interpret
from codegen.tile.text import parse_program
from codegen.tile.verifier import verify
from tests.llvm.native import HOSTS, Kernel

PROGRAM = """program fetches (m in [0, inf]) {
  param in x: f32[m, 40, 24]
  param out y: f32[m, 24]
  tile t: f32[24] UB
  body {
    for i < m {
      TPREFETCH x[i, _0 + 2, _1]{3, 24}
      TLOAD t[_0]{24}, x[i, 0, _0]{24}
      TSTORE y[i, _0]{24}, t[_0]{24}
    }
  }
}"""


@pytest.mark.parametrize("host", HOSTS[-1:])
def test_results_are_those_without_it(host: str) -> None:
    program, without = (parse_program(text) for text in (PROGRAM, re.sub(r"TPREFETCH.*", "", PROGRAM)))
    x = np.random.default_rng(0).standard_normal((5, 40, 24)).astype(np.float32)
    results = []
    for one in (program, without):
        verify(one, target(host))
        y, z = np.zeros((5, 24), np.float32), np.zeros((5, 24), np.float32)
        kernel = Kernel(one, host)
        assert kernel.call(*kernel.arguments({"x": x, "y": y}, {"m": 5})) == 0
        interpret(one, {"x": x, "y": z}, {"m": 5})
        results += [y, z]
    for y in results:
        np.testing.assert_array_equal(y, x[:, 0])


def test_requests_are_in_the_code() -> None:
    assert "llvm.prefetch" in lower(parse_program(PROGRAM), target(HOSTS[-1]))
    assert "llvm.prefetch" not in lower(parse_program(re.sub(r"TPREFETCH.*", "", PROGRAM)), target(HOSTS[-1]))
