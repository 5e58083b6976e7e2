from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Objects of these tests stay out of the user's cache."""
    patch = pytest.MonkeyPatch()
    patch.setenv("OPENATC_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()
