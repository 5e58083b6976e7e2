"""Loading and unloading."""

from __future__ import annotations

from acl._call import status, text, valued, word
from acl._process import contexts, memory, models, threads
from acl_runtime.device import Code, DeviceError

__all__ = [
    "load_from_file",
    "load_from_mem",
    "unload",
]


@valued(text)
def load_from_file(path: str) -> int:
    """The id of the model in a package, 1 or more."""
    contexts.current()
    return models.load(path, threads())


@valued(word, word)
def load_from_mem(address: int, size: int) -> int:
    """The id of the model in a package that lies in memory, which is not needed afterwards."""
    if not address or not size:
        raise DeviceError(Code.INVALID_PARAM, "no address or no size")
    contexts.current()
    return models.load_bytes(memory().bytes(address, size), threads())


@status(word)
def unload(model: int) -> None:
    models.unload(model)
