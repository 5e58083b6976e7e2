"""Memory in books: which block belongs to whom, on real addresses.

Each address space is one range of addresses, mapped without memory behind it and never given back, so an address tells
by itself whether it is device memory, and one that was freed is known as such instead of belonging to somebody else.
Pages get memory when they are written and lose it when their block is freed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from acl_runtime import host_memory
from acl_runtime.device.checks import Checks, program_line
from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.context import Context
from codegen.targets import chip_names, target

ALIGNMENT = 64
_PAGE = mmap.PAGESIZE
_SPARE = 1 << 16
"""Bytes at the end of a space that no block gets: a read a little beyond a block stays inside the mapping."""


@dataclass(eq=False)
class Allocation:
    """A block. `size` is what was asked for, `extent` what the block takes; `context` is its owner's, or None.

    `pins` counts the work in flight that uses it: a block that is freed meanwhile (`is_freed`) keeps its bytes until
    there is none. `site` and `freed_site` are lines of the program, with ACL_SIM_CHECK=1 only.
    """

    address: int
    size: int
    extent: int
    owner: str
    context: Context | None
    site: str = ""
    freed_site: str = ""
    pins: int = 0
    is_freed: bool = False

    @property
    def device(self) -> int:
        return self.context.device if self.context is not None else 0

    @property
    def end(self) -> int:
        return self.address + self.extent


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _physical_memory() -> int:
    """Bytes of this machine's memory; 8 GiB where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 8 << 30


