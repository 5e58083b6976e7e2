"""Runs that would go on for ever end with a code: loops of the AI CPU, grids of an interpreted chip, launches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from packages import elementwise, host, kernel, write

from acl_runtime import InferSession
from codegen.tile.interpreter import interpret
from codegen.tile.text import parse_program
from graph_opt.plan import ValueInfo
from tensor_types.deadline import run_deadline
from tensor_types.dtypes import BOOL, F32, I64
from tensor_types.errors import ResourceLimit

_STEP = {"op": "Neg", "attrs": {}, "inputs": ["x"], "outputs": ["y"]}


def _loop(path: Path, outputs: list[str]) -> InferSession:
    """A loop whose trip count is an input; it carries x, and with three outputs stacks it as well."""
    body = {"inputs": ["i", "c", "x"], "outputs": outputs, "nodes": [_STEP], "constants": {}, "types": []}
    values = [ValueInfo("n", I64, (), "input"), ValueInfo("c", BOOL, (), "input"), ValueInfo("x", F32, (64,), "input")]
    values += [ValueInfo("z", F32, (64,), "temporary"), ValueInfo("s", F32, None, "temporary")]
    writes = ["z", "s"][: len(outputs) - 1]
    write(path, values, [host("Loop", ["n", "c", "x"], writes, body=body)], ["n", "c", "x"], ["z"])
    return InferSession(0, path)


def _given(trips: int) -> list[np.ndarray]:
    return [np.array(trips), np.array(True), np.ones(64, np.float32)]


def test_an_endless_loop_ends_with_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = _loop(tmp_path / "m.om", ["c", "y"])
    assert session.infer(_given(3))[0][0] == -1
    monkeypatch.setenv("OPENATC_LIMITS", "run_seconds=0")
    with pytest.raises(ResourceLimit, match="more than 0 seconds"):
        session.infer(_given(1 << 62))
    monkeypatch.undo()
    assert session.infer(_given(4))[0][0] == 1  # the session is as it was


def test_executions_that_are_prepared_have_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of pyACL."""
    result = np.zeros(64, np.float32)
    run = _loop(tmp_path / "m.om", ["c", "y"]).prepared(_given(3), [result])
    assert run()[0] is result and result[0] == -1
    monkeypatch.setenv("OPENATC_LIMITS", "run_seconds=0")
    with pytest.raises(ResourceLimit, match="more than 0 seconds"):
        run()


def test_what_a_loop_stacks_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = _loop(tmp_path / "m.om", ["c", "y", "y"])
    monkeypatch.setenv("OPENATC_LIMITS", "tensor_bytes=10000")
    with pytest.raises(ResourceLimit, match="bytes that a loop stacks: 10"):
        session.infer(_given(1 << 62))


def test_a_grid_of_an_interpreted_program_takes_no_memory_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "program p () { param out y: f32[1] grid g < 1099511627776 body { TEXPANDS y[0]{}, 1.0 } }"
    monkeypatch.setenv("OPENATC_LIMITS", "run_seconds=0")
    with pytest.raises(ResourceLimit), run_deadline():
        interpret(parse_program(text), {"y": np.zeros(1, np.float32)}, {})


def test_the_kernels_of_a_run_have_a_budget_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [ValueInfo("x", F32, (64,), "input"), *(ValueInfo(n, F32, (64,), "temporary") for n in "yz")]
    text = elementwise(["neg"], symbolic=False, size=64)
    records = [kernel(text, ["x"], "y", None), kernel(text, ["y"], "z", None)]
    write(tmp_path / "m.om", values, records, ["x"], ["z"])
    monkeypatch.setenv("OPENATC_LIMITS", "run_work=10")
    with pytest.raises(ResourceLimit, match="operations of all kernels of a run"):
        InferSession(0, tmp_path / "m.om").infer([np.ones(64, np.float32)])
