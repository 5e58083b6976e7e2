"""The trust rule: this machine's cache, or a signature by a key that the user trusts; nothing else."""

from __future__ import annotations

import os
import sys

import pytest

from acl_runtime.om import PackageError, trust
from tensor_types.errors import EnvironmentProblem

DIGEST, OTHER = "ab" * 32, "cd" * 32


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENATC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OPENATC_TRUST", raising=False)
    return tmp_path / "cache"


def test_only_what_this_cache_produced_is_trusted(cache):
    assert not trust.is_trusted(DIGEST)
    assert not cache.exists()  # asking changes nothing
    trust.record_trusted(DIGEST)
    trust.record_trusted(DIGEST)
    assert trust.is_trusted(DIGEST) and not trust.is_trusted(OTHER)


def test_default_cache_is_below_home(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENATC_CACHE")
    trust.record_trusted(DIGEST)
    assert (tmp_path / "home/.cache/openatc/trusted" / DIGEST).exists()
    assert trust.is_trusted(DIGEST)


@pytest.mark.parametrize("part", ["", "trusted", f"trusted/{DIGEST}"])
@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_what_others_can_write_is_not_trusted(cache, part, mode):
    trust.record_trusted(DIGEST)
    (cache / part).chmod(mode)
    verdict = trust.judge(DIGEST)
    assert not verdict and "written by others" in verdict.reason
    if part != f"trusted/{DIGEST}":
        with pytest.raises(PackageError, match="others"):
            trust.record_trusted(OTHER)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder away")
@pytest.mark.parametrize("part", ["", "trusted", f"trusted/{DIGEST}"])
def test_what_belongs_to_another_user_is_not_trusted(cache, part):
    trust.record_trusted(DIGEST)
    os.chown(cache / part, 12345, -1)
    verdict = trust.judge(DIGEST)
    assert not verdict and "another user" in verdict.reason


def test_links_are_not_followed(cache, tmp_path):
    trust.record_trusted(DIGEST)
    (cache / "trusted" / DIGEST).rename(tmp_path / "real")
    (cache / "trusted" / DIGEST).symlink_to(tmp_path / "real")
    verdict = trust.judge(DIGEST)
    assert not verdict and "symbolic link" in verdict.reason


@pytest.mark.parametrize("digest", ["", "ab", "AB" * 32, "../" + "a" * 61, "ab" * 32 + "\n", "."])
def test_what_is_no_digest_is_refused(cache, digest):
    trust.record_trusted(DIGEST)
    assert not trust.is_trusted(digest)
    with pytest.raises(PackageError):
        trust.record_trusted(digest)


def test_without_cryptography_signatures_are_not_trusted_and_the_reason_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    verdict = trust.judge(DIGEST, bytes(64))
    assert not verdict and "cryptography" in verdict.reason
    with pytest.raises(EnvironmentProblem, match="cryptography"):
        trust.sign(DIGEST, "key")


class TestSignatures:
    @pytest.fixture(params=["pem", "openssh"])
    def keys(self, request, tmp_path):
        serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
        ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
        old = os.umask(0o077)
        try:
            for name in "mine", "strangers":
                key = ed25519.Ed25519PrivateKey.generate()
                pem = request.param == "pem"
                private = serialization.PrivateFormat.PKCS8 if pem else serialization.PrivateFormat.OpenSSH
                secret = key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption())
                (tmp_path / name).write_bytes(secret)
                public = key.public_key().public_bytes(
                    serialization.Encoding.PEM if pem else serialization.Encoding.OpenSSH,
                    serialization.PublicFormat.SubjectPublicKeyInfo if pem else serialization.PublicFormat.OpenSSH,
                )
                (tmp_path / f"{name}.pub").write_bytes(public)
        finally:
            os.umask(old)
        return tmp_path

    def test_only_signatures_of_trusted_keys_over_this_digest_count(self, keys, monkeypatch):
        signature = trust.sign(DIGEST, keys / "mine")
        assert not trust.is_trusted(DIGEST, signature)
        monkeypatch.setenv("OPENATC_TRUST", os.pathsep.join([str(keys / "strangers.pub"), str(keys / "mine.pub")]))
        assert trust.is_trusted(DIGEST, signature)
        assert not trust.is_trusted(OTHER, signature)
        assert not trust.is_trusted(DIGEST, signature[:-1])
        assert not trust.is_trusted(DIGEST, signature[:-1] + bytes([signature[-1] ^ 1]))
        monkeypatch.setenv("OPENATC_TRUST", str(keys / "strangers.pub"))
        assert not trust.is_trusted(DIGEST, signature)
        monkeypatch.setenv("OPENATC_TRUST", "")
        assert not trust.is_trusted(DIGEST, signature)

    def test_keys_in_the_configuration_folder(self, keys):
        folder = keys / "home/.config/openatc/trusted_keys"
        folder.mkdir(parents=True, mode=0o700)
        (keys / "mine.pub").rename(folder / "mine.pub")
        signature = trust.sign(DIGEST, keys / "mine")
        assert trust.is_trusted(DIGEST, signature)
        folder.chmod(0o777)
        assert not trust.is_trusted(DIGEST, signature)

    def test_a_key_that_others_can_write_is_not_used(self, keys, monkeypatch):
        monkeypatch.setenv("OPENATC_TRUST", str(keys / "mine.pub"))
        (keys / "mine.pub").chmod(0o666)
        verdict = trust.judge(DIGEST, trust.sign(DIGEST, keys / "mine"))
        assert not verdict and "mine.pub can be written by others" in verdict.reason

    def test_files_that_are_no_keys(self, keys, monkeypatch):
        (keys / "text.pub").write_text("ssh-ed25519 nonsense")
        monkeypatch.setenv("OPENATC_TRUST", os.pathsep.join([str(keys / "text.pub"), str(keys / "none.pub")]))
        assert not trust.is_trusted(DIGEST, trust.sign(DIGEST, keys / "mine"))
        for name in "text.pub", "none", "mine.pub":
            with pytest.raises(PackageError):
                trust.sign(DIGEST, keys / name)


def test_forgotten_code_is_not_trusted(cache):
    trust.record_trusted(DIGEST)
    trust.forget()
    assert not trust.is_trusted(DIGEST)
    trust.forget()  # nothing to forget is no error
