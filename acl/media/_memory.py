"""Memory for the image units."""

from __future__ import annotations

from acl._call import status, valued, word
from acl._process import contexts, memory
from acl_runtime.device import Code, DeviceError

__all__ = ["dvpp_free", "dvpp_malloc"]


@valued(word)
def dvpp_malloc(size: int) -> int:
    """Device memory filled with zeros; `rt.free` frees it too."""
    if not size:
        raise DeviceError(Code.INVALID_PARAM, "0 bytes asked for")
    block = memory().device.allocate(size, "media.dvpp_malloc", contexts.current())
    memory().fill(block.address, 0, size)
    return block.address


@status(word)
def dvpp_free(address: int) -> None:
    if not address:
        raise DeviceError(Code.INVALID_PARAM, "the address is null")
    memory().device.free(address)
