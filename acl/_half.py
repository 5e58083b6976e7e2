"""aclFloat16: the 16 bits of a half as a number."""

from __future__ import annotations

import numpy as np

from acl._call import plain, real, word


@plain(word)
def float16_to_float(bits: int) -> float:
    """The value of the bits of a half."""
    return float(np.array([bits & 0xFFFF], np.uint16).view(np.float16)[0])


@plain(real)
def float_to_float16(value: float) -> int:
    """The bits of the half next to a number; too large ones become infinite."""
    with np.errstate(over="ignore"):
        return int(np.array([value], np.float64).astype(np.float16).view(np.uint16)[0])
