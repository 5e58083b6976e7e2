"""Remembered verdicts: what was accepted is not proven again, and nothing else is remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegen.targets import target
from codegen.tile.build import ProgramBuilder
from codegen.tile.ir import Program
from codegen.tile.text import program_to_text
from codegen.tile.verdicts import verdict_files, verified
from codegen.tile.verifier import VerifyError, verify
from tensor_types.dtypes import F32
from tensor_types.limits import VARIABLE
from tests.tile.programs import matmul

HOST = target("x86-64-v3")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENATC_CACHE", str(tmp_path / "cache"))


def _unread() -> Program:
    raise AssertionError("asked for a program whose verdict is known")


def test_an_accepted_program_is_not_asked_for_again() -> None:
    program = matmul()
    text, bounds = program_to_text(program), verify(program, HOST)
    assert bounds.size != 0, "m has no upper end, so the bounds say something"
    assert verified(text, HOST, lambda: program) == bounds
    assert verified(text, HOST, _unread) == bounds


def test_another_text_target_or_limit_is_another_question(monkeypatch: pytest.MonkeyPatch) -> None:
    program = matmul()
    text = program_to_text(program)
    verified(text, HOST, lambda: program)
    for other_text, host in ((text + " ", HOST), (text, target("x86-64-v2"))):
        with pytest.raises(AssertionError, match="verdict is known"):
            verified(other_text, host, _unread)
    monkeypatch.setenv(VARIABLE, "verify_steps=10")
    with pytest.raises(VerifyError, match="more than 10 steps"):
        verified(text, HOST, lambda: program)


def test_a_refused_program_is_refused_again() -> None:
    b = ProgramBuilder("copy")
    m = b.dim("m", low=1)
    x, y = b.param("x", F32, (m,)), b.param("y", F32, (m,), "out")
    b.store(y.window((0,), (m + 1,)), x.window((0,), (m + 1,)))
    program = b.finish()
    for _ in range(2):
        with pytest.raises(VerifyError, match="may reach beyond m"):
            verified(program_to_text(program), HOST, lambda: program)


def test_a_damaged_verdict_is_none_and_one_that_others_can_write_is_none() -> None:
    program = matmul()
    text, asked = program_to_text(program), 0

    def ask() -> Program:
        nonlocal asked
        asked += 1
        return program

    verified(text, HOST, ask)
    (path,) = verdict_files().folder.glob("[!.]*")
    path.write_bytes(path.read_bytes()[:-1] + b"9")
    verified(text, HOST, ask)
    path.chmod(0o666)
    verified(text, HOST, ask)
    assert asked == 3
