"""Tensors on the host or on the device, and the times that their copies took."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from acl._process import contexts, memory
from aclruntime.failures import runtime_errors


class dtype(Enum):  # noqa: N801 (the original's name)
    """Element types."""

    uint8 = "uint8"
    int8 = "int8"
    uint16 = "uint16"
    int16 = "int16"
    uint32 = "uint32"
    int32 = "int32"
    uint64 = "uint64"
    int64 = "int64"
    float16 = "float16"
    float32 = "float32"
    double = "float64"
    float64 = "float64"
    bool = "bool"


class type(Enum):  # noqa: A001, N801 (the original's name)
    """Where a tensor lies."""

    memory_host = 0
    memory_device = 1
    memory_dvpp = 2


uint8, int8, uint16, int16 = dtype.uint8, dtype.int8, dtype.uint16, dtype.int16
uint32, int32, uint64, int64 = dtype.uint32, dtype.int32, dtype.uint64, dtype.int64
float16, float32, double, float64, bool = dtype.float16, dtype.float32, dtype.double, dtype.float64, dtype.bool  # noqa: A001
memory_host, memory_device, memory_dvpp = type.memory_host, type.memory_device, type.memory_dvpp

_NO_DEVICE = -1


class _MemorySummary:
    """Milliseconds of every copy to the device and back."""

    def __init__(self) -> None:
        self.H2D_time_list: list[float] = []
        self.D2H_time_list: list[float] = []

    def reset(self) -> None:
        self.H2D_time_list.clear()
        self.D2H_time_list.clear()


_summary = _MemorySummary()


def MemorySummary() -> _MemorySummary:  # noqa: N802 (the original's name)
    """The one summary of the process: milliseconds of copies to the device (H2D) and back (D2H)."""
    return _summary


class BaseTensor:
    """An address and a size of memory that somebody else owns."""

    def __init__(self, buf: int, size: int) -> None:
        self.buf, self.size = int(buf), int(size)


class Tensor:
    """A copy of an array, on the host until `to_device`. Device memory goes with the object."""

    def __init__(self, array: np.ndarray) -> None:
        data = np.array(array, order="C")
        if str(data.dtype) not in {d.value for d in dtype}:
            raise RuntimeError(f"a tensor cannot hold elements of type {data.dtype}")
        self._host: np.ndarray | None = data
        self._shape, self._dtype = data.shape, data.dtype
        self._place = type.memory_host
        self._device = _NO_DEVICE
        self._address = 0

    @classmethod
    def of_block(cls, address: int, shape: Sequence[int], element: np.dtype, device: int) -> Tensor:
        """A tensor that takes over a block of device memory."""
        self = cls.__new__(cls)
        self._host, self._shape, self._dtype = None, tuple(shape), np.dtype(element)
        self._own(address, type.memory_device, device)
        return self

    @property
    def shape(self) -> list[int]:
        return list(self._shape)

    @property
    def dtype(self) -> dtype:
        return dtype(str(self._dtype))

    @property
    def type(self) -> type:  # noqa: A003
        return self._place

    @property
    def device(self) -> int:
        return self._device

    @property
    def size(self) -> int:
        """Bytes."""
        return int(np.prod(self._shape, dtype=np.int64)) * self._dtype.itemsize

    @property
    def address(self) -> int:
        """Where the bytes are now."""
        return self._address if self._host is None else self._host.ctypes.data

    @runtime_errors
    def to_device(self, device: int) -> None:
        """Copies to device memory; nothing to do if it is there."""
        self._move(type.memory_device, device)

    @runtime_errors
    def to_dvpp(self, device: int) -> None:
        """Copies to memory of the image units; nothing to do if it is there."""
        self._move(type.memory_dvpp, device)

    @runtime_errors
    def to_host(self) -> None:
        """Copies to the host; nothing to do if it is there."""
        if self._host is not None:
            return
        start = time.perf_counter()
        host = np.empty(self._shape, self._dtype)
        if self.size:
            memory().copy(host.ctypes.data, self._address, self.size)
        _summary.D2H_time_list.append((time.perf_counter() - start) * 1e3)
        self._release()
        self._host, self._place, self._device, self._address = host, type.memory_host, _NO_DEVICE, 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        if self._host is None:
            raise RuntimeError("the tensor is on the device: call to_host() first")
        return np.array(self._host, dtype=dtype, copy=None if copy is None else copy)

    def __repr__(self) -> str:
        return f"<Tensor {self._dtype} {list(self._shape)} in {self._place.name}>"

    def _move(self, place: type, device: int) -> None:
        if self._place is place and self._device == device:
            return
        if self._host is None:
            self.to_host()
        assert self._host is not None
        context = contexts.current()
        start = time.perf_counter()
        block = memory().device.allocate(max(self.size, 1), "aclruntime.Tensor", context)
        if self.size:
            memory().copy(block.address, self._host.ctypes.data, self.size)
        _summary.H2D_time_list.append((time.perf_counter() - start) * 1e3)
        self._host = None
        self._own(block.address, place, device)

    def _own(self, address: int, place: type, device: int) -> None:
        self._address, self._place, self._device = address, place, device
        self._release = weakref.finalize(self, memory().device.free, address)


def batch(tensors: Sequence[Tensor], keep_dims: object = False) -> Tensor:
    """Host tensors of one shape as one: along a new first axis, or with `keep_dims` along the first that they have."""
    arrays = [np.asarray(t) for t in tensors]
    if not arrays:
        raise RuntimeError("there is nothing to make a batch of")
    try:
        return Tensor(np.concatenate(arrays) if keep_dims else np.stack(arrays))
    except ValueError as error:
        raise RuntimeError(f"the tensors make no batch: {error}") from None
