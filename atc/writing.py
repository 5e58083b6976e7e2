"""Where a command writes: refused before the work where it cannot be, and named by its flag where it fails after."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from acl_runtime.om.errors import PackageError
from acl_runtime.om.outer import MAGIC
from acl_runtime.om.replace_file import write_remedy
from atc.usage import UsageError
from tensor_types.error_codes import WRITE_FAILED


@contextmanager
def writing(flag: str, path: Path | None = None) -> Iterator[None]:
    """What cannot be written within the block is a PackageError that names the file, or `path`, and the flag."""
    try:
        yield
    except PackageError as error:
        if error.code == WRITE_FAILED:
            error.where.setdefault("flag", flag)
        raise
    except OSError as error:
        raise PackageError(
            f"cannot write {path or error.filename}: {error.strerror or error}", code=WRITE_FAILED,
            where={"flag": flag}, remedy=write_remedy(error),
        ) from error  # fmt: skip


def make_folder(folder: Path, flag: str) -> None:
    """The folder and its parents, in which a file can then be made. PackageError as `writing`."""
    with writing(flag, folder):
        folder.mkdir(parents=True, exist_ok=True)
        _try_folder(folder)


def check_file(path: Path, flag: str, sources: Sequence[Path] = ()) -> None:
    """Raises unless a file can take the place of `path`, before any work is done for it.

    UsageError if it is a folder or one of `sources`, which the command reads; PackageError as `writing`.
    """
    if os.path.isdir(path):
        raise UsageError(f"{path} is a folder", code="E10022", where={"flag": flag}, remedy="give a file name")
    for source in sources:
        if os.path.exists(path) and os.path.exists(source) and os.path.samefile(path, source):
            raise UsageError(f"{path} is what the command reads, and would be lost", where={"flag": flag},
                             remedy="choose another name")  # fmt: skip
    with writing(flag, path):
        target = Path(os.path.realpath(path))
        with suppress(FileNotFoundError):  # other errors tell of a name that is too long, or a file as a folder
            if not stat.S_ISREG(target.lstat().st_mode):
                raise PackageError(f"{path} is not a regular file", code=WRITE_FAILED, remedy="name a file")
        _try_folder(target.parent)


def check_package(path: Path, flag: str, sources: Sequence[Path] = ()) -> None:
    """As `check_file`, and UsageError if an existing file there is no package: it is somebody's data or key."""
    check_file(path, flag, sources)
    try:
        with open(path, "rb") as file:
            start = file.read(len(MAGIC))
    except OSError:
        return  # absent; one that cannot be read may still be replaced
    if start and start != MAGIC:
        raise UsageError(
            f"{path} exists and is no package: it would be lost", where={"flag": flag},
            remedy="choose another name, or remove the file first",
        )  # fmt: skip


def _try_folder(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder):
        pass
