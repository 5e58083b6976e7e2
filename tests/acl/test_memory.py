"""The books of memory, against a plain list of ranges."""

from __future__ import annotations

import random

import numpy as np
import pytest
from acl_programs import Program, ok

import acl
from acl_runtime.device import Code, DeviceError
from acl_runtime.device.memory import AddressSpace


def test_blocks_do_not_overlap_and_keep_their_content() -> None:
    space = AddressSpace("test", 32 << 20)
    rng = random.Random(0)
    live: dict[int, tuple[int, int]] = {}
    for step in range(3000):
        if live and (rng.random() < 0.45 or len(live) > 60):
            address = rng.choice(list(live))
            size, value = live.pop(address)
            assert (space.view(address, size) == value).all()
            space.free(address)
            with pytest.raises(DeviceError):
                space.free(address)
        else:
            size = rng.choice([1, 31, 32, 33, 64, 100, 4095, 4096, 5000, 70_000, 300_000])
            block = space.allocate(size, "test")
            assert block.address % 64 == 0 and block.extent >= size + 32
            for other, (length, _) in live.items():
                assert block.end <= other or other + length <= block.address
            space.view(block.address, size)[:] = step % 251
            live[block.address] = (size, step % 251)
    assert [b.address for b in space.blocks()] == sorted(live)
    assert space.used == sum(b.extent for b in space.blocks())
    for address in live:
        space.free(address)
    assert space.used == 0 and space.blocks() == []


def test_addresses_find_their_block() -> None:
    space = AddressSpace("test", 1 << 20)
    first, second = space.allocate(100, "a"), space.allocate(5000, "b")
    assert space.pin(first.address, 1, "") is first and space.pin(first.address + 99, 1, "") is first
    assert space.pin(second.address + 4999, 1, "") is second
    for address in (first.address - 1, second.end):
        with pytest.raises(DeviceError):
            space.pin(address, 1, "")
    space.free(first.address)
    with pytest.raises(DeviceError):
        space.pin(first.address, 1, "")


def test_a_freed_block_keeps_its_bytes_and_addresses_while_it_is_pinned() -> None:
    space = AddressSpace("test", 1 << 16)
    block = space.allocate(30_000, "a")
    space.view(block.address, 30_000)[:] = 7
    space.pin(block.address, 30_000, "")
    space.free(block.address)
    assert space.used == 0 and space.blocks() == []
    with pytest.raises(DeviceError) as caught:
        space.free(block.address)
    assert caught.value.code == Code.MEMORY_FREE
    for _ in range(20):
        other = space.allocate(30_000, "b")
        assert other.end <= block.address or other.address >= block.end
        space.view(other.address, 30_000)[:] = 9
        space.free(other.address)
    assert (space.view(block.address, 30_000) == 7).all()
    space.unpin(block)
    assert not space.view(block.address, 30_000).any()  # the system has its pages again


def test_an_address_is_not_soon_given_out_again() -> None:
    space = AddressSpace("test", 1 << 20)
    seen = set()
    for _ in range(50):
        block = space.allocate(10_000, "test")
        assert block.address not in seen
        seen.add(block.address)
        space.free(block.address)


def test_a_full_space() -> None:
    space = AddressSpace("test", 1 << 20)
    blocks = [space.allocate(100_000, "test") for _ in range(10)]
    with pytest.raises(DeviceError) as caught:
        space.allocate(100_000, "test")
    assert caught.value.code == Code.MEMORY_ALLOCATION
    space.free(blocks[3].address)
    assert space.allocate(100_000, "test")


def test_freed_pages_give_their_memory_back() -> None:
    space = AddressSpace("test", 1 << 24)
    block = space.allocate(1 << 20, "test")
    view = space.view(block.address, 1 << 20)
    view[:] = 7
    space.free(block.address)
    assert not view.any()  # a stale alias is zeros, not a crash and not somebody else's data


def test_memory_info_counts_blocks(program: Program) -> None:
    free, total = ok(acl.rt.get_mem_info(1))
    block = program.malloc(1 << 20)
    less, same = ok(acl.rt.get_mem_info(1))
    assert same == total and (1 << 20) <= free - less <= (1 << 20) + 8192
    ok(acl.rt.free(block))
    assert ok(acl.rt.get_mem_info(1)) == (free, total)


def test_memory_is_freed_by_its_own_kind_and_survives_its_context(program: Program) -> None:
    other = ok(acl.rt.create_context(0))
    block, image = ok(acl.rt.malloc(100, 0)), ok(acl.media.dvpp_malloc(100))
    assert acl.util.ptr_to_bytes(image, 100) == bytes(100)
    ok(acl.rt.destroy_context(other))
    assert acl.util.ptr_to_bytes(block, 4) is not None
    assert acl.rt.free(image) == 0
    assert acl.media.dvpp_free(image) == 207002
    assert acl.media.dvpp_free(block) == 0
    ok(acl.rt.set_context(program.context))


def test_pinned_host_memory(program: Program) -> None:
    pinned = ok(acl.rt.malloc_host(64))
    device = program.malloc(64)
    data = np.arange(16, dtype=np.float32)
    acl.util.ptr_to_numpy(pinned, (16,), 11)[:] = data
    ok(acl.rt.memcpy_async(device, 64, pinned, 64, 1, program.stream))
    ok(acl.rt.synchronize_stream(program.stream))
    assert acl.util.ptr_to_bytes(device, 64) == data.tobytes()
    assert acl.rt.free(pinned) == 207002
    assert acl.rt.free_host(pinned) == 0
    assert acl.rt.free_host(pinned) == 207002
