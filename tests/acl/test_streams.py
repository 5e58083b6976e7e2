"""Order in streams and between them."""

from __future__ import annotations

import ctypes
import mmap
import threading
from pathlib import Path

import numpy as np
from acl_programs import D2D, D2H, H2D, Program, from_device, negative_model, ok, to_device

import acl


class Gate:
    """Holds a stream until it is opened, by a blocking callback on a thread of its own."""

    def __init__(self, program: Program, stream: int) -> None:
        self.program, self.stream = program, stream
        self.entered, self._open, self._ended = threading.Event(), threading.Event(), False
        self.thread = ok(acl.util.start_thread(self._serve, None))
        ok(acl.rt.subscribe_report(self.thread, stream))
        ok(acl.rt.launch_callback(self._wait, None, 1, stream))

    def _serve(self) -> None:
        ok(acl.rt.set_context(self.program.context))
        while not self._ended:
            acl.rt.process_report(20)

    def _wait(self, _: None) -> None:
        self.entered.set()
        assert self._open.wait(20)

    def open(self) -> None:
        self._open.set()

    def end(self) -> None:
        self.open()
        ok(acl.rt.synchronize_stream(self.stream))
        ok(acl.rt.unsubscribe_report(self.thread, self.stream))
        self._ended = True
        assert acl.util.stop_thread(self.thread) == 0


def test_tasks_of_a_stream_run_in_order(program: Program, tmp_path: Path) -> None:
    model = ok(acl.mdl.load_from_file(str(negative_model(tmp_path / "m.om"))))
    a, b = program.malloc(24), program.malloc(24)
    there, back = acl.mdl.create_dataset(), acl.mdl.create_dataset()
    ok(acl.mdl.add_dataset_buffer(there, acl.create_data_buffer(a, 24)))
    ok(acl.mdl.add_dataset_buffer(back, acl.create_data_buffer(b, 24)))
    gate = Gate(program, program.stream)
    x = np.arange(1, 7, dtype=np.float32)
    source, result = x.tobytes(), bytes(24)
    s = program.stream
    ok(acl.rt.memset_async(a, 24, 0xFF, 24, s))
    ok(acl.rt.memcpy_async(a, 24, acl.util.bytes_to_ptr(source), 24, H2D, s))
    del source  # staged: a stream does not read what is gone
    for number in range(51):
        ok(acl.mdl.execute_async(model, *((there, back) if number % 2 == 0 else (back, there)), s))
    ok(acl.rt.memcpy_async(acl.util.bytes_to_ptr(result), 24, b, 24, D2H, s))
    assert gate.entered.wait(20)
    assert result == bytes(24)
    assert acl.rt.stream_query(s) == (1, 0)
    gate.end()
    np.testing.assert_array_equal(np.frombuffer(result, np.float32), -x)
    assert acl.rt.stream_query(s) == (0, 0)


def test_execute_and_execute_async_agree(program: Program, tmp_path: Path) -> None:
    model = ok(acl.mdl.load_from_file(str(negative_model(tmp_path / "m.om", 1000))))
    inputs, (x,), outputs, (y,) = program.datasets(model)
    array = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    to_device(array, x)
    results = []
    for run in (
        lambda: acl.mdl.execute(model, inputs, outputs),
        lambda: acl.mdl.execute_async(model, inputs, outputs, program.stream),
        lambda: acl.mdl.execute_async(model, inputs, outputs, 0),  # the default stream
    ):
        ok(acl.rt.memset(y, 4000, 0, 4000))
        ok(run())
        ok(acl.rt.synchronize_device())
        results.append(from_device(y, (1000,)))
    for result in results:
        np.testing.assert_array_equal(result, -array)


def test_streams_do_not_wait_for_each_other_and_events_make_them(program: Program) -> None:
    block, second = program.malloc(8), ok(acl.rt.create_stream())
    event, never = ok(acl.rt.create_event()), ok(acl.rt.create_event())
    assert acl.rt.query_event(event) == (1, 0)
    assert acl.rt.query_event(ok(acl.rt.create_event_ex_with_flag(1))) == (0, 0)
    ok(acl.rt.memset(block, 8, 0, 8))
    gate = Gate(program, program.stream)
    ok(acl.rt.memset_async(block, 8, 1, 4, program.stream))
    ok(acl.rt.record_event(event, program.stream))
    # The other stream is free until it waits.
    ok(acl.rt.stream_wait_event(second, never))
    ok(acl.rt.memset_async(block + 4, 4, 2, 4, second))
    ok(acl.rt.synchronize_stream(second))
    assert acl.util.ptr_to_bytes(block, 8) == bytes([0, 0, 0, 0, 2, 2, 2, 2])
    ok(acl.rt.stream_wait_event(second, event))
    ok(acl.rt.memcpy_async(block + 4, 4, block, 4, D2D, second))
    assert acl.rt.synchronize_stream_with_timeout(second, 50) == 507046
    assert acl.rt.synchronize_event_with_timeout(event, 50) == 507047
    assert acl.rt.query_event(event) == (1, 0)
    assert acl.rt.query_event_status(event) == (0, 0)
    assert acl.rt.reset_event(event, program.stream) == 507006
    gate.open()
    ok(acl.rt.synchronize_event(event))
    ok(acl.rt.synchronize_stream(second))
    assert acl.util.ptr_to_bytes(block, 8) == bytes([1] * 8)
    assert acl.rt.query_event(event) == (0, 0)
    end = ok(acl.rt.create_event())
    ok(acl.rt.record_event(end, second))
    ok(acl.rt.synchronize_event(end))
    assert ok(acl.rt.event_elapsed_time(event, end)) > 0
    assert acl.rt.event_elapsed_time(end, event) == (0.0, 107007)
    ok(acl.rt.reset_event(event, program.stream))
    assert acl.rt.query_event(event) == (1, 0)
    gate.end()


