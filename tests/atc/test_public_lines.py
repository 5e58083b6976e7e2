"""Published command lines of ATC run unchanged."""

from __future__ import annotations

import pytest
from public_lines import LINES, build

from acl_runtime import InferSession


@pytest.mark.parametrize("key", LINES)
def test_a_published_line_converts(atc, tmp_path, monkeypatch, key):
    monkeypatch.chdir(tmp_path)
    line = LINES[key]
    code, out, err = atc(*build(tmp_path, line))
    assert code == 0, out + err
    session = InferSession(0, tmp_path / "out.om")
    assert [i.name for i in session.get_inputs()][: len(line.inputs)] == list(line.inputs)
