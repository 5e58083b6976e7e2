"""TopK against onnxruntime, NaN against numpy; on hosts and on chips by verifier and interpreter."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from codegen.kernels.operands import NotLowerable
from codegen.kernels.topk import lower_topk
from codegen.targets import target
from tests.kernels.lowered import Case, aligned, check, execute
from tests.kernels.on_chips import check_on_chips
from tests.llvm.native import HOSTS

rng = np.random.default_rng(7)


def case(x: np.ndarray, k: int, shape: tuple[int | str, ...] | None = None, **attrs: int) -> Case:
    """TopK of x; `shape` names its run-time extents."""
    named = shape or x.shape
    where = attrs.get("axis", -1)
    result = list(named)
    result[where] = k
    dims = {d: n for d, n in zip(named, x.shape, strict=True) if isinstance(d, str)}
    symbolic = {"x": named, "v": result, "i": result} if dims else {}
    arrays = {"x": x, "k": np.array([k], np.int64)}
    return Case("topk", [("TopK", ["x", "k"], ["v", "i"], attrs)], arrays, ["v", "i"], ["k"], symbolic, dims=dims)


def ties(*shape: int) -> np.ndarray:
    """Few different numbers, so that most are equal to another; both zeros and infinities are among them."""
    return rng.choice(np.array([-np.inf, -1.5, -0.0, 0.0, 2.25, np.inf], np.float32), shape)


@pytest.mark.parametrize("largest", [1, 0])
@pytest.mark.parametrize(
    ("x", "k", "axis"),
    [
        (ties(5, 7), 7, -1),
        (ties(3, 1), 1, 1),
        (ties(67, 8), 2, 1),
        (ties(17), 5, 0),
        (ties(4, 9, 5), 3, 1),
        (ties(13, 70), 4, 0),
        (rng.normal(size=(2, 1031)).astype(np.float32), 9, -1),
        (rng.integers(-3, 3, (6, 20)), 6, -1),
        (rng.integers(-3, 3, (6, 20)).astype(np.int32), 6, 0),
        (np.full((2, 6), np.iinfo(np.int64).min), 3, -1),
        (np.full((2, 6), np.iinfo(np.int64).max), 3, -1),
        (rng.normal(size=(3, 33)), 4, -1),
        (ties(0, 4), 2, -1),
    ],
    ids=lambda v: f"{v.dtype}{list(v.shape)}" if isinstance(v, np.ndarray) else str(v),
)
def test_hosts(x: np.ndarray, k: int, axis: int, largest: int) -> None:
    check(case(x, k, axis=axis, largest=largest), lower_topk, rtol=0, atol=0)


def test_unsorted_results_are_the_same_set() -> None:
    made = case(rng.permutation(40).astype(np.float32).reshape(2, 20), 6, sorted=0)
    want = {"v": np.sort(made.arrays["x"])[:, :-7:-1], "i": np.argsort(made.arrays["x"])[:, :-7:-1]}
    for host in HOSTS:
        values = run(made, want, host)
        for name in want:
            np.testing.assert_array_equal(np.sort(values[name]), np.sort(want[name]), err_msg=f"{host} {name}")


@pytest.mark.parametrize("tokens", [1, 7, 1500])
def test_a_run_time_number_of_rows(tokens: int) -> None:
    check(case(ties(tokens, 8), 2, ("tokens", 8)), lower_topk, rtol=0, atol=0)
    check(case(ties(3, 5, tokens), 2, (3, 5, "tokens"), axis=1), lower_topk, rtol=0, atol=0)


@pytest.mark.parametrize("largest", [1, 0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16], ids=lambda d: d.__name__)
def test_nan_is_larger_than_every_number(largest: int, dtype: type) -> None:
    x = rng.choice(np.array([np.nan, -np.inf, 0, 3, np.inf], np.float32), (9, 11))
    # Stable on keys of two parts: NaN or not, then the number; equal keys keep the order of their indices.
    sign = -1 if largest else 1
    order = np.array([sorted(range(11), key=lambda j: (sign * np.isnan(v[j]), sign * np.nan_to_num(v[j]))) for v in x])
    want = {"v": np.take_along_axis(x, order, 1)[:, :8].astype(dtype), "i": order[:, :8]}
    for host in HOSTS:
        values = run(case(x.astype(dtype), 8, largest=largest), want, host)
        np.testing.assert_array_equal(values["i"], want["i"], err_msg=host)
        np.testing.assert_array_equal(values["v"].astype(np.float64), want["v"].astype(np.float64), err_msg=host)


def run(made: Case, want: dict[str, np.ndarray], host: str) -> dict[str, np.ndarray]:
    """The outputs that a host class computes; `want` gives their shapes and dtypes."""
    records = lower_topk(made.node(want), target(host))
    assert records
    results = {n: np.full_like(a, 77) for n, a in want.items()}
    values = {n: aligned(a) for n, a in {**made.arrays, **results}.items()}
    execute(records, values, made.dims, host)
    return values


@pytest.mark.parametrize("output", ["v", "i"])
def test_one_result_alone(output: str) -> None:
    made = case(ties(5, 9), 3)
    made.outputs = [output]
    check(made, lower_topk, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (case(ties(2, 70), 65), "long"),
        (case(ties(2, 8193), 2), "long"),
        (case(ties(2, 8), 2, (2, "n")), "run-time length"),
    ],
)
def test_what_the_kernel_declines(made: Case, reason: str) -> None:
    with pytest.raises(NotLowerable, match=reason):
        lower_topk(made.node(made.expected()), target("x86-64-v3"))


def test_a_run_time_number_of_results_is_declined() -> None:
    made = case(ties(2, 8), 3)
    made.constants = []
    with pytest.raises(NotLowerable, match="number of results"):
        lower_topk(made.node(made.expected()), target("x86-64-v3"))


@pytest.mark.parametrize("largest", [1, 0])
@pytest.mark.parametrize(
    ("shape", "k", "axis"),
    [((67, 8), 2, 1), ((3, 5), 5, 1), ((4, 9, 5), 3, 1), ((7, 40), 4, 0), ((300, 1), 1, 1), ((2, 8192), 3, 1)],
)
def test_chips(shape: tuple[int, ...], k: int, axis: int, largest: int) -> None:
    check_on_chips(case(ties(*shape), k, axis=axis, largest=largest), lower_topk, 0, 0)
    check_on_chips(case(ties(*shape).astype(np.float16), k, axis=axis, largest=largest), lower_topk, 0, 0)
