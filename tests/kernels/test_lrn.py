"""Local response normalisation against onnxruntime: windows, tails, run-time sizes, both chips."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.kernels import lower_node
from tests.kernels.lowered import CHIPS, HOSTS, Case, check

RNG = np.random.default_rng(4)
ATTRS = {"alpha": 0.3, "beta": 0.6, "bias": 1.5}


def case(shape: tuple[int, ...], size: int, **more) -> Case:  # noqa: ANN003
    x = RNG.normal(size=shape).astype(np.float32)
    return Case("lrn", [("LRN", ["x"], ["y"], {"size": size, **ATTRS})], {"x": x}, ["y"], **more)


@pytest.mark.parametrize("size", [1, 3, 5, 9, 21])
def test_windows(size: int) -> None:
    check(case((2, 7, 5, 6), size), lower_node, 1e-5, 1e-6, HOSTS[-1:])


@pytest.mark.parametrize("shape", [(1, 70, 15, 10), (3, 1, 4, 4), (1, 64, 16, 8), (2, 65, 3, 43)])
def test_blocks_with_tails(shape: tuple[int, ...]) -> None:
    check(case(shape, 5), lower_node, 1e-5, 1e-6, HOSTS)


def test_run_time_sizes() -> None:
    symbolic = {n: ("n", "c", "h", 9) for n in "xy"}
    given = case((2, 70, 20, 9), 5, symbolic=symbolic, dims={"n": 2, "c": 70, "h": 20})
    check(given, lower_node, 1e-5, 1e-6, HOSTS[-1:])


def test_halves_are_summed_in_f32() -> None:
    x = (RNG.normal(size=(1, 12, 6, 7)) * 20).astype(np.float16)
    given = Case("lrn", [("LRN", ["x"], ["y"], {"size": 5, **ATTRS})], {"x": x}, ["y"], wide=True)
    check(given, lower_node, 2e-3, 1e-3, HOSTS[-1:])


@pytest.mark.parametrize("chip", CHIPS)
def test_on_chips(chip: str) -> None:
    check(case((1, 70, 3, 50), 5), lower_node, 1e-5, 1e-6, [chip])
