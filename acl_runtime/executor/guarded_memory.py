"""Memory between pages that may not be touched: whoever leaves it ends there instead of in somebody's tensor.

The block ends at the page behind it as closely as its alignment permits. It goes back to the system with its last view.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from tensor_types.errors import EnvironmentProblem, ResourceLimit

_NONE = 0


def guarded_zeros(nbytes: int, alignment: int) -> np.ndarray:
    """u8 zeros at an aligned address, an untouchable page on either side. ResourceLimit; EnvironmentProblem where the
    system has no protection of pages."""
    page = mmap.PAGESIZE
    room = -(-max(nbytes, 1) // page) * page
    try:
        block = mmap.mmap(-1, room + 2 * page)
    except (OSError, ValueError, OverflowError) as error:
        raise ResourceLimit(f"{nbytes} bytes cannot be had: {error}", remedy="use smaller input shapes") from error
    whole = np.frombuffer(block, np.uint8)
    first = int(whole.__array_interface__["data"][0])
    libc = ctypes.CDLL(None, use_errno=True)
    protect = getattr(libc, "mprotect", None)
    for at in (first, first + page + room):
        if protect is None or protect(ctypes.c_void_p(at), ctypes.c_size_t(page), _NONE):
            raise EnvironmentProblem("pages cannot be protected here", remedy="unset OPENATC_SANITISE")
    start = page + (room - nbytes) // alignment * alignment
    return whole[start : start + nbytes]
