"""Fixtures of the tests that use the device face."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Objects of these tests stay out of the user's cache; models run on one thread."""
    patch = pytest.MonkeyPatch()
    patch.setenv("OPENATC_CACHE", str(tmp_path_factory.mktemp("cache")))
    patch.setenv("OPENATC_THREADS", "1")
    yield
    patch.undo()


@pytest.fixture(autouse=True)
def finalised() -> Iterator[None]:
    """A program that fails leaves the next one a fresh start."""
    yield
    import acl

    acl.finalize()
