from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))

from acl_programs import Program  # noqa: E402

from tests.device_fixtures import own_cache  # noqa: E402, F401


@pytest.fixture
def program() -> Iterator[Program]:
    """A program after init, set_device, create_context and create_stream; everything is undone after the test."""
    program = Program()
    yield program
    program.end()
