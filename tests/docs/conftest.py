from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Objects and keys of these tests stay out of the user's folders."""
    patch = pytest.MonkeyPatch()
    patch.setenv("OPENATC_CACHE", str(tmp_path_factory.mktemp("cache")))
    patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    patch.delenv("OPENATC_TRUST", raising=False)
    yield
    patch.undo()


@pytest.fixture(scope="session")
def generate() -> ModuleType:
    """docs/generate.py, which is a script and no part of a package."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
