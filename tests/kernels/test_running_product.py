"""Running products against numpy: every axis, both switches, run-time sizes, halves, chips."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.kernels import lower_node
from tests.kernels.lowered import CHIPS, HOSTS, Case, check

RNG = np.random.default_rng(5)


class Running(Case):
    """onnxruntime has no CumProd."""

    def expected(self) -> dict[str, np.ndarray]:
        (_, _, _, attrs), x, at = self.ops[0], self.arrays["x"], int(self.arrays["a"])
        wide = x.astype(np.float32) if x.dtype == np.float16 else x
        flipped = np.flip(wide, at) if attrs.get("reverse") else wide
        if attrs.get("exclusive"):
            first = np.ones_like(np.take(flipped, [0], at))
            flipped = np.concatenate([first, np.take(flipped, range(x.shape[at] - 1), at)], at)
        found = np.cumprod(flipped, at, dtype=wide.dtype)
        return {"y": (np.flip(found, at) if attrs.get("reverse") else found).astype(x.dtype)}


def case(x: np.ndarray, at: int, **attrs: int) -> Running:
    return Running("running_product", [("CumProd", ["x", "a"], ["y"], attrs)], {"x": x, "a": np.array(at)}, ["y"], ["a"])


@pytest.mark.parametrize("attrs", [{}, {"reverse": 1}, {"exclusive": 1}, {"reverse": 1, "exclusive": 1}], ids=str)
@pytest.mark.parametrize("at", [0, 1, -1])
def test_axes_and_switches(at: int, attrs: dict[str, int]) -> None:
    x = RNG.uniform(0.8, 1.2, (9, 11, 37)).astype(np.float32)
    check(case(x, at, **attrs), lower_node, hosts=[*HOSTS, *CHIPS])


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32])
def test_dtypes(dtype: type) -> None:
    x = RNG.integers(1, 3, (3, 5, 70)) if dtype is np.int32 else RNG.uniform(0.8, 1.2, (3, 5, 70))
    hosts = HOSTS if dtype is np.float64 else [*HOSTS, *CHIPS]
    check(case(x.astype(dtype), 1), lower_node, 2e-3 if dtype is np.float16 else 1e-6, 0, hosts)


def test_run_time_sizes_and_long_rows() -> None:
    x = RNG.uniform(0.8, 1.2, (3, 17, 2100)).astype(np.float32)
    given = case(x, 1)
    given.symbolic, given.dims = {n: ("a", "b", "c") for n in "xy"}, {"a": 3, "b": 17, "c": 2100}
    check(given, lower_node, hosts=[*HOSTS, *CHIPS])
