"""Memory of results that is used again once nobody holds them.

malloc gives blocks of 128 KB and more back to the system as soon as they are freed, so fresh results cost a page fault
for every 4 KB of each run: with the 19 MB of keys and values that a GPT-2 decoder returns, a third of the run.
"""

from __future__ import annotations

from collections import deque
from math import prod
from typing import Any

import numpy as np

from acl_runtime.executor import aligned_zeros
from acl_runtime.run_state import new_array
from codegen.llvm.bounds_checks import sanitised

_SMALL = 1 << 16
"""Bytes below which malloc keeps memory by itself."""


class ResultMemory:
    """Gives arrays as `new_array`; their memory returns here with the last view of them.

    Keeps `most` free blocks, the latest ones: the results of a run or two. Threads may take and drop arrays at any
    time: every step on the free blocks is one of deque's atomic ones.
    """

    def __init__(self, most: int) -> None:
        self._free: deque[np.ndarray] = deque(maxlen=most)

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A 64-byte aligned array that nobody else holds: zeros, or what an earlier run of the session left."""
        nbytes = 0 if dtype.hasobject else prod(shape) * dtype.itemsize
        if nbytes < _SMALL or sanitised():
            return new_array(shape, dtype)
        lease = _Lease(self._block(_size_class(nbytes)), self._free)
        return np.asarray(lease)[:nbytes].view(dtype).reshape(shape)

    def _block(self, size: int) -> np.ndarray:
        for _ in range(len(self._free)):
            try:
                block = self._free.popleft()
            except IndexError:  # another thread took it
                break
            if block.nbytes == size:
                return block
            self._free.append(block)
        return aligned_zeros(size)


class _Lease:
    """The owner of a block that numpy arrays are views of; when the last of them goes, the block is free."""

    def __init__(self, block: np.ndarray, free: deque[np.ndarray]) -> None:
        self._block, self._free = block, free
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        self._free.append(self._block)


def _size_class(nbytes: int) -> int:
    """The size rounded up by an eighth at most, so that results which grow from run to run share blocks."""
    step = 1 << max(nbytes.bit_length() - 4, 0)
    return -(-nbytes // step) * step
