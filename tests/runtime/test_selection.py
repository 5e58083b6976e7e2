"""TopK of long rows on the AI CPU: ties, NaN, both ends and every axis, against a plain stable sort."""

from __future__ import annotations

import numpy as np
import pytest

from acl_runtime.aicpu import evaluate
from tensor_types.errors import InvalidModel

rng = np.random.default_rng(0)
ROWS = {
    "numbers": rng.standard_normal((3, 5000)).astype(np.float32),
    "ties": rng.integers(0, 4, (3, 5000)).astype(np.float32),
    "equal": np.zeros((2, 999), np.float32),
    "rising": np.arange(4001, dtype=np.int64)[None],
    "bytes": rng.integers(0, 256, (2, 3000)).astype(np.uint8),
    "nan": np.where(rng.random((4, 2000)) < 0.01, np.nan, rng.standard_normal((4, 2000))).astype(np.float32),
    "infinite": np.where(rng.random((4, 2000)) < 0.3, -np.inf, 1.0).astype(np.float16),
}  # fmt: skip


@pytest.mark.parametrize("k", [0, 1, 17, 300, 999])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("name", ROWS)
def test_the_best_of_long_rows(name: str, largest: int, k: int) -> None:
    x = ROWS[name]
    sign = -1 if largest else 1
    keys = [(not np.isnan(v) if largest else np.isnan(v), sign * float(v)) for v in x.reshape(-1)] if x.dtype.kind == "f" \
        else [(False, sign * int(v)) for v in x.reshape(-1)]  # fmt: skip
    n = x.shape[1]
    wanted = np.array([sorted(range(n), key=lambda i, r=r: _key(keys[r * n + i]))[:k] for r in range(len(x))], np.int64)
    for axis, array, order in ((-1, x, wanted.reshape(len(x), k)), (0, x.T, wanted.reshape(len(x), k).T)):
        values, indices = evaluate("TopK", {"axis": axis, "largest": largest}, [array, np.array([k])], 2)
        np.testing.assert_array_equal(indices, order)
        np.testing.assert_array_equal(values, np.take_along_axis(array, order, axis))


def _key(pair: tuple[bool, float]) -> tuple[bool, float]:
    return (pair[0], 0.0 if np.isnan(pair[1]) else pair[1])


def test_more_than_there_are() -> None:
    with pytest.raises(InvalidModel, match="8 of 7 elements"):
        evaluate("TopK", {}, [np.zeros((2, 7), np.float32), np.array([8])], 2)
