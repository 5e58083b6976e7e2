"""Metrics and verdicts against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from atc.comparing.rows import difference, verdict_of


def test_metrics():
    found = difference(np.array([3.0, 4.0], np.float32), np.array([3.0, 3.0], np.float32))
    assert found.rel_l2 == pytest.approx(1 / np.sqrt(18))
    assert found.cosine == pytest.approx(21 / (5 * np.sqrt(18)))
    assert found.max_abs == 1


def test_zeros_and_single_elements():
    zero, one = np.zeros(3, np.float32), np.ones(3, np.float32)
    assert difference(zero, zero).cosine == 1 and difference(zero, zero).rel_l2 == 0
    assert difference(one, zero).cosine == 0 and verdict_of(difference(one, zero), "f32") == "fail"
    assert difference(np.float32([2]), np.float32([-2])).cosine is None


def test_equal_non_finite_elements_are_left_out_and_others_fail():
    golden = np.array([1, np.nan, np.inf, -np.inf], np.float32)
    same = difference(golden.copy(), golden)
    assert (same.nonfinite, same.mismatched, same.rel_l2) == (3, 0, 0) and verdict_of(same, "f32") == "pass"
    for other in ([1, 0, np.inf, -np.inf], [1, np.nan, -np.inf, -np.inf], [np.nan, np.nan, np.inf, -np.inf]):
        found = difference(np.array(other, np.float32), golden)
        assert found.mismatched == 1 and verdict_of(found, "f32") == "fail"


@pytest.mark.parametrize(
    ("error", "dtype", "verdict"),
    [
        (5e-5, "f32", "pass"), (5e-4, "f32", "warn"), (5e-3, "f32", "fail"),
        (5e-3, "f16", "pass"), (2e-2, "f16", "warn"), (8e-2, "f16", "fail"),
        (2e-2, "bf16", "pass"), (5e-2, "bf16", "warn"), (2e-1, "bf16", "fail"),
    ],
)  # fmt: skip
def test_limits_of_each_dtype(error, dtype, verdict):
    golden = np.random.default_rng(0).standard_normal(1000)
    assert verdict_of(difference(golden * (1 + error), golden), dtype) == verdict


def test_integers_are_exact_unless_an_activation_was_rounded_before():
    golden = np.array([10, 20, 30], np.uint8)
    near, far = difference(golden + np.uint8(1), golden), difference(golden * 2, golden)
    assert verdict_of(difference(golden, golden), "u8") == "pass"
    assert verdict_of(near, "u8") == "fail" and verdict_of(near, "u8", quantised=True) == "pass"
    assert verdict_of(far, "u8", quantised=True) == "fail"
    assert verdict_of(near, "bool") == "fail"


def test_sequences_and_strings():
    parts = [np.ones((2, 3), np.float32), np.zeros((1, 3), np.float32)]
    assert difference([p.copy() for p in parts], parts).max_abs == 0
    with pytest.raises(ValueError, match="shape"):
        difference(parts[::-1], parts)
    words = np.array(["a", "b"], object)
    assert difference(np.array(["a", "c"], object), words).mismatched == 1
    assert difference(words, words).mismatched == 0


def test_another_shape_is_refused():
    with pytest.raises(ValueError, match="shape"):
        difference(np.ones((2, 3)), np.ones((3, 2)))


def test_no_metrics_where_nothing_is_comparable():
    nothing = np.full(4, np.nan, np.float32)
    found = difference(nothing, nothing)
    assert (found.cosine, found.rel_l2, found.max_abs) == (None, None, None)
    assert (found.nonfinite, found.mismatched) == (4, 0) and verdict_of(found, "f32") == "pass"
    against_numbers = difference(nothing, np.ones(4, np.float32))
    assert against_numbers.cosine is None and verdict_of(against_numbers, "f32") == "fail"
