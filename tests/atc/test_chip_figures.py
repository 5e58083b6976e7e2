"""Figures of a chip's programs: remembered for the launches of a model, and for nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from atc import chip_figures
from atc.chip_figures import figure_files, figures_of
from codegen.targets import target
from codegen.targets.roofline import estimate
from codegen.tile.text import program_to_text
from tests.tile.programs import matmul

CHIP = target("Ascend910B2")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENATC_CACHE", str(tmp_path / "cache"))


def test_a_second_conversion_reads_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    program = matmul()
    text, sizes = program_to_text(program), tuple(64 for _ in program.dims)
    launches = [(text, sizes), (text, None), (text, sizes)]
    first = figures_of(launches, CHIP)
    assert first[text, None].estimate is None and first[text, None].scopes == first[text, sizes].scopes
    assert first[text, sizes].estimate == estimate(program, {d.name: 64 for d in program.dims}, CHIP)
    with monkeypatch.context() as patch:
        patch.setattr(chip_figures, "program_of", lambda text: pytest.fail("read again"))
        assert figures_of(launches, CHIP) == first
        with pytest.raises(pytest.fail.Exception, match="read again"):
            figures_of(launches, target("Ascend310P3"))


def test_damaged_figures_are_computed_again() -> None:
    text = program_to_text(matmul())
    first = figures_of([(text, None)], CHIP)
    (path,) = figure_files().folder.glob("[!.]*")
    for content in (b"[]", b"[[1, 2, 3]]", b"no json"):
        figure_files().write(path.name, content)
        assert figures_of([(text, None)], CHIP) == first
