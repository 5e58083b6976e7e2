"""Key files for signed packages: makes a pair, and takes a public key among the trusted ones."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

from tensor_types.errors import EnvironmentProblem

from .errors import WRITE_FAILED, PackageError
from .trust import INSTALL, exposed, read_public_key, trusted_folder

_PATH = {"flag": "PATH"}

def new_key(path: str | os.PathLike[str]) -> tuple[Path, str]:
    """Writes an ed25519 private key (PEM, readable by its owner alone) and beside it, as `.pub`, the public one.

    Gives the public key's path and fingerprint. PackageError if a file exists or cannot be written.
    """
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise _no_cryptography() from None
    private, public = Path(path), Path(f"{os.fspath(path)}.pub")
    key = Ed25519PrivateKey.generate()
    encoding, raw = serialization.Encoding.PEM, serialization.Encoding.Raw
    secret = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    shown = key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)
    for file in (private, public):
        if file.exists():
            raise PackageError(
                f"{file} exists", code=WRITE_FAILED, where=_PATH, remedy="choose another name: a key is never replaced"
            )
    _write(private, secret, 0o600)
    _write(public, shown, 0o644)
    return public, _fingerprint(key.public_key().public_bytes(raw, serialization.PublicFormat.Raw))


def trust_key(path: str | os.PathLike[str]) -> tuple[Path, str]:
    """Copies a public key file among the trusted ones; gives where it lies now, and its fingerprint.

    PackageError if it is no ed25519 public key, or the folder is not this user's alone or cannot be written.
    """
    source, folder = Path(path), trusted_folder()
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise _no_cryptography() from None
    key = read_public_key(source)
    if key is None:
        raise PackageError(
            f"{source} is not an ed25519 public key", where=_PATH, remedy="give the .pub file that atc key new wrote"
        )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise PackageError(
            f"{folder}: {error.strerror}", code=WRITE_FAILED, where=_PATH,
            remedy="make it writable, or list keys in OPENATC_TRUST",
        ) from error  # fmt: skip
    if problem := exposed(folder):
        raise PackageError(f"the folder of keys is not safe: {problem}", remedy=f"chmod go-w {folder}")
    place = folder / f"{source.stem}.pub"
    if place.exists():
        raise PackageError(
            f"{place} exists", code=WRITE_FAILED, where=_PATH, remedy="remove it first, or rename the key's file"
        )
    shown = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    _write(place, shown, 0o644)
    return place, _fingerprint(key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw))


def _write(path: Path, content: bytes, mode: int) -> None:
    """A new file; its group and others never get to write it, whatever the umask says."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
    except OSError as error:
        raise PackageError(
            f"cannot write {path}: {error.strerror}", code=WRITE_FAILED, where=_PATH,
            remedy="choose a folder that can be written",
        ) from error  # fmt: skip


def _fingerprint(raw: bytes) -> str:
    return "SHA256:" + base64.b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")


def _no_cryptography() -> EnvironmentProblem:
    return EnvironmentProblem("keys need the cryptography package", remedy=INSTALL)
