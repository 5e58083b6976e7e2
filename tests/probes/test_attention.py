"""Attention with online softmax: more keys than a block holds, run-time lengths, an additive mask."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.lowered import Case
from tests.probes.probe import CHIPS, HOSTS, Sample, check, check_aarch64, records_for

_HEADS = 2


def attention(s: int, t: int, d: int = 16, masked: bool = False, dtype: type = np.float32,
              run_time: bool = False) -> Sample:  # fmt: skip
    """softmax(q k' / sqrt(d) + mask) v for q [1, 2, s, d], k and v [1, 2, t, d]; scores leave the range of exp."""
    rng = np.random.default_rng(s + t)
    arrays = {"q": rng.normal(0, 2, (1, _HEADS, s, d)), "k": rng.normal(0, 2, (1, _HEADS, t, d)),
              "v": rng.normal(size=(1, _HEADS, t, d))}  # fmt: skip
    if masked:
        arrays["m"] = np.where(rng.random((1, 1, s, t)) < 0.4, -3e4, 0.0)
        arrays["m"][..., -1] = 0
    arrays = {name: a.astype(dtype) for name, a in arrays.items()}
    q, k, v = (arrays[name].astype(np.float64) for name in "qkv")
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(d) + (arrays["m"].astype(np.float64) if masked else 0)
    weights = np.exp(scores - scores.max(-1, keepdims=True)) if t and s else scores
    want = weights / weights.sum(-1, keepdims=True) @ v
    shapes = {"q": (1, _HEADS, "s", d), "k": (1, _HEADS, "t", d), "v": (1, _HEADS, "t", d), "y": (1, _HEADS, "s", d),
              "m": (1, 1, "s", "t")}  # fmt: skip
    case = Case("attention", [("Attention", list(arrays), ["y"], {})], arrays, ["y"], [], shapes if run_time else {},
                dims={"s": s, "t": t})  # fmt: skip
    tolerance = 6e-3 if dtype == np.float16 else 1e-5
    return Sample(case, {"y": want}, {"y": want.astype(dtype)}, tolerance, tolerance)


LENGTHS = [(0, 5), (1, 1), (1, 513), (5, 600), (63, 511), (64, 512), (65, 513), (130, 33), (7, 1031)]


@pytest.mark.parametrize("host", HOSTS)
def test_static_lengths(host: str) -> None:
    check([attention(s, t) for s, t in [(1, 1), (65, 63), (66, 1025)]], host)


@pytest.mark.parametrize("host", HOSTS)
def test_run_time_lengths(host: str) -> None:
    check([attention(s, t, 16, True, run_time=True) for s, t in LENGTHS], host, one_program=True)


def test_aarch64() -> None:
    (record,) = records_for(attention(64, 600, run_time=True), "aarch64")
    check_aarch64(record.program.encode(), "fmla")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("masked", [False, True])
def test_chip(chip: str, masked: bool) -> None:
    """Several blocks of keys and queries, and tails of both."""
    dtype = np.float16 if chip == "Ascend310P3" else np.float32
    check([attention(s, t, 16, masked, dtype) for s, t in [(1, 1), (65, 63), (7, 129)]], chip)
    check([attention(s, t, 16, masked, dtype, True) for s, t in [(1, 1), (63, 65), (65, 129)]], chip, one_program=True)
