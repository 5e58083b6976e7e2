"""What a family claims is what it lowers: one answer, remembered by what it depends on, faults of families in the open."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen.kernels import NotLowerable, claims, lower_node, matmul
from codegen.targets import target
from graph_opt.ir import Node
from graph_opt.plan.records import KernelRecord
from tests.kernels.lowered import Case

HOST = target("x86-64-v3")


def product(rows: int = 5, weight: np.ndarray | None = None, names: str = "aby", dtype: type = np.float32) -> Node:
    a, b, y = names
    held = np.ones((8, 96), dtype) if weight is None else weight
    arrays = {a: np.ones((rows, 8), dtype), b: held}
    case = Case("matmul", [("MatMul", [a, b], [y], {})], arrays, [y], [b])
    return case.node({y: np.ones((rows, held.shape[1]), dtype)})


def test_claims_and_lowering_are_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[Node] = []
    lower = matmul.lower_matmul
    monkeypatch.setattr(matmul, "lower_matmul", lambda node, on: lowered.append(node) or lower(node, on))
    weight = np.random.default_rng(1).standard_normal((8, 96)).astype(np.float32)
    node = product(17, weight)
    assert claims(node, HOST) is None and lower_node(node, HOST) == lower(node, HOST)
    assert lowered == [node]
    assert claims(product(18, weight), HOST) is None and len(lowered) == 2


def test_a_node_like_another_gets_its_records_under_its_own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    small = np.ones((8, 4), np.float32)
    first = lower_node(product(33, small), HOST)
    monkeypatch.setattr(matmul, "lower_matmul", lambda node, on: pytest.fail("lowered again"))
    (again,) = lower_node(product(33, small, "pqr"), HOST)
    assert isinstance(again, KernelRecord)
    assert [o.value for o in again.operands] == ["p", "q", "r"]
    assert again == replace(first[0], operands=again.operands)


def test_constants_count() -> None:
    """Big ones by identity, small ones by content: a cut at 1 is not one at 2."""

    def cut(start: int) -> Node:
        arrays = {"x": np.arange(6, dtype=np.float32), "s": np.array([start]), "e": np.array([start + 3])}
        case = Case("movement", [("Slice", ["x", "s", "e"], ["y"], {})], arrays, ["y"], ["s", "e"])
        return case.node({"y": np.zeros(3, np.float32)})

    texts = {record.program for start in (1, 2) for record in lower_node(cut(start), HOST)}
    assert len(texts) == 2


def test_reasons_of_refusal_are_remembered_and_raised() -> None:
    node = product(5, dtype=np.int16)
    reason = claims(node, HOST)
    assert reason == "no matmul kernel for i16"
    with pytest.raises(NotLowerable, match="no matmul kernel for i16"):
        lower_node(node, HOST)


def test_a_program_that_the_verifier_refuses_is_a_fault_to_report(monkeypatch: pytest.MonkeyPatch) -> None:
    lower = matmul.lower_matmul

    def wrong(node: Node, on: object) -> list[KernelRecord]:
        (record,) = lower(node, on)
        return [replace(record, program=record.program.replace("TSTORE p2[", "TSTORE p2[1 + "))]

    monkeypatch.setattr(matmul, "lower_matmul", wrong)
    reason = claims(product(41), HOST)
    assert reason is not None and reason.startswith("please report: the matmul kernel is refused by the verifier")


def test_targets_are_asked_apart() -> None:
    node = product(9, dtype=np.float64)
    assert claims(node, HOST) is None
    assert claims(node, target("Ascend310P3")) is not None
