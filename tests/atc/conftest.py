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


@pytest.fixture
def atc(capsys):
    """Calls the command line in this process: exit code, standard output and standard error."""
    from atc.command_line import main

    def call(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(w) for w in words])
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return call