class AddressSpace:
    """A range of addresses and the book of its blocks. Thread-safe.

    `capacity` is how many bytes of one device may be live at a time. The range is several times larger, and blocks are
    placed in turn, so that an address that was freed is not soon given out again.
    """

    def __init__(self, name: str, capacity: int, checks: Checks | None = None, devices: int = 1) -> None:
        self.name = name
        self.capacity = capacity
        self._checks = checks
        self._used: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._map, self._bytes = _reserve(4 * capacity * devices)
        self.base = self._bytes.ctypes.data
        self.end = self.base + len(self._bytes)
        self._blocks: dict[int, Allocation] = {}
        self._starts: list[int] = []
        self._cursor = self.base

    @property
    def used(self) -> int:
        """Bytes of all devices that blocks take."""
        return self._used.total()

    def used_of(self, device: int) -> int:
        """Bytes of one device that blocks take."""
        return self._used[device]

    def __contains__(self, address: int) -> bool:
        return self.base <= address < self.end

    def allocate(self, size: int, owner: str, context: Context | None = None) -> Allocation:
        """A block of at least `size` bytes at a multiple of 64, of undefined content. MEMORY_ALLOCATION if full."""
        # Large blocks own their pages, so that freeing one gives all of its memory back.
        step = _PAGE if size >= _PAGE else ALIGNMENT
        extent = _round_up(_round_up(size, 32) + 32, step)
        with self._lock:
            device = context.device if context is not None else 0
            free = self.capacity - self._used[device]
            address = self._place(extent, step) if extent <= free else None
            if address is None:
                raise DeviceError(
                    Code.MEMORY_ALLOCATION,
                    f"{size} bytes of {self.name} memory asked for, {free} are free",
                )
            block = Allocation(address, size, extent, owner, context, program_line() if self._checks else "")
            insort(self._starts, address)
            self._blocks[address] = block
            self._cursor = block.end
            self._used[device] += extent
            return block

    def free(self, address: int) -> None:
        """Frees the block that starts at `address`. MEMORY_FREE if there is none: freed already, or never given out.

        To the books it is gone at once; its bytes and addresses stay until no work in flight uses them.
        """
        with self._lock:
            block = self._blocks.get(address)
            if block is None or block.is_freed:
                raise DeviceError(Code.MEMORY_FREE, f"no live block of {self.name} memory starts at {address:#x}")
            block.is_freed = True
            self._used[block.device] -= block.extent
            if self._checks:
                block.freed_site = program_line()
            if not block.pins:
                self._give_back(block)

    def pin(self, address: int, nbytes: int, what: str) -> Allocation:
        """The live block that holds a range, kept until `unpin`. PARAM_INVALID as for `check`."""
        with self._lock:
            block = self._checked(address, nbytes, what)
            block.pins += 1
            return block

    def unpin(self, block: Allocation) -> None:
        with self._lock:
            block.pins -= 1
            if block.is_freed and not block.pins:
                self._give_back(block)

    def keep(self, blocks: Sequence[Allocation]) -> bool:
        """Pins blocks that are known, until `leave`; False, and none is, if one of them was freed."""
        with self._lock:
            for block in blocks:
                if block.is_freed:
                    return False
            for block in blocks:
                block.pins += 1
        return True

    def leave(self, blocks: Sequence[Allocation]) -> None:
        """Undoes `keep`."""
        with self._lock:
            for block in blocks:
                block.pins -= 1
                if block.is_freed and not block.pins:
                    self._give_back(block)

    def check(self, address: int, nbytes: int, what: str) -> Allocation:
        """The live block that holds a range. PARAM_INVALID if there is none."""
        with self._lock:
            return self._checked(address, nbytes, what)

    def blocks(self) -> list[Allocation]:
        """All live blocks, by address."""
        with self._lock:
            return [b for b in (self._blocks[start] for start in self._starts) if not b.is_freed]

    def _checked(self, address: int, nbytes: int, what: str) -> Allocation:
        position = bisect_right(self._starts, address)
        block = self._blocks[self._starts[position - 1]] if position else None
        if block is None or address >= block.end or block.is_freed:
            raise DeviceError(Code.PARAM_INVALID, f"{what}: {address:#x} is in no live block of {self.name} memory")
        if address + nbytes > (block.address + block.size if self._checks else block.end):
            given = f", at {block.site}" if block.site else ""
            raise DeviceError(
                Code.PARAM_INVALID,
                f"{what}: {nbytes} bytes from {address:#x} on leave the block of {block.owner} at {block.address:#x}, "
                f"which has {block.size}{given}",
            )
        return block

    def _give_back(self, block: Allocation) -> None:
        del self._blocks[block.address]
        del self._starts[bisect_right(self._starts, block.address) - 1]
        if self._checks:
            self._checks.forget(block.address)
        if block.size >= _PAGE and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, block.address - self.base, block.extent)

    def view(self, address: int, nbytes: int) -> np.ndarray:
        """A u8 array over bytes of the space, live or not; it keeps the space mapped."""
        return self._bytes[address - self.base : address - self.base + nbytes]

    def _place(self, extent: int, step: int) -> int | None:
        """A free range from the cursor on, then from the start on."""
        limit = self.end - _SPARE
        for position in (self._cursor, self.base):
            number = bisect_right(self._starts, position)
            if number:
                position = max(position, self._blocks[self._starts[number - 1]].end)
            while True:
                position = _round_up(position, step)
                until = self._starts[number] if number < len(self._starts) else limit
                if position + extent <= until:
                    return position
                if number == len(self._starts):
                    break
                position = self._blocks[until].end
                number += 1
        return None


_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
"""Python names it from 3.13 on. Without it a fork after the first allocation would want all of the space again."""