def test_a_failure_drops_what_is_behind_it_until_it_was_told(program: Program) -> None:
    block, page = program.malloc(8), mmap.mmap(-1, mmap.PAGESIZE)
    doomed = ctypes.addressof(ctypes.c_char.from_buffer(page))
    ok(acl.rt.memset(block, 8, 0, 8))
    event = ok(acl.rt.create_event())
    gate = Gate(program, program.stream)
    ok(acl.rt.memcpy_async(doomed, 8, block, 8, D2H, program.stream))
    ok(acl.rt.memset_async(block, 8, 1, 8, program.stream))
    ok(acl.rt.record_event(event, program.stream))
    page.close()
    gate.open()
    ok(acl.rt.synchronize_event(event))
    assert acl.rt.synchronize_stream(program.stream) == 107000
    assert acl.util.ptr_to_bytes(block, 8) == bytes(8)
    ok(acl.rt.memset_async(block, 8, 1, 8, program.stream))
    gate.end()
    assert acl.util.ptr_to_bytes(block, 8) == bytes([1] * 8)


def test_destroying_a_stream_or_context_waits_for_its_tasks(program: Program) -> None:
    block = program.malloc(1 << 20)
    for destroy in (acl.rt.destroy_stream, None):
        ok(acl.rt.memset(block, 1 << 20, 0, 1 << 20))
        other = ok(acl.rt.create_context(0))
        stream = ok(acl.rt.create_stream())
        for value in range(1, 40):
            ok(acl.rt.memset_async(block, 1 << 20, value, 1 << 20, stream))
        ok(destroy(stream) if destroy else acl.rt.destroy_context(other))
        assert set(acl.util.ptr_to_bytes(block, 1 << 20)) == {39}
        acl.rt.destroy_context(other)
    ok(acl.rt.set_context(program.context))


def test_callbacks_are_called_in_order_on_the_subscribed_thread(program: Program) -> None:
    seen: list[tuple[int, int]] = []
    ended = False

    def serve() -> None:
        while not ended:
            acl.rt.process_report(20)

    thread = ok(acl.util.start_thread(serve, None))
    ok(acl.rt.subscribe_report(thread, program.stream))
    for number in range(20):
        ok(acl.rt.launch_callback(lambda n: seen.append((n, threading.get_ident())), number, 1, program.stream))
    ok(acl.rt.synchronize_stream(program.stream))
    assert seen == [(n, thread) for n in range(20)]
    ok(acl.rt.unsubscribe_report(thread, program.stream))
    ended = True
    assert acl.util.stop_thread(thread) == 0


def test_a_report_that_does_not_come(program: Program) -> None:
    ok(acl.rt.subscribe_report(threading.get_ident(), program.stream))
    assert acl.rt.process_report(10) == 507012
    ok(acl.rt.unsubscribe_report(threading.get_ident(), program.stream))


def test_stop_thread_tells_of_the_exception() -> None:
    thread = ok(acl.util.start_thread(lambda value: value / 0, 1))
    try:
        acl.util.stop_thread(thread)
    except RuntimeError as error:
        assert "ZeroDivisionError" in str(error)
    else:
        raise AssertionError("no error")


def test_threads_with_one_model(program: Program, tmp_path: Path) -> None:
    model = ok(acl.mdl.load_from_file(str(negative_model(tmp_path / "m.om", 5000))))
    failures: list[object] = []

    def body(seed: int) -> None:
        try:
            ok(acl.rt.set_context(program.context))
            stream = ok(acl.rt.create_stream())
            array = np.random.default_rng(seed).normal(size=5000).astype(np.float32)
            for number in range(30):
                inputs, (x,), outputs, (y,) = program.datasets(model)
                to_device(array + number, x)
                if number % 2:
                    ok(acl.mdl.execute(model, inputs, outputs))
                else:
                    ok(acl.mdl.execute_async(model, inputs, outputs, stream))
                    ok(acl.rt.synchronize_stream(stream))
                np.testing.assert_array_equal(from_device(y, (5000,)), -(array + number))
                ok(acl.rt.free(x))
                ok(acl.rt.free(y))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=body, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_threads_that_end_at_once_are_all_stopped() -> None:
    threads = [ok(acl.util.start_thread(lambda: None, None)) for _ in range(20)]  # their ids come back
    assert [acl.util.stop_thread(t) for t in threads] == [0] * 20
    assert acl.util.stop_thread(threads[0]) == 100000
