from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))

from acl_programs import Program  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Objects of these tests stay out of the user's cache; models run on one thread."""
    patch = pytest.MonkeyPatch()
    patch.setenv("OPENATC_CACHE", str(tmp_path_factory.mktemp("cache")))
    patch.setenv("OPENATC_THREADS", "1")
    yield
    patch.undo()


@pytest.fixture
def program() -> Iterator[Program]:
    """A program after init, set_device, create_context and create_stream; everything is undone after the test."""
    program = Program()
    yield program
    program.end()
