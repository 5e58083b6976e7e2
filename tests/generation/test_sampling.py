"""The choice of a token, against a plain restatement of its rules."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acl_runtime.generation import Sampling
from tensor_types.errors import EnvironmentProblem


class Fixed:
    """A generator that draws one number."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


def plain(logits: list[float], seen: list[int], s: Sampling, draw: float) -> int:
    scores = [
        (v / s.repetition_penalty if v > 0 else v * s.repetition_penalty) if t in seen else v for t, v in enumerate(logits)
    ]
    if s.temperature == 0:
        return max(range(len(scores)), key=lambda t: (scores[t], -t))
    order = sorted(range(len(scores)), key=lambda t: (-scores[t], t))
    if s.top_k:
        order = order[: s.top_k]
    odds = [math.exp((scores[t] - scores[order[0]]) / s.temperature) for t in order]
    total = sum(odds)
    kept, mass = 0, 0.0
    for odd in odds:
        kept += 1
        mass += odd / total
        if mass >= s.top_p:
            break
    odds = odds[:kept]
    at, total = 0.0, sum(odds)
    for token, odd in zip(order, odds, strict=False):
        at += odd
        if draw * total < at:
            return token
    return order[kept - 1]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=12), st.lists(st.integers(0, 11), max_size=5),
    st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.integers(0, 6), st.sampled_from([0.3, 0.85, 1.0]),
    st.sampled_from([1.0, 1.3]), st.floats(0.01, 0.99),
)  # fmt: skip
def test_the_rules(
    logits: list[float], seen: list[int], temperature: float, k: int, p: float, penalty: float, draw: float
) -> None:
    seen = [t for t in seen if t < len(logits)]
    sampling = Sampling(temperature, k, p, penalty)
    got = sampling.choose(np.array(logits, np.float32), seen, Fixed(draw))  # type: ignore[arg-type]
    want = {plain(logits, seen, sampling, draw + d) for d in (-1e-9, 0, 1e-9)}  # a draw may fall on an edge
    assert got in want


def test_ties_go_to_the_lowest_token() -> None:
    assert Sampling().choose(np.array([1, 3, 3, 2], np.float32), [], np.random.default_rng(0)) == 1


@pytest.mark.parametrize("wrong", [{"temperature": -1}, {"top_k": -1}, {"top_p": 0}, {"top_p": 1.1},
                                   {"repetition_penalty": 0}, {"temperature": math.nan}])  # fmt: skip
def test_values_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(EnvironmentProblem, match=next(iter(wrong))):
        Sampling(**wrong)  # type: ignore[arg-type]