def _reserve(size: int) -> tuple[mmap.mmap, np.ndarray]:
    """Maps `size` bytes, or as large a part as the system allows, without memory behind them."""
    flags = {}
    if hasattr(mmap, "MAP_ANONYMOUS"):
        flags["flags"] = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    size = _round_up(size, _PAGE)
    while True:
        try:
            mapped = mmap.mmap(-1, size, **flags)
            return mapped, np.frombuffer(mapped, np.uint8)
        except (OSError, ValueError, OverflowError):
            size = _round_up(size // 2, _PAGE)
            if size < 64 << 20:
                raise DeviceError(Code.MEMORY_ALLOCATION, "the system gives no address space") from None


class Memory:
    """Device memory, pinned host memory and, as everything else, plain host memory.

    The device has the memory of its chip, as far as this machine can stand in for it: three quarters of its own at
    most, so that a program which fills the device gets a code instead of being killed.
    """

    def __init__(self, chip: str = "", checks: bool = False, devices: int = 1) -> None:
        most = _physical_memory() * 3 // 4
        known = target(chip).memory_bytes if chip in chip_names() else 0
        self.checks = Checks() if checks else None
        self.device = AddressSpace("device", min(known or most, most), self.checks, devices)
        self.pinned = AddressSpace("pinned host", most, self.checks)

    def space(self, address: int) -> AddressSpace | None:
        """The space that the address is in; None for plain host memory."""
        if address in self.device:
            return self.device
        return self.pinned if address in self.pinned else None

    def check(self, address: int, nbytes: int, what: str) -> None:
        """PARAM_INVALID unless `nbytes` from `address` on are in one live block, or are mapped host memory."""
        space = self.space(address)
        if space is None:
            if not _is_mapped(address, nbytes):
                raise DeviceError(Code.PARAM_INVALID, f"{what}: there is no memory at {address:#x}, {nbytes} bytes")
            return
        space.check(address, nbytes, what)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copies; both ranges are checked."""
        self.check(target, nbytes, "target")
        self.check(source, nbytes, "source")
        self.move(target, source, nbytes)

    def move(self, target: int, source: int, nbytes: int) -> None:
        """Copies between ranges of blocks that are held, or of host memory. PARAM_INVALID if that is not there."""
        if self.space(target) is not None and self.space(source) is not None:
            ctypes.memmove(target, source, nbytes)
        elif not host_memory.copy(target, source, nbytes):
            reason = f"{nbytes} bytes from {source:#x} to {target:#x}: not readable there, or not writable here"
            raise DeviceError(Code.PARAM_INVALID, reason)

    def fill(self, target: int, value: int, nbytes: int) -> None:
        """Sets bytes; the range is checked."""
        self.check(target, nbytes, "target")
        self.set(target, value, nbytes)

    def set(self, target: int, value: int, nbytes: int) -> None:
        """Sets bytes of a block that is held, or of host memory. PARAM_INVALID if that is not there."""
        if self.space(target) is not None:
            ctypes.memset(target, value, nbytes)
            return
        pattern = np.full(min(nbytes, 1 << 20), value, np.uint8)
        for done in range(0, nbytes, len(pattern) or 1):
            if not host_memory.copy(target + done, pattern.ctypes.data, min(len(pattern), nbytes - done)):
                raise DeviceError(Code.PARAM_INVALID, f"{nbytes} bytes at {target:#x} are not writable")

    def bytes(self, address: int, nbytes: int) -> np.ndarray:
        """A copy of the memory as u8; the range is checked."""
        self.check(address, nbytes, "pointer")
        copied = np.empty(nbytes, np.uint8)
        self.copy(copied.ctypes.data, address, nbytes)
        return copied

    def array(self, address: int, nbytes: int) -> np.ndarray:
        """A u8 array that aliases the memory, read-only where the memory is; the range is checked."""
        self.check(address, nbytes, "pointer")
        space = self.space(address)
        if space is not None:
            return space.view(address, nbytes)
        if not nbytes:
            return np.empty(0, np.uint8)
        allowed = host_memory.access(address, nbytes)
        if not allowed:
            raise DeviceError(Code.PARAM_INVALID, f"{nbytes} bytes at {address:#x} are not readable")
        array = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
        array.flags.writeable = allowed == "rw"
        return array


_MS_ASYNC = 1


def _find_msync() -> Callable[[int, int, int], int] | None:
    try:
        msync = ctypes.CDLL(None).msync
    except (AttributeError, OSError, TypeError):
        return None
    msync.argtypes, msync.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    return msync


_msync = _find_msync()


def _is_mapped(address: int, nbytes: int) -> bool:
    """Whether the pages of a range exist: `msync` says so and does nothing else to memory without a file."""
    if address < _PAGE or address + nbytes >= 1 << 64:
        return False
    if _msync is None:
        return True
    start = address // _PAGE * _PAGE
    return _msync(start, max(address + nbytes - start, 1), _MS_ASYNC) == 0
