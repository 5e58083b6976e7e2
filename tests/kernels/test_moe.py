"""The sort of choices by expert against numpy's stable sort, on hosts and on chips by verifier and interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from acl_runtime.aicpu import evaluate
from codegen.kernels.moe import lower_moe
from codegen.targets import target
from codegen.tile.instructions import STATUS_RANGE
from codegen.tile.interpreter import TaskStatus
from tensor_types.errors import InvalidModel
from tests.kernels.lowered import aligned, check, execute
from tests.kernels.moe_cases import Given
from tests.kernels.on_chips import CHIPS, check_on_chips
from tests.llvm.native import HOSTS

rng = np.random.default_rng(3)
OUTPUTS = ("offsets", "choices", "tokens", "rows")


def by_definition(indices: np.ndarray, experts: int) -> dict[str, np.ndarray]:
    """The four results, choice by choice in Python."""
    flat = indices.reshape(-1).tolist()
    choices = [c for e in range(experts) for c, chosen in enumerate(flat) if chosen == e]
    offsets = [sum(chosen < e for chosen in flat) for e in range(experts + 1)]
    rows = np.zeros(len(flat), np.int64)
    for row, choice in enumerate(choices):
        rows[choice] = row
    tokens = [c // indices.shape[-1] for c in choices]
    return {"offsets": np.array(offsets, np.int64), "choices": np.array(choices, np.int64),
            "tokens": np.array(tokens, np.int64), "rows": rows.reshape(indices.shape)}  # fmt: skip


def route(indices: np.ndarray, experts: int, outputs: tuple[str, ...] = OUTPUTS, static: bool = False) -> Given:
    count = indices.size if static else "count"
    lead = indices.shape[:-1] if static else ("tokens", *indices.shape[1:-1])
    shape = (*lead, indices.shape[-1])
    symbolic = {"indices": shape, "rows": shape, "choices": (count,), "tokens": (count,)}
    dims = {"tokens": indices.shape[0], "count": indices.size}
    ops = [("MoeRoute", ["indices"], OUTPUTS, {"experts": experts})]
    return Given("moe", ops, {"indices": indices}, outputs, (), symbolic, dims=dims,
                 made=by_definition(indices, experts))  # fmt: skip


CASES = [
    (rng.integers(0, 8, (64, 2)), 8),
    (rng.integers(0, 5, (1, 1)), 5),
    (rng.integers(0, 3, (7, 4)), 9),
    (np.zeros((33, 2), np.int64), 4),
    (np.full((33, 1), 3), 4),
    (rng.permutation(12).reshape(12, 1), 12),
    (rng.integers(0, 2, (3, 5, 2)), 2),
    (np.zeros((0, 2), np.int64), 3),
]


@pytest.mark.parametrize(("indices", "experts"), CASES, ids=lambda v: str(getattr(v, "shape", v)))
def test_hosts(indices: np.ndarray, experts: int) -> None:
    check(route(indices, experts), lower_moe)
    check(route(indices, experts, static=True), lower_moe)


@pytest.mark.parametrize("outputs", [("rows",), ("offsets", "tokens")], ids=str)
def test_some_results_alone(outputs: tuple[str, ...]) -> None:
    check(route(rng.integers(0, 8, (9, 2)), 8, outputs), lower_moe)


@pytest.mark.parametrize(("indices", "experts"), CASES, ids=lambda v: str(getattr(v, "shape", v)))
def test_ai_cpu(indices: np.ndarray, experts: int) -> None:
    want = by_definition(indices, experts)
    got = evaluate("MoeRoute", {"experts": experts}, [indices], 4)
    for name, result in zip(OUTPUTS, got, strict=True):
        assert result.dtype == np.int64
        np.testing.assert_array_equal(result, want[name], err_msg=name)


@pytest.mark.parametrize("wrong", [-1, 4, 1 << 40])
def test_an_expert_that_does_not_exist_ends_the_task(wrong: int) -> None:
    given = route(np.array([[0, 3], [2, 1]]), 4)
    given.arrays = {"indices": np.array([[0, 3], [wrong, 1]])}
    for host in HOSTS:
        values = {n: aligned(a) for n, a in {**given.arrays, **given.made}.items()}
        with pytest.raises(RuntimeError, match=f"status {STATUS_RANGE} "):
            execute(lower_moe(given.fused(), target(host)) or [], values, given.dims, host)
    with pytest.raises(InvalidModel, match="an expert outside"):
        evaluate("MoeRoute", {"experts": 4}, [given.arrays["indices"]], 4)


@pytest.mark.parametrize(("indices", "experts"), CASES[:7], ids=lambda v: str(getattr(v, "shape", v)))
def test_chips(indices: np.ndarray, experts: int) -> None:
    check_on_chips(route(indices, experts), lower_moe, 0, 0)


@pytest.mark.parametrize("chip", CHIPS)
def test_an_expert_that_does_not_exist_ends_the_task_on_a_chip(chip: str) -> None:
    given = route(np.array([[0, 3], [2, 1]]), 4)
    given.arrays = {"indices": np.array([[0, 3], [4, 1]])}
    with pytest.raises(TaskStatus):
        check_on_chips(given, lower_moe, 0, 0, [chip])
