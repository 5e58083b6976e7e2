"""A little of each kind of `python -m tests.hostile`, in this process: errors with codes, and nothing else."""

from __future__ import annotations

import random
from importlib import import_module
from pathlib import Path

import pytest

import acl
from tensor_types.errors import OpenAtcError
from tests.hostile import packages


def _run(kind: str, folder: Path, count: int) -> set[str]:
    case = import_module(f"tests.hostile.{kind}").Case(folder)
    seen = set()
    for number in range(count):
        try:
            seen.add(case.run(random.Random(f"short {number}")))
        except OpenAtcError as error:
            assert error.code != "E19999", f"{kind} short {number}: {error}"
            seen.add(error.code)
    return seen


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    packages.prepare(folder, ("mlp", "branches", "selected_rows"))
    return folder


def test_packages(converted: Path) -> None:
    assert {"ran", "E13005"} <= _run("packages", converted, 60)


def test_models(tmp_path: Path) -> None:
    import_module("tests.hostile.models").prepare(tmp_path)
    assert {"planned", "E13014"} <= _run("models", tmp_path, 50)


def test_programs(tmp_path: Path) -> None:
    assert _run("programs", tmp_path, 25) == {"equal", "refused"}


def test_kernels(tmp_path: Path) -> None:
    import_module("tests.hostile.kernels").prepare(tmp_path, cases=False)
    assert {"refused", "within its memory", "over each other"} <= _run("kernels", tmp_path, 80)


def test_acl(converted: Path) -> None:
    assert _run("acl_calls", converted, 4) == {"100 calls"}
    acl.finalize()
