"""Key files for signed packages: makes a pair, and takes a public key among the trusted ones."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from codegen.cache_folder import exposed
from tensor_types.error_codes import WRITE_FAILED
from tensor_types.errors import EnvironmentProblem

from .errors import PackageError
from .replace_file import replace_file
from .trust import INSTALL, read_key_file, read_public_key, trusted_folder

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
        if os.path.lexists(file):
            raise PackageError(
                f"{file} exists", code=WRITE_FAILED, where=_PATH, remedy="choose another name: a key is never replaced"
            )
    written: list[Path] = []
    try:
        with _new_file(private, 0o600) as private_file, _new_file(public, 0o644) as public_file:
            written += [private, public]
            for opened, content in ((private_file, secret), (public_file, shown)):
                opened.write(content)
                opened.flush()
                os.fsync(opened.fileno())
    except BaseException:  # both or neither, also where an interrupt comes between the two
        for file in written:
            file.unlink(missing_ok=True)
        raise
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
    read_key_file(source, _PATH)
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
    with _new_file(place, 0o644) as file:
        file.write(shown)
    return place, _fingerprint(key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw))


@contextmanager
def _new_file(path: Path, mode: int) -> Iterator[BinaryIO]:
    """A new file; its group and others never get to write it, whatever the umask says."""
    try:
        with replace_file(path, mode=mode, fresh=True) as file:
            yield file
    except PackageError as error:
        error.where.setdefault("flag", "PATH")
        raise


def _fingerprint(raw: bytes) -> str:
    return "SHA256:" + base64.b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")


def _no_cryptography() -> EnvironmentProblem:
    return EnvironmentProblem("keys need the cryptography package", remedy=INSTALL)
