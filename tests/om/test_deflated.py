"""Sections that are stored compressed: small on disk, bounded when read, whatever they claim."""

from __future__ import annotations

import hashlib
import random
import struct
import zlib
from pathlib import Path

import pytest

from acl_runtime.om import FusedGraph, PackageError, open_package, strip, write_package
from acl_runtime.om.container import deflate, inflate
from tensor_types.errors import ResourceLimit
from tensor_types.limits import VARIABLE

TEXT = b"a text that says the same again and again. " * 500


def _write(path: Path, deflated: tuple[str, ...] = ("graph",)) -> Path:
    write_package(path, FusedGraph("g", (), (), ()), {"graph": TEXT, "class/a/plan": TEXT, "weights": b"w"}, {}, deflated)
    return path


def test_contents_are_what_was_written_and_take_less_room(tmp_path: Path) -> None:
    package = open_package(_write(tmp_path / "p.om"), verify=True)
    sizes = {s.name: s.size for s in package.sections()}
    assert bytes(package.section("graph")) == bytes(package.section("class/a/plan")) == TEXT
    assert sizes["graph"] < sizes["class/a/plan"] / 20 and sizes["class/a/plan"] == len(TEXT)
    assert _write(tmp_path / "q.om").read_bytes() == (tmp_path / "p.om").read_bytes()


def test_a_stripped_package_keeps_sections_compressed(tmp_path: Path) -> None:
    strip(_write(tmp_path / "p.om"), tmp_path / "s.om")
    write_package(tmp_path / "w.om", FusedGraph("g", (), (), ()), {"graph": TEXT, "weights": b"w"}, {}, ("graph",))
    assert (tmp_path / "s.om").read_bytes() == (tmp_path / "w.om").read_bytes()


def test_the_digest_in_the_table_is_of_what_is_stored(tmp_path: Path) -> None:
    package = open_package(_write(tmp_path / "p.om"))
    (row,) = (s for s in package.sections() if s.name == "graph")
    assert row.deflated and row.sha256 == hashlib.sha256(deflate(TEXT)).digest()


def test_dense_sections_take_less_room_than_deflated_ones_and_stay_dense(tmp_path: Path) -> None:
    chance = random.Random(1)
    text = b"".join(chance.randbytes(40_000) for _ in range(1)) * 3  # it repeats beyond the window of zlib
    sections = {"graph": text, "weights": b"w"}
    for name, dense in (("fast", ()), ("dense", ("graph",))):
        write_package(tmp_path / name, FusedGraph("g", (), (), ()), sections, {}, ("graph",), dense)
    packages = [open_package(tmp_path / name, verify=True) for name in ("fast", "dense")]
    assert all(bytes(p.section("graph")) == text for p in packages)
    fast, dense_ = (next(s.size for s in p.sections() if s.name == "graph") for p in packages)
    assert dense_ < 41_000 < fast / 2.9
    strip(tmp_path / "dense", tmp_path / "stripped")
    assert (tmp_path / "stripped").read_bytes() == (tmp_path / "dense").read_bytes()


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        struct.pack("<Q", len(TEXT)) + deflate(TEXT, True)[8:-1],
        struct.pack("<Q", len(TEXT)) + deflate(TEXT, True)[8:] + b"x",
        struct.pack("<Q", len(TEXT) - 1) + deflate(TEXT, True)[8:],
        struct.pack("<Q", len(TEXT) + 1) + deflate(TEXT, True)[8:],
        struct.pack("<Q", len(TEXT)) + b"\xff" * 100,
        deflate(TEXT),
    ],
)
def test_what_is_no_sound_dense_stream_is_refused(stored: bytes) -> None:
    with pytest.raises(PackageError, match="section graph"):
        inflate(memoryview(stored), "graph", True)


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"\0" * 7,
        struct.pack("<Q", 10),
        struct.pack("<Q", len(TEXT)) + zlib.compress(TEXT)[:-1],
        struct.pack("<Q", len(TEXT)) + zlib.compress(TEXT) + b"x",
        struct.pack("<Q", len(TEXT) - 1) + zlib.compress(TEXT),
        struct.pack("<Q", len(TEXT) + 1) + zlib.compress(TEXT),
        struct.pack("<Q", 0) + zlib.compress(TEXT),
        struct.pack("<Q", len(TEXT)) + b"\xff" * 100,
    ],
)
def test_what_is_no_sound_stream_is_refused(stored: bytes) -> None:
    with pytest.raises(PackageError, match="section graph"):
        inflate(memoryview(stored), "graph")


def test_a_length_beyond_the_budget_is_refused_before_anything_is_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = deflate(TEXT)
    for length in (1 << 29, (1 << 64) - 1):
        with pytest.raises(ResourceLimit, match="section_bytes"):
            inflate(memoryview(struct.pack("<Q", length) + stored[8:]), "graph")
    monkeypatch.setenv(VARIABLE, "section_bytes=100")
    with pytest.raises(ResourceLimit, match="section graph"):
        inflate(memoryview(stored), "graph")


@pytest.mark.parametrize("dense", [False, True])
def test_damage_anywhere_is_a_package_error(dense: bool) -> None:
    stored, chance = deflate(TEXT, dense), random.Random(0)
    for _ in range(300):
        damaged = bytearray(stored)
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        try:
            found = inflate(memoryview(bytes(damaged)), "graph", dense)
            # Of zlib, bits that mean nothing. LZMA2 has no sum of its own: the digest in the table is looked at before.
            assert len(found) == len(TEXT) and (dense or found == TEXT)
        except (PackageError, ResourceLimit):
            pass
