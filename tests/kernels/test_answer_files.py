"""Answers on disk: what was found out in one process is not found out in another, and holds only for what it is of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from codegen.kernels import claims, lower_node, matmul, registry, remembered_on_disk
from codegen.kernels.answer_files import answer_files
from codegen.targets import target
from graph_opt.ir import Node
from graph_opt.plan.records import KernelRecord, Record
from tests.kernels.lowered import Case

HOST = target("x86-64-v3")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENATC_CACHE", str(tmp_path / "cache"))


def product(names: str = "aby", zero: np.ndarray | None = None) -> Node:
    """A product with 96 columns, of floats or, with zero points for its columns, of bytes."""
    a, b, y = names
    dtype = np.float32 if zero is None else np.uint8
    arrays = {a: np.ones((5, 8), dtype), b: np.ones((8, 96), dtype)}
    if zero is None:
        case = Case("matmul", [("MatMul", [a, b], [y], {})], arrays, [y], [b])
        return case.node({y: np.ones((5, 96), np.float32)})
    arrays |= {"az": np.zeros((), np.uint8), "bz": zero}
    case = Case("matmul", [("MatMulInteger", [a, b, "az", "bz"], [y], {})], arrays, [y], [b, "az", "bz"])
    return case.node({y: np.ones((5, 96), np.int32)})


def in_new_process(node: Node, on: object = HOST) -> list[Record] | str:
    """The answer of a process that remembers nothing itself."""
    registry._answers.clear()
    with remembered_on_disk():
        why = claims(node, on)  # type: ignore[arg-type]
        return why if why is not None else lower_node(node, on)  # type: ignore[arg-type]


def test_records_are_those_that_lowering_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    lower = matmul.lower_matmul
    first = in_new_process(product())
    monkeypatch.setattr(matmul, "lower_matmul", lambda node, on: pytest.fail("lowered again"))
    assert in_new_process(product()) == first == lower(product(), HOST)
    (again,) = in_new_process(product("pqr"))
    assert isinstance(again, KernelRecord) and isinstance(first[0], KernelRecord)
    assert [o.value for o in again.operands] == ["p", "q", "r"]
    assert again == replace(first[0], operands=again.operands)
    with pytest.raises(pytest.fail.Exception, match="lowered again"):
        in_new_process(product(), target("x86-64-v2"))


def test_content_that_lowering_looked_at_counts() -> None:
    none, some = np.zeros(96, np.uint8), np.arange(96, dtype=np.uint8)
    for _ in range(2):
        assert not isinstance(in_new_process(product(zero=none)), str)
        assert in_new_process(product(zero=some)) == "a zero point for each row or column"


def test_names_that_stand_for_one_value_are_another_question() -> None:
    """x @ x is no product of two values."""

    def square(a: str, b: str) -> Node:
        case = Case("matmul", [("MatMul", [a, b], ["y"], {})], {n: np.ones((8, 8), np.float32) for n in (a, b)}, ["y"])
        return case.node({"y": np.ones((8, 8), np.float32)})

    for a, b in (("p", "q"), ("x", "x"), ("s", "t"), ("z", "z")):
        (record,) = in_new_process(square(a, b))
        assert isinstance(record, KernelRecord)
        assert {o.value for o in record.operands} == {a, b, "y"}


def test_what_the_verifier_refuses_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lower = matmul.lower_matmul

    def wrong(node: Node, on: object) -> list[KernelRecord]:
        (record,) = lower(node, on)
        return [replace(record, program=record.program.replace("TSTORE p2[", "TSTORE p2[1 + "))]

    with monkeypatch.context() as patch:
        patch.setattr(matmul, "lower_matmul", wrong)
        assert str(in_new_process(product())).startswith("please report")
    assert not isinstance(in_new_process(product()), str)


def test_an_answer_of_another_form_is_found_out_again() -> None:
    first = in_new_process(product())
    (path,) = answer_files().folder.glob("[!.]*")
    answer_files().write(path.name, b'{"records": [{"program": 1}]}')
    assert in_new_process(product()) == first


def test_the_first_miss_is_told_once() -> None:
    misses: list[str] = []
    for expected in (["miss"], ["miss"]):
        registry._answers.clear()
        with remembered_on_disk(lambda: misses.append("miss")):
            assert claims(product(), HOST) is None and claims(product(zero=np.zeros(96, np.uint8)), HOST) is None
        assert misses == expected


def test_nothing_is_kept_outside_of_a_conversion() -> None:
    registry._answers.clear()
    assert claims(product(), HOST) is None
    assert not answer_files().folder.exists()
