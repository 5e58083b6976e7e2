"""The rule for native code: a package from a stranger must not run a stranger's machine code.

Code, named by the SHA-256 of its bytes and of whatever else decides what it does, is trusted in two cases only:
this machine's cache produced it, or a key that the user trusts has signed the digest. Otherwise the caller makes the
code again from the tile program. Signatures are ed25519 and need the `cryptography` package; without it nothing that
is only signed is trusted. Keys may be PEM or OpenSSH files; `acl_runtime.om.keys` makes them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codegen.cache_folder import cache_folder, exposed
from tensor_types.error_codes import OPEN_FAILED
from tensor_types.errors import EnvironmentProblem

from .errors import PackageError

_DIGEST = re.compile(r"[0-9a-f]{64}")
_DOMAIN = b"openatc native code 1\0"
"""Signed in front of the digest, so that a signature made for another purpose says nothing about code."""
INSTALL = 'pip install "openatc[sign]"'
"""What brings the `cryptography` package."""
_MAX_KEY_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether code may run, and why or why not, in words for the user. True in a condition if trusted."""

    trusted: bool
    reason: str

    def __bool__(self) -> bool:
        return self.trusted


def trusted_folder() -> Path:
    """Where the public keys lie that the user trusts."""
    return Path("~/.config/openatc/trusted_keys").expanduser()


def trusted_keys() -> tuple[Path, ...]:
    """The public key files that the user trusts: those OPENATC_TRUST lists (separated as in PATH), else
    ~/.config/openatc/trusted_keys/*.pub."""
    listed = os.environ.get("OPENATC_TRUST")
    if listed is not None:
        return tuple(Path(entry).expanduser() for entry in listed.split(os.pathsep) if entry)
    folder = trusted_folder()
    return tuple(sorted(folder.glob("*.pub"))) if not exposed(folder) else ()


def is_trusted(digest: str, signature: bytes | None = None) -> bool:
    """Whether native code of that digest (SHA-256, lowercase hex) may run; `judge` says why."""
    return judge(digest, signature).trusted


def judge(digest: str, signature: bytes | None = None) -> Verdict:
    """The verdict on native code of that digest (SHA-256, lowercase hex), by cache first, then by signature."""
    if not _DIGEST.fullmatch(digest):
        return Verdict(False, "the digest is not a SHA-256 in lowercase hex")
    folder = cache_folder() / "trusted"
    problem = exposed(folder.parent) or exposed(folder) or exposed(folder / digest)
    if not problem:
        return Verdict(True, "this machine's cache produced it")
    if signature is None:
        return Verdict(False, f"this machine's cache did not produce it ({problem}) and it is not signed")
    return verify(digest, signature, trusted_keys())


def forget() -> None:
    """Nothing is trusted any more because this machine compiled it; keys stay."""
    for path in (cache_folder() / "trusted").glob("*"):
        with contextlib.suppress(OSError):
            path.unlink()


def record_trusted(digest: str) -> None:
    """State that this machine's cache produced the code of that digest.

    Raises PackageError if the digest is not one, or the cache folder is not this user's alone or cannot be written.
    """
    _require_digest(digest)
    folder = cache_folder() / "trusted"
    try:
        for path in (folder.parent, folder):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if problem := exposed(path):
                raise PackageError(
                    f"the cache is not safe: {problem}",
                    remedy="make it yours alone (chmod go-w), or let OPENATC_CACHE name a folder that is",
                )
        # The name says it all: creating an empty file is atomic.
        os.close(os.open(folder / digest, os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600))
    except OSError as error:
        raise PackageError(
            f"cannot write the cache: {error.strerror or error}",
            remedy="let OPENATC_CACHE name a folder that can be written",
        ) from error


def sign(digest: str, private_key_path: str | os.PathLike[str]) -> bytes:
    """The 64-byte ed25519 signature of a digest (SHA-256, lowercase hex) by an unencrypted private key file.

    Raises as `read_private_key`, and PackageError for what is no digest.
    """
    _require_digest(digest)
    return bytes(read_private_key(private_key_path).sign(_DOMAIN + bytes.fromhex(digest)))


def read_private_key(path: str | os.PathLike[str]) -> Any:
    """The ed25519 key of a file. EnvironmentProblem without the `cryptography` package, PackageError for a file that
    cannot be opened or is no such key."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise EnvironmentProblem(
            "signing needs the cryptography package", where={"flag": "--sign"},
            remedy=f"{INSTALL}, or convert without --sign",
        ) from None  # fmt: skip
    where = {"flag": "--sign"}
    data = read_key_file(Path(path), where)
    try:
        openssh = b"BEGIN OPENSSH" in data
        load = serialization.load_ssh_private_key if openssh else serialization.load_pem_private_key
        key = load(data, password=None)
    except Exception as error:  # the library has no common base for what it raises on bad or encrypted keys
        raise PackageError(
            f"{os.fspath(path)} is not a private key that can be read: {error}", where=where,
            remedy="give an unencrypted ed25519 key in PEM or OpenSSH form; atc key new makes one",
        ) from error  # fmt: skip
    if not isinstance(key, Ed25519PrivateKey):
        raise PackageError(
            f"{os.fspath(path)} is not an ed25519 key", where=where, remedy="make one with atc key new"
        )
    return key


def verify(digest: str, signature: bytes, public_keys: Iterable[str | os.PathLike[str]]) -> Verdict:
    """Whether one of the public key files signed the digest. Never raises: what cannot be checked is not trusted."""
    if not _DIGEST.fullmatch(digest):
        return Verdict(False, "the digest is not a SHA-256 in lowercase hex")
    if importlib.util.find_spec("cryptography") is None:
        return Verdict(False, f"it is signed, but without the cryptography package none can check it: {INSTALL}")
    unusable: list[str] = []
    for path in map(Path, public_keys):
        if problem := exposed(path):
            unusable.append(problem)
            continue
        key = read_public_key(path)
        if key is None:
            unusable.append(f"{path} is not an ed25519 public key")
            continue
        try:
            key.verify(signature, _DOMAIN + bytes.fromhex(digest))
        except Exception:  # InvalidSignature, or a signature of the wrong length or type
            continue
        return Verdict(True, f"it is signed by {path.name}")
    return Verdict(False, "; ".join(["no trusted key has signed it", *unusable]))


def read_public_key(path: Path) -> Any:
    """The ed25519 public key of a file, None if it is none. ImportError without the `cryptography` package."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        data = read_key_file(path, {})
        openssh = data.startswith(b"ssh-")
        key = (serialization.load_ssh_public_key if openssh else serialization.load_pem_public_key)(data)
    except Exception:  # as in `read_private_key`
        return None
    return key if isinstance(key, Ed25519PublicKey) else None


def _require_digest(digest: str) -> None:
    if not _DIGEST.fullmatch(digest):
        raise PackageError(f"{digest[:80]!r} is not a digest", remedy="give a SHA-256 in lowercase hex")


def read_key_file(path: Path, where: Mapping[str, str]) -> bytes:
    """The bytes of a key's file. PackageError at `where` if it cannot be opened."""
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_KEY_BYTES)
    except OSError as error:
        raise PackageError(
            f"{path}: {error.strerror}", code=OPEN_FAILED, where=where, remedy="check the path and its permissions"
        ) from error
