"""A Python without liblzma, as pyenv builds where its headers are missing, writes and runs packages all the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import small_models

import atc
from acl_runtime import InferSession
from acl_runtime.om import FusedGraph, PackageError, container, open_package, write_package


@pytest.fixture
def no_lzma(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    container._lzma.cache_clear()
    yield monkeypatch
    container._lzma.cache_clear()


def _without(monkeypatch: pytest.MonkeyPatch) -> None:
    container._lzma.cache_clear()
    monkeypatch.setitem(sys.modules, "lzma", None)


def test_what_is_dense_is_deflated_there(tmp_path: Path, no_lzma: pytest.MonkeyPatch) -> None:
    _without(no_lzma)
    atc.convert(small_models.save("mlp", tmp_path), tmp_path / "a.om")
    rows = {s.name.rpartition("/")[2]: s for s in open_package(tmp_path / "a.om").sections()}
    assert rows["objects"].deflated and not rows["objects"].dense
    (y,) = InferSession(0, tmp_path / "a.om").infer([np.ones((2, 8), np.float32)])
    no_lzma.undo()
    container._lzma.cache_clear()
    atc.convert(tmp_path / "mlp.onnx", tmp_path / "b.om")
    assert any(s.dense for s in open_package(tmp_path / "b.om").sections())
    _without(no_lzma)
    no_lzma.setenv("OPENATC_CACHE", str(tmp_path / "cache"))  # which holds no code
    with InferSession(0, tmp_path / "b.om") as session:
        assert np.array_equal(session.infer([np.ones((2, 8), np.float32)])[0], y)


def test_code_that_cannot_be_read_is_made_anew(tmp_path: Path, no_lzma: pytest.MonkeyPatch) -> None:
    sections = {"class/a/objects": b"code" * 100, "graph": b"text", "weights": b"w"}
    write_package(tmp_path / "p.om", FusedGraph("g", (), (), ()), sections, {}, ("class/a/objects",), ("class/a/objects",))
    assert open_package(tmp_path / "p.om").is_readable("class/a/objects")
    _without(no_lzma)
    package = open_package(tmp_path / "p.om")
    assert package.is_readable("graph") and not package.is_readable("class/a/objects")
    assert not package.is_readable("class/b/objects")
    with pytest.raises(PackageError, match="built without"):
        package.section("class/a/objects")
