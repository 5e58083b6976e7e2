"""Where this machine keeps the code that it compiled, and whether what lies there can be its own.

Code from the cache runs without further questions, so a folder that another user can write is no cache.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path


def cache_folder() -> Path:
    """The cache of this user: OPENATC_CACHE, else `openatc` in the platform's cache folder."""
    chosen = os.environ.get("OPENATC_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "openatc"


def make_private(folder: Path) -> None:
    """Makes a folder of the cache, and the cache, so that others cannot write them whatever the umask says. OSError."""
    for path in (folder.parent, folder):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)


def is_private(*paths: Path) -> bool:
    """True if nobody but this user (or root) can have made or changed these. Where files have no owners, the system's
    own folder of the user is taken to be that."""
    return not hasattr(os, "geteuid") or not any(map(exposed, paths))


def exposed(path: Path) -> str:
    """Why others may have made or changed `path`, or "" if only this user (or root) can have."""
    if not hasattr(os, "geteuid"):
        return "this system has no file owners to check"
    try:
        status = os.lstat(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    if stat.S_ISLNK(status.st_mode):
        return f"{path} is a symbolic link"
    if status.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{path} can be written by others"
    return ""
