"""The generated pages are up to date, and the tables that they rest on are complete."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tensor_types.error_codes import ERROR_CODES
from tensor_types.errors import EnvironmentProblem, InvalidModel, OpenAtcError

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("name", ["operators.md", "flags.md", "chips.md", "errors.md", "passes.md"])
def test_a_generated_page_is_what_the_code_gives(generate, name):
    assert sorted(generate.PAGES) == ["chips.md", "errors.md", "flags.md", "operators.md", "passes.md"]
    written = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert written == generate.PAGES[name](), "stale: run python docs/generate.py"


def test_the_schemas_of_the_ai_cpu_are_what_the_declarations_give(generate):
    for name, module in generate.MODULES.items():
        assert (ROOT / name).read_text(encoding="utf-8") == module(), "stale: run python docs/generate.py"


def test_every_error_code_in_the_code_is_in_the_table_and_the_other_way_round(generate):
    literals = set()
    for room in generate.ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            if path.name not in ("error_codes.py", "foreign_codes.py"):
                literals |= set(re.findall(r"\"(E[0-9]{5})\"", path.read_text()))
    assert literals == set(ERROR_CODES)
    assert set(generate.raised_codes()) == set(ERROR_CODES), "a code that nothing raises"


def test_exit_codes_are_those_of_the_guide():
    assert {e.exit_code for e in ERROR_CODES.values()} <= {1, 2, 3, 4, 5, 7, 130}
    assert InvalidModel("x").exit_code == 3 and EnvironmentProblem("x").exit_code == 7
    assert OpenAtcError("x", code="E10001").exit_code == 2


def test_every_flag_of_the_command_line_is_listed(generate):
    page = generate.flags()
    shown = subprocess.run(
        ["git", "grep", "--untracked", "-hoE", r"\"--[a-z][a-z_]+\"", "--", "atc/c*.py", "atc/key_commands.py"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    assert len(shown) > 15
    missing = [flag for flag in shown if f"`{flag.strip(chr(34))}`" not in page and flag not in ('"--version"', '"--help"')]
    assert not missing


def test_every_variable_is_in_the_table_of_the_environment():
    page = (ROOT / "docs" / "environment.md").read_text()
    read = set()
    for room in ("acl", "acl_runtime", "atc", "codegen", "frontend", "graph_opt", "models", "tensor_types"):
        for path in (ROOT / room).rglob("*.py"):
            read |= set(re.findall(r"OPENATC_[A-Z_]+", path.read_text()))
    assert read and read == set(re.findall(r"^\| `(OPENATC_[A-Z_]+)`", page, re.M))


@pytest.mark.parametrize("path", [*DOCS, ROOT / "README.md"], ids=lambda p: p.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_the_readme_leads_to_every_guide():
    readme = (ROOT / "README.md").read_text()
    assert [p.name for p in DOCS if f"docs/{p.name}" not in readme] == []
