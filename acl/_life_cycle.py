"""Begin and end of a program, its log, and what the device is called."""

from __future__ import annotations

import logging
import threading

from acl._call import integer, optional_text, plain, status, take_message, text, valued
from acl._process import contexts, memory, models, soc_name
from acl_runtime.device import Code, DeviceError
from acl_runtime.device.settings import Settings, read_settings

_log = logging.getLogger("acl")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
_lock = threading.Lock()
_MOST_TOLD = 20
_VERSION = (1, 3, 0)
_references = 0
_was_finalized = False
_profiles = False


@status(optional_text, optional=1)
def init(path: str | None = None) -> None:
    """Begins. `path`: a JSON file of settings. A second call gives 100002 and counts.

    Its section `dump` writes the tensors of layers (100009 if it is wrong), `profiler` the times of tasks (100010);
    what is no setting is 100008.
    """
    global _references, _was_finalized, _profiles
    settings = read_settings(path) if path else Settings()
    with _lock:
        if settings.dump is not None:
            models.watch.dump = settings.dump
        if settings.profile is not None:
            models.watch.profiler.open(settings.profile)
            models.watch.profiler.start(range(contexts.n_devices))
            _profiles = True
        _references += 1
        _was_finalized = False
        models.is_open = True
        if _references > 1:
            raise DeviceError(Code.REPEAT_INITIALIZE, f"init was called {_references} times")


def profiles_by_settings() -> bool:
    """Whether the file of `init` asked for a profile."""
    return _profiles


@status()
def finalize() -> None:
    """Ends, whatever the count: models are unloaded, contexts and memory stay. 100037 the second time."""
    with _lock:
        if _was_finalized:
            raise DeviceError(Code.REPEAT_FINALIZE, "finalize was called already")
        if _references:
            _end()


def _end() -> None:
    global _references, _was_finalized, _profiles
    _references, _was_finalized, profiles = 0, True, _profiles
    models.close()
    models.watch.dump = None
    if profiles:
        _profiles = False
        models.watch.profiler.close()
    books = memory()
    left = [*books.device.blocks(), *books.pinned.blocks()]
    for block in left:
        where = f" (given at {block.site})" if block.site else ""
        _log.info("%d bytes at %#x of %s were not freed%s", block.size, block.address, block.owner, where)
    if books.checks is not None and left:
        sites = "; ".join(f"{b.size} bytes of {b.owner} at {b.site}" for b in left[:_MOST_TOLD])
        raise DeviceError(Code.RELATIVE_RESOURCE_NOT_CLEARED, f"{len(left)} blocks were not freed: {sites}")


@valued()
def finalize_reference() -> int:
    """Undoes one `init` and gives the calls left; the last one finalizes. 100037 if there is none."""
    global _references
    with _lock:
        if not _references:
            raise DeviceError(Code.REPEAT_FINALIZE, "init was not called, or finalize was")
        _references -= 1
        if not _references:
            _end()
        return _references


@plain()
def get_soc_name() -> str:
    """What the device is called, see `soc_name`."""
    return soc_name()


@valued(failure=lambda: (0, 0, 0))
def get_version() -> tuple[int, int, int]:
    """Major, minor and patch number of the AscendCL interface that this follows."""
    return _VERSION


@plain(failure=None)
def get_recent_err_msg() -> str | None:
    """What the last failed call of this thread said, once; then None."""
    return take_message()


@plain(integer, text, failure=None)
def app_log(level: int, message: str) -> None:
    """Logs to Python's logger "acl.app": 0 debug, 1 info, 2 warning, 3 error."""
    logging.getLogger("acl.app").log(_LEVELS[min(max(level, 0), 3)], "%s", message)
