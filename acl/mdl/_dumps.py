"""Dumps of models by calls: as by the file of `acl.init`, from one call to another."""

from __future__ import annotations

from acl._call import status, text
from acl._process import models
from acl_runtime.device import Code, DeviceError
from acl_runtime.device.settings import read_settings

__all__ = ["finalize_dump", "init_dump", "set_dump"]

_open = False


@status()
def init_dump() -> None:
    """Begins. 100044 if dumps have begun, by a file of `acl.init` too."""
    global _open
    if _open or models.watch.dump is not None:
        raise DeviceError(Code.DUMP_ALREADY_RUN, "dumps have begun already")
    _open = True


@status(text)
def set_dump(path: str) -> None:
    """The file that says what is dumped of models that are loaded from now on. 100045 before `init_dump`."""
    if not _open:
        raise DeviceError(Code.DUMP_NOT_RUN, "init_dump was not called")
    settings = read_settings(path)
    if settings.dump is None:
        raise DeviceError(Code.INVALID_DUMP_CONFIG, f"{path} has no section dump")
    models.watch.dump = settings.dump


@status()
def finalize_dump() -> None:
    """Ends for models that are loaded later; those that are dumped are so until they are unloaded. 100045."""
    global _open
    if not _open:
        raise DeviceError(Code.DUMP_NOT_RUN, "init_dump was not called")
    _open, models.watch.dump = False, None
