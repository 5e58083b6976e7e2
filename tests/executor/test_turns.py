"""Runs of several threads take turns in the order in which they came."""

from __future__ import annotations

import threading
import time

from acl_runtime.executor.pool import _Turns


def test_who_has_waited_longest_is_next() -> None:
    turns, order, threads = _Turns(), [], []
    turns.acquire()

    def wait(number: int) -> None:
        turns.acquire()
        order.append(number)
        turns.release()

    for number in range(8):
        threads.append(threading.Thread(target=wait, args=(number,)))
        threads[-1].start()
        while len(turns._waiting) <= number:
            time.sleep(0.001)
    turns.release()
    turns.acquire()  # behind all of them, though this thread is awake
    assert order == list(range(8))
    turns.release()
    for thread in threads:
        thread.join()
    turns.acquire()
    turns.release()


def test_one_at_a_time() -> None:
    turns, inside, most = _Turns(), [0], [0]

    def work() -> None:
        for _ in range(300):
            turns.acquire()
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            inside[0] -= 1
            turns.release()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] and not turns._waiting and not turns._is_held
