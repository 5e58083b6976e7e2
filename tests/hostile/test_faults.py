"""What happens around the product: files cut short, names that steer terminals, interrupts at bad moments."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from acl_runtime import InferSession
from acl_runtime.om import PackageError, keys
from acl_runtime.om.replace_file import replace_file
from tensor_types.errors import InvalidModel, visible
from tests.hostile import packages


def test_a_package_cut_short_under_a_session_is_refused_instead_of_killing(tmp_path: Path) -> None:
    packages.prepare(tmp_path, ("mlp",))
    path = tmp_path / "mlp.om"
    session = InferSession(0, path)
    arrays = [np.zeros([n if isinstance(n, int) else 2 for n in s.shape], s.dtype) for s in session.get_inputs()]
    session.infer(arrays)
    os.truncate(path, 4096)
    with pytest.raises(PackageError, match="made shorter"):
        session.infer(arrays)


def test_names_do_not_steer_a_terminal() -> None:
    error = InvalidModel("no tensor \x1b[2J\x1b]0;x\x07", where={"tensor": "a\u202eb\r"}, remedy="\x9b31m")
    assert str(error).isprintable() and "\\x1b[2J" in str(error) and "\\u202e" in str(error)
    assert visible("a\tb\nüber 世界") == "a\tb\nüber 世界"


def test_an_interrupt_between_the_two_files_of_a_key_leaves_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cryptography")
    synced = []

    def fsync(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 4:  # the public file is whole, the private one not yet
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(KeyboardInterrupt):
        keys.new_key(tmp_path / "key")
    assert not list(tmp_path.iterdir())


def test_an_interrupt_while_the_file_is_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def opened(*arguments: object) -> int:
        os.close(real(*arguments))  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "open", opened)
    with pytest.raises(KeyboardInterrupt), replace_file(tmp_path / "m.om"):
        raise AssertionError("never reached")
    monkeypatch.undo()
    assert not list(tmp_path.iterdir())
