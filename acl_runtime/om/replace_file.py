"""Write a file as a whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from tensor_types.error_codes import WRITE_FAILED

from .errors import PackageError


@contextmanager
def replace_file(path: str | os.PathLike[str], *, mode: int = 0o666, fresh: bool = False) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` when the block ends without an exception.

    It has a temporary name in the same folder, is synced, then renamed, and the folder is synced. On any exception,
    an interrupt included, it is removed and what was at `path` stays. OSError becomes PackageError; others pass.
    `mode` are its permissions, less the umask. `fresh` never replaces: the file is made under its own name, which
    nothing, no link either, may have, and is removed on any exception.
    """
    target = os.path.abspath(path) if fresh else os.path.realpath(path)
    folder, name = os.path.split(target)
    unused = os.path.join(folder, f".{name[:32]}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    temporary = target if fresh else unused
    try:
        if not fresh and os.path.lexists(target) and not stat.S_ISREG(os.lstat(target).st_mode):
            raise PackageError(
                f"{os.fspath(path)} is not a regular file", code=WRITE_FAILED, remedy="name a file as the output"
            )
        try:
            descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if not fresh:
                os.replace(temporary, target)
        except FileExistsError:
            raise  # it is somebody else's
        except BaseException:  # an interrupt between making the file and knowing of it included
            with suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_folder(folder)
    except OSError as error:
        raise PackageError(
            f"cannot write {os.fspath(path)}: {error.strerror or error}",
            code=WRITE_FAILED,
            remedy=write_remedy(error),
        ) from error


def _sync_folder(folder: str) -> None:
    """Make the rename itself last; where folders cannot be synced, the file is whole either way."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_remedy(error: OSError) -> str:
    """What helps against an error of writing a file."""
    if error.errno == errno.EEXIST:
        return "choose another name: what is there is not replaced"
    if error.errno == errno.ENAMETOOLONG:
        return "choose a shorter name"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "free some disk space or name an output on another disk; an older file was left as it is"
    return "check that the folder exists and can be written; an older file was left as it is"
