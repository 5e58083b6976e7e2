"""Signed packages: whose native code runs, and what happens to the rest."""

from __future__ import annotations

import gc
import json
import logging
import os
import stat
import sys

import numpy as np
import pytest
import small_models

from acl_runtime import InferSession
from acl_runtime.kernels import signature_verdict
from acl_runtime.om import open_package, write_package
from acl_runtime.om.writer import HEADER, MODEL
from atc import convert
from codegen.llvm.detect import detect_host_class


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A machine that has compiled nothing and trusts no one."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OPENATC_TRUST", raising=False)
    elsewhere(tmp_path, monkeypatch, "first")
    return tmp_path


def elsewhere(folder, monkeypatch, name):
    """From here on as on another machine: an empty cache, nothing loaded."""
    gc.collect()
    monkeypatch.setenv("OPENATC_CACHE", str(folder / f"cache-{name}"))


@pytest.fixture
def signed(place, atc):
    """A package that release_key signed."""
    pytest.importorskip("cryptography")
    key = place / "release_key"
    code, out, _ = atc("key", "new", key, "--json")
    assert code == 0 and json.loads(out)["public"] == f"{key}.pub"
    package = place / "m.om"
    convert(small_models.save("mlp", place), package, sign=key)
    return package


def compiled(package) -> int:
    session = InferSession(0, package)
    x = small_models.random(3, 8, seed=9)
    expected = np.maximum(x @ small_models.random(8, 4) + small_models.random(4, seed=1), 0)
    np.testing.assert_allclose(session.infer([x])[0], expected, rtol=1e-4, atol=1e-5)
    return session.compiled_at_run


def test_signed_code_runs_where_its_key_is_trusted(signed, place, atc, monkeypatch, caplog):
    elsewhere(place, monkeypatch, "second")
    with caplog.at_level(logging.WARNING):
        assert compiled(signed) == 1
    assert "no trusted key has signed it" in caplog.text
    assert "no trusted key" in json.loads(atc("inspect", signed, "--json")[1])["signatures"][detect_host_class()]

    elsewhere(place, monkeypatch, "third")
    assert atc("key", "trust", place / "release_key.pub")[0] == 0
    caplog.clear()
    assert compiled(signed) == 0 and not caplog.text
    assert json.loads(atc("inspect", signed, "--json")[1])["signatures"] == {
        detect_host_class(): "it is signed by release_key.pub"
    }

    elsewhere(place, monkeypatch, "fourth")
    (place / "home/.config/openatc/trusted_keys/release_key.pub").unlink()
    assert compiled(signed) == 1
    elsewhere(place, monkeypatch, "fifth")
    monkeypatch.setenv("OPENATC_TRUST", str(place / "release_key.pub"))
    assert compiled(signed) == 0


def test_a_stranger_s_key_counts_for_nothing(signed, place, atc, monkeypatch):
    assert atc("key", "new", place / "other_key")[0] == 0
    monkeypatch.setenv("OPENATC_TRUST", str(place / "other_key.pub"))
    elsewhere(place, monkeypatch, "second")
    assert compiled(signed) == 1


@pytest.mark.parametrize("part", ["objects", "signature", "none"])
def test_a_package_changed_after_signing_runs_no_code_of_its_own(signed, place, monkeypatch, part):
    """Changed with all digests made anew, as an attacker would."""
    package = open_package(signed)
    sections = {s.name: bytes(package.section(s.name)) for s in package.sections() if s.name not in (HEADER, MODEL)}
    host, changed = detect_host_class(), bytearray()
    if part != "none":
        changed = bytearray(sections[f"class/{host}/{part}"])
        changed[-1] ^= 1
        sections[f"class/{host}/{part}"] = bytes(changed)
    other = place / "changed.om"
    write_package(other, package.graph(), sections, package.header)
    monkeypatch.setenv("OPENATC_TRUST", str(place / "release_key.pub"))
    elsewhere(place, monkeypatch, "second")
    assert compiled(other) == (0 if part == "none" else 1)


def test_a_signature_is_for_programs_host_and_objects_in_order(place, atc):
    pytest.importorskip("cryptography")
    from acl_runtime.kernels import objects_digest
    from acl_runtime.om import trust

    assert atc("key", "new", place / "k")[0] == 0
    os.environ["OPENATC_TRUST"] = str(place / "k.pub")
    try:
        given = (["p", "q"], "x86-64-v3", [b"1", b"2"])
        signature = trust.sign(objects_digest(*given), place / "k")
        assert signature_verdict(*given, signature)
        for other in ((["q", "p"], given[1], given[2]), (given[0], "x86-64-v4", given[2]),
                      (given[0], given[1], [b"2", b"1"]), (given[0], given[1], [b"1"])):  # fmt: skip
            assert not signature_verdict(*other, signature)
    finally:
        del os.environ["OPENATC_TRUST"]


def test_the_same_key_gives_the_same_bytes(signed, place):
    again = place / "again.om"
    convert(place / "mlp.onnx", again, sign=place / "release_key")
    assert again.read_bytes() == signed.read_bytes()
    convert(place / "mlp.onnx", again)
    assert again.read_bytes() != signed.read_bytes()


def test_stripping_takes_the_signature(signed, atc):
    assert atc("strip", signed)[0] == 0
    assert not [s.name for s in open_package(signed).sections() if "signature" in s.name]
    assert compiled(signed) <= 1


def test_key_files(place, atc):
    pytest.importorskip("cryptography")
    key = place / "k"
    assert atc("key", "new", key)[0] == 0
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 and not (place / "k.pub").stat().st_mode & 0o022
    before = key.read_bytes()
    for words, flag in ((("key", "new", key), "PATH"), (("key", "trust", key), "PATH"),
                        (("key", "new", place / "no" / "folder"), "PATH"),
                        (("convert", small_models.save("mlp", place), "--sign", place / "k.pub"), "--sign")):  # fmt: skip
        code, out, _ = atc(*words, "--json")
        error = json.loads(out)["error"]
        assert code in (3, 7) and error["where"]["flag"] == flag and error["remedy"]
    assert key.read_bytes() == before and not (place / "mlp.om").exists()
    assert atc("key", "trust", place / "k.pub")[0] == 0
    assert atc("key", "trust", place / "k.pub")[0] == 7  # one of that name is trusted already
    (place / "home/.config/openatc/trusted_keys").chmod(0o777)
    (place / "home/.config/openatc/trusted_keys/k.pub").unlink()
    assert atc("key", "trust", place / "k.pub")[0] == 3


def test_without_cryptography_the_remedy_names_the_extra(place, atc, monkeypatch):
    model = small_models.save("mlp", place)
    for module in [m for m in sys.modules if m.split(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for words in (("convert", model, "--sign", "key"), ("key", "new", place / "k"), ("key", "trust", place / "k.pub")):
        code, out, _ = atc(*words, "--json")
        error = json.loads(out)["error"]
        assert code == 7 and error["code"] == "E13024" and "openatc[sign]" in error["remedy"]
    assert not (place / "k").exists()
    verdict = signature_verdict(["p"], "x86-64-v3", [b"o"], bytes(64))
    assert not verdict and "openatc[sign]" in verdict.reason
