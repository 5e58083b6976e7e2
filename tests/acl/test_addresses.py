"""Addresses of memory that cannot be read or written, and sizes that cannot be had: a code, and the process lives."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest

import acl
from acl_runtime import host_memory

N = 4096
NEAR_TOP = (1 << 64) - 8


@pytest.fixture
def pages() -> dict[str, int]:
    """Addresses of a page each: 'rw', 'r', and 'none' that may not be touched; what surrounds them is not mapped."""
    found = {}
    kept = []
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    for name, rights in (("rw", 3), ("r", 1), ("none", 0)):
        found[name] = libc.mmap(None, mmap.PAGESIZE, rights, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        kept.append(found[name])
    yield found
    for address in kept:
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE))


@pytest.fixture(autouse=True)
def device() -> None:
    acl.init()
    assert acl.rt.set_device(0) == 0
    yield
    acl.rt.reset_device(0)
    acl.finalize()


@pytest.mark.parametrize("name", ["none", "unmapped"])
def test_unreadable_sources(pages: dict[str, int], name: str) -> None:
    source = pages.get(name, 64)
    block, _ = acl.rt.malloc(N, 0)
    assert acl.rt.memcpy(block, N, source, 16, 1) == 107000
    stream, _ = acl.rt.create_stream()
    assert acl.rt.memcpy_async(block, N, source, 16, 1, stream) == 107000
    assert acl.util.ptr_to_bytes(source, 16) is None
    assert acl.util.ptr_to_numpy(source, (16,), 2) is None
    model, code = acl.mdl.load_from_mem(source, 16)
    assert (model, code != 0) == (0, True)
    acl.rt.free(block)


@pytest.mark.parametrize("name", ["r", "none", "unmapped"])
def test_unwritable_targets(pages: dict[str, int], name: str) -> None:
    target = pages.get(name, 64)
    block, _ = acl.rt.malloc(N, 0)
    assert acl.rt.memcpy(target, N, block, 16, 2) == 107000
    assert acl.rt.memset(target, N, 1, 16) == 107000
    acl.rt.free(block)


def test_constants_of_the_process_are_not_written(pages: dict[str, int]) -> None:
    text = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value
    assert acl.rt.memset(text, N, 0, 16) == 107000
    assert acl.util.ptr_to_bytes(text, 16) is not None
    assert not acl.util.ptr_to_numpy(pages["r"], (16,), 2).flags.writeable
    assert acl.util.ptr_to_numpy(pages["rw"], (16,), 2).flags.writeable


def test_what_can_be_copied_is(pages: dict[str, int]) -> None:
    data = np.random.default_rng(0).integers(0, 256, 3 << 20).astype(np.uint8)
    block, _ = acl.rt.malloc(data.nbytes, 0)
    back = np.zeros_like(data)
    assert acl.rt.memcpy(block, data.nbytes, data.ctypes.data, data.nbytes, 1) == 0
    assert acl.rt.memcpy(back.ctypes.data, back.nbytes, block, data.nbytes, 2) == 0
    np.testing.assert_array_equal(back, data)
    assert acl.rt.memset(back.ctypes.data, back.nbytes, 7, back.nbytes - 1) == 0
    assert (back[:-1] == 7).all() and back[-1] == data[-1]
    acl.rt.free(block)


@pytest.mark.parametrize("size", [NEAR_TOP, 1 << 63, 1 << 62])
def test_sizes_near_the_top(size: int) -> None:
    block, _ = acl.rt.malloc(N, 0)
    data = np.zeros(16, np.uint8)
    assert acl.rt.memcpy(block, size, data.ctypes.data, size, 1) == 107000
    assert acl.rt.memset(data.ctypes.data, size, 0, size) == 107000
    assert acl.util.ptr_to_bytes(data.ctypes.data, size) is None
    assert acl.rt.malloc(size, 0)[1] == 207001
    assert acl.rt.malloc_host(size)[1] == 207001
    acl.rt.free(block)


def test_the_device_has_an_end() -> None:
    free, total, code = acl.rt.get_mem_info(1)
    assert code == 0 and free <= total
    assert acl.rt.malloc(total + N, 0)[1] == 207001


def test_bytes_go_through_a_pipe_where_the_system_call_is_forbidden(
    pages: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_memory, "_readv", None)
    data = np.random.default_rng(0).integers(0, 256, 200_001).astype(np.uint8)
    back = np.zeros_like(data)
    assert host_memory.copy(back.ctypes.data, data.ctypes.data, data.nbytes)
    np.testing.assert_array_equal(back, data)
    assert not host_memory.copy(pages["r"], data.ctypes.data, 16)
    assert not host_memory.copy(back.ctypes.data, pages["none"], 16)
