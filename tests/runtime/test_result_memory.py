"""Memory of results comes back with the last view of them, never before."""

from __future__ import annotations

import gc
from threading import Thread

import numpy as np

from acl_runtime.result_memory import ResultMemory

F32 = np.dtype(np.float32)
BIG = (300, 100)


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_a_block_is_used_again_when_nobody_holds_it() -> None:
    memory = ResultMemory(4)
    first = memory.array(BIG, F32)
    assert first.shape == BIG and first.dtype == F32 and address(first) % 64 == 0 and first.flags.writeable
    at = address(first)
    del first
    assert address(memory.array(BIG, F32)) == at


def test_views_hold_their_block() -> None:
    memory = ResultMemory(4)
    array = memory.array(BIG, F32)
    array[:] = 1
    at, views = address(array), [array[3:5], array.T, memoryview(array), np.asarray(array).reshape(-1)]
    del array
    while views:
        other = memory.array(BIG, F32)
        assert address(other) != at
        other[:] = 2
        assert np.asarray(views[-1]).min() == 1
        views.pop()
        del other
        gc.collect()
    taken = [memory.array(BIG, F32) for _ in range(2)]
    assert at in map(address, taken)


def test_growing_results_share_blocks_and_others_do_not() -> None:
    memory = ResultMemory(8)
    places = set()
    for length in range(256, 288):
        array = memory.array((12, length, 64), F32)
        places.add(address(array))
        del array
    assert len(places) <= 3
    small = memory.array((3, 3), F32)
    assert small.base is None and not memory.array((0, 5), F32).size


def test_no_more_than_so_many_blocks_are_kept() -> None:
    memory = ResultMemory(2)
    arrays = [memory.array(BIG, F32) for _ in range(5)]
    latest = {address(a) for a in arrays[3:]}
    while arrays:
        arrays.pop(0)
    held = [memory.array(BIG, F32) for _ in range(2)]
    assert {address(a) for a in held} == latest


def test_threads_never_share_a_block() -> None:
    memory, wrong = ResultMemory(4), []

    def use(number: int) -> None:
        for _ in range(300):
            array = memory.array(BIG, F32)
            array[:] = number
            if array.min() != number or array.max() != number:
                wrong.append(number)

    threads = [Thread(target=use, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
