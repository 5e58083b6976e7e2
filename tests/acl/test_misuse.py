"""What misuse gives: AscendCL's code, a message, and an interpreter that goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from acl_programs import H2D, Program, nonzero_model, ok, static_model

import acl

WILD = 0xDEAD0000BEEF


class Case:
    """A program with a loaded model, a block, datasets, and a block that was freed."""

    def __init__(self, program: Program, path: Path) -> None:
        self.program = program
        self.model = ok(acl.mdl.load_from_file(str(path)))
        self.block = program.malloc(100)
        self.freed = ok(acl.rt.malloc(100, 0))
        ok(acl.rt.free(self.freed))
        self.inputs, self.sources, self.outputs, self.targets = program.datasets(self.model)
        self.array = np.zeros(256, np.uint8)
        self.plain = self.array.ctypes.data
        self.other = ok(acl.rt.create_context(0))
        self.foreign = ok(acl.rt.create_stream())
        ok(acl.rt.set_context(program.context))

    def dataset(self, *buffers: tuple[int, int]) -> int:
        dataset = acl.mdl.create_dataset()
        for address, size in buffers:
            ok(acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(address, size)))
        return dataset

    def run_with_input(self, address: int, size: int) -> int:
        return acl.mdl.execute(self.model, self.dataset((address, size), (self.sources[1], 48)), self.outputs)

    def run_with_output(self, address: int, size: int) -> int:
        return acl.mdl.execute(self.model, self.inputs, self.dataset((address, size), (self.targets[1], 48)))


@pytest.fixture
def case(program: Program, tmp_path: Path):  # noqa: ANN201
    case = Case(program, static_model(tmp_path / "m.om"))
    yield case
    acl.rt.destroy_context(case.other)


MISUSE: dict[str, tuple[Callable[[Case], object], object]] = {
    # memory
    "malloc of nothing": (lambda c: acl.rt.malloc(0, 0), (0, 100000)),
    "malloc of too much": (lambda c: acl.rt.malloc(1 << 60, 0), (0, 207001)),
    "malloc of a negative size": (lambda c: acl.rt.malloc(-1, 0), (0, 207001)),
    "dvpp_malloc of nothing": (lambda c: acl.media.dvpp_malloc(0), (0, 100000)),
    "malloc_host of nothing": (lambda c: acl.rt.malloc_host(0), (0, 100000)),
    "free of null": (lambda c: acl.rt.free(0), 100000),
    "free_host of null": (lambda c: acl.rt.free_host(0), 100000),
    "free twice": (lambda c: acl.rt.free(c.freed), 207002),
    "dvpp_free twice": (lambda c: acl.media.dvpp_free(c.freed), 207002),
    "free inside a block": (lambda c: acl.rt.free(c.block + 64), 207002),
    "free of host memory": (lambda c: acl.rt.free(c.plain), 207002),
    "free_host of device memory": (lambda c: acl.rt.free_host(c.block), 207002),
    "memcpy of nothing": (lambda c: acl.rt.memcpy(c.block, 0, c.plain, 0, H2D), 0),
    "memcpy to null": (lambda c: acl.rt.memcpy(0, 8, c.plain, 8, H2D), 100000),
    "memcpy from null": (lambda c: acl.rt.memcpy(c.block, 8, 0, 8, H2D), 100000),
    "memcpy of an unknown kind": (lambda c: acl.rt.memcpy(c.block, 8, c.plain, 8, 6), 100000),
    "memcpy of more than fits": (lambda c: acl.rt.memcpy(c.block, 7, c.plain, 8, H2D), 107000),
    "memcpy with no room": (lambda c: acl.rt.memcpy(c.block, 0, c.plain, 8, H2D), 107000),
    "memcpy past a block": (lambda c: acl.rt.memcpy(c.block, 256, c.plain, 256, H2D), 107000),
    "memcpy from past a block": (lambda c: acl.rt.memcpy(c.plain, 256, c.block + 10, 200, 2), 107000),
    "memcpy to freed memory": (lambda c: acl.rt.memcpy(c.freed, 8, c.plain, 8, H2D), 107000),
    "memcpy from freed memory": (lambda c: acl.rt.memcpy(c.plain, 8, c.freed, 8, 2), 107000),
    "memcpy from nowhere": (lambda c: acl.rt.memcpy(c.block, 8, WILD, 8, H2D), 107000),
    "memcpy to nowhere": (lambda c: acl.rt.memcpy(WILD, 8, c.block, 8, 2), 107000),
    "memcpy across the address space": (lambda c: acl.rt.memcpy(c.block, 1 << 62, c.plain, 1 << 62, H2D), 107000),
    "memcpy with a kind that is not so": (lambda c: acl.rt.memcpy(c.block, 8, c.sources[0], 8, H2D), 0),
    "memset of null": (lambda c: acl.rt.memset(0, 8, 0, 8), 100000),
    "memset of more than fits": (lambda c: acl.rt.memset(c.block, 8, 0, 9), 107000),
    "memset past a block": (lambda c: acl.rt.memset(c.block, 512, 0, 512), 107000),
    "memcpy_async between hosts": (
        lambda c: acl.rt.memcpy_async(c.plain, 8, c.plain + 8, 8, 0, c.program.stream), 207000,
    ),
    "memcpy_async to freed memory": (lambda c: acl.rt.memcpy_async(c.freed, 8, c.plain, 8, 1, c.program.stream), 107000),
    # device, contexts, streams, events
    "set a device that is not there": (lambda c: acl.rt.set_device(1), 107001),
    "set a negative device": (lambda c: acl.rt.set_device(-1), 107001),
    "context on a device that is not there": (lambda c: acl.rt.create_context(7), (0, 107001)),
    "reset a device that is not there": (lambda c: acl.rt.reset_device(3), 107001),
    "reset more often than set": (lambda c: (acl.rt.reset_device(0), acl.rt.reset_device(0)), (0, 107001)),
    "set null context": (lambda c: acl.rt.set_context(0), 100000),
    "set an unknown context": (lambda c: acl.rt.set_context(12345), 107000),
    "set a stream as context": (lambda c: acl.rt.set_context(c.program.stream), 107000),
    "destroy null context": (lambda c: acl.rt.destroy_context(0), 100000),
    "destroy a context twice": (
        lambda c: (acl.rt.destroy_context(c.other), acl.rt.destroy_context(c.other)), (0, 100000),
    ),
    "stream of a destroyed context": (
        lambda c: (acl.rt.destroy_context(c.other), acl.rt.synchronize_stream(c.foreign)), (0, 107003),
    ),
    "destroy null stream": (lambda c: acl.rt.destroy_stream(0), 100000),
    "destroy a stream twice": (
        lambda c: (acl.rt.destroy_stream(c.program.stream), acl.rt.destroy_stream(c.program.stream)), (0, 100000),
    ),
    "destroy a foreign stream": (lambda c: acl.rt.destroy_stream(c.foreign), 107003),
    "execute in a foreign stream": (lambda c: acl.mdl.execute_async(c.model, c.inputs, c.outputs, c.foreign), 107003),
    "synchronize an unknown stream": (lambda c: acl.rt.synchronize_stream(77), 100000),
    "synchronize for no time": (lambda c: acl.rt.synchronize_stream_with_timeout(c.program.stream, 0), 107000),
    "record an unknown event": (lambda c: acl.rt.record_event(99, c.program.stream), 100000),
    "destroy an event twice": (
        lambda c: (lambda e: (acl.rt.destroy_event(e), acl.rt.destroy_event(e)))(ok(acl.rt.create_event())), (0, 100000),
    ),
    "elapsed time of what was not recorded": (
        lambda c: acl.rt.event_elapsed_time(ok(acl.rt.create_event()), ok(acl.rt.create_event())), (0.0, 107006),
    ),
    # callbacks
    "callback without subscriber": (lambda c: acl.rt.launch_callback(print, 0, 0, c.program.stream), 107015),
    "callback of an unknown kind": (lambda c: acl.rt.launch_callback(print, 0, 2, c.program.stream), 100000),
    "report for nobody": (lambda c: acl.rt.process_report(10), 107012),
    "report for no time": (lambda c: acl.rt.process_report(0), 100000),
    "report for a negative time": (lambda c: acl.rt.process_report(-2), 100000),
    "subscribe twice": (
        lambda c: (acl.rt.subscribe_report(1, c.program.stream), acl.rt.subscribe_report(2, c.program.stream),
                   acl.rt.unsubscribe_report(2, c.program.stream), acl.rt.unsubscribe_report(1, c.program.stream)),
        (0, 107011, 107012, 0),
    ),
    # models
    "load what is not there": (lambda c: acl.mdl.load_from_file("/no/such/file.om"), (0, 145002)),
    "load a folder": (lambda c: acl.mdl.load_from_file("/"), (0, 145002)),
    "load from null": (lambda c: acl.mdl.load_from_mem(0, 10), (0, 100000)),
    "load no bytes": (lambda c: acl.mdl.load_from_mem(c.plain, 0), (0, 100000)),
    "load garbage": (lambda c: acl.mdl.load_from_mem(c.plain, 256), (0, 145006)),
    "load past a block": (lambda c: acl.mdl.load_from_mem(c.block, 1 << 20), (0, 107000)),
    "unload what is not there": (lambda c: acl.mdl.unload(999), 145003),
    "unload twice": (lambda c: (acl.mdl.unload(c.model), acl.mdl.unload(c.model)), (0, 145003)),
    "describe what is not there": (lambda c: acl.mdl.get_desc(acl.mdl.create_desc(), 999), 145003),
    "describe into nothing": (lambda c: acl.mdl.get_desc(5, c.model), 100000),
    "count the inputs of nothing": (lambda c: acl.mdl.get_num_inputs(acl.mdl.create_desc()), 0),
    "dims of nothing": (lambda c: acl.mdl.get_input_dims(0, 0), ({}, 100000)),
    "destroy an unknown description": (lambda c: acl.mdl.destroy_desc(c.program.stream), 100000),
    "execute what is not there": (lambda c: acl.mdl.execute(999, c.inputs, c.outputs), 145003),
    "execute an unloaded model": (
        lambda c: (acl.mdl.unload(c.model), acl.mdl.execute(c.model, c.inputs, c.outputs)), (0, 145003),
    ),
    "execute without inputs": (lambda c: acl.mdl.execute(c.model, 0, c.outputs), 100000),
    "execute without outputs": (lambda c: acl.mdl.execute(c.model, c.inputs, 0), 100000),
    "execute with another handle": (lambda c: acl.mdl.execute(c.model, c.program.stream, c.outputs), 100000),
    "execute with a destroyed dataset": (
        lambda c: (acl.mdl.destroy_dataset(c.inputs), acl.mdl.execute(c.model, c.inputs, c.outputs)), (0, 100000),
    ),
    "execute with few inputs": (
        lambda c: acl.mdl.execute(c.model, c.dataset((c.sources[0], 48)), c.outputs), 145000,
    ),
    "execute with many outputs": (
        lambda c: acl.mdl.execute(c.model, c.inputs, c.dataset(*[(t, 48) for t in (*c.targets, c.block)])), 145000,
    ),
    "input without memory": (lambda c: c.run_with_input(0, 48), 145000),
    "input in host memory": (lambda c: c.run_with_input(c.plain, 48), 145000),
    "input in freed memory": (lambda c: c.run_with_input(c.freed, 48), 145000),
    "input nowhere": (lambda c: c.run_with_input(WILD, 48), 145000),
    "input longer than its block": (lambda c: c.run_with_input(c.block + 160, 48), 145000),
    "input longer than needed": (lambda c: c.run_with_input(c.block, 100), 0),
    "input not aligned": (lambda c: c.run_with_input(c.block + 1, 48), 107008),
    "output too small": (lambda c: c.run_with_output(c.block, 47), 145000),
    "output in host memory": (lambda c: c.run_with_output(c.plain, 48), 145000),
    "output in freed memory": (lambda c: c.run_with_output(c.freed, 48), 145000),
    "output longer than its block": (lambda c: c.run_with_output(c.block + 160, 48), 145000),
    # wrappers
    "destroy a buffer twice": (
        lambda c: (lambda b: (acl.destroy_data_buffer(b), acl.destroy_data_buffer(b)))(acl.create_data_buffer(0, 0)),
        (0, 100000),
    ),
    "address of no buffer": (lambda c: acl.get_data_buffer_addr(1), 0),
    "add no buffer": (lambda c: acl.mdl.add_dataset_buffer(c.inputs, 0), (0, 100000)),
    "buffer out of range": (lambda c: acl.mdl.get_dataset_buffer(c.inputs, 2), 0),
    "input out of range": (lambda c: acl.mdl.get_input_size_by_index(0, 2), 0),
    "type of no output": (lambda c: acl.mdl.get_output_data_type(0, 0), -1),
    "destroy null dataset": (lambda c: acl.mdl.destroy_dataset(0), 100000),
    "destroy no tensor description": (lambda c: acl.destroy_tensor_desc(3), None),
    "stop an unknown thread": (lambda c: acl.util.stop_thread(1), 100000),
    # life cycle
    "init twice": (lambda c: acl.init(), 100002),
    "init with a file that is not there": (lambda c: acl.init("/no/such/file.json"), 100003),
    "finalize twice": (lambda c: (acl.finalize(), acl.finalize()), (0, 100037)),
    "execute after finalize": (
        lambda c: (acl.finalize(), acl.mdl.execute(c.model, c.inputs, c.outputs)), (0, 145001),
    ),
    "load after finalize": (lambda c: (acl.finalize(), acl.mdl.load_from_file("/"))[1], (0, 145001)),
    "unload after finalize": (lambda c: (acl.finalize(), acl.mdl.unload(c.model)), (0, 145001)),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSE)
def test_misuse(case: Case, name: str) -> None:
    call, expected = MISUSE[name]
    assert call(case) == expected


def test_messages_say_what_and_are_told_once(case: Case) -> None:
    assert case.run_with_input(case.plain, 48) == 145000
    message = acl.get_recent_err_msg()
    assert message is not None
    for part in ("acl.mdl.execute", "145000", "input x", "host memory"):
        assert part in message
    assert acl.get_recent_err_msg() is None
    seen = []
    assert acl.rt.free(0) == 100000
    thread = threading.Thread(target=lambda: seen.append(acl.get_recent_err_msg()))
    thread.start()
    thread.join()
    assert seen == [None]


def test_an_input_up_to_64_bytes_too_small_is_tolerated(program: Program, tmp_path: Path) -> None:
    model = ok(acl.mdl.load_from_file(str(static_model(tmp_path / "m.om", 100))))
    inputs, (x, w), outputs, _ = program.datasets(model)
    for size, code in ((1200 - 64, 0), (1200 - 65, 145000)):
        dataset = acl.mdl.create_dataset()
        for address, nbytes in ((x, size), (w, 1200)):
            ok(acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(address, nbytes)))
        assert acl.mdl.execute(model, dataset, outputs) == code


@pytest.mark.parametrize("cut", [0, 100, 1000, -1])
def test_truncated_packages(program: Program, tmp_path: Path, cut: int) -> None:
    data = static_model(tmp_path / "m.om").read_bytes()
    broken = tmp_path / "broken.om"
    broken.write_bytes(data[:cut])
    model, code = acl.mdl.load_from_file(str(broken))
    assert (model, code) == (0, 145006)


@pytest.mark.parametrize(
    "call",
    [
        lambda: acl.rt.malloc(10),
        lambda: acl.rt.malloc(10, 0, 0),
        lambda: acl.rt.malloc(1.5, 0),
        lambda: acl.rt.malloc(None, 0),
        lambda: acl.rt.malloc(size=1, policy=0),
        lambda: acl.rt.set_device("0"),
        lambda: acl.init(3),
        lambda: acl.mdl.load_from_file(None),
        lambda: acl.mdl.load_from_file(b"m.om"),
        lambda: acl.create_tensor_desc(0, (1, 2), 2),
        lambda: acl.util.ptr_to_numpy(64, (1,), 99),
        lambda: acl.rt.launch_callback(1, 1, 1, 1),
    ],
)
def test_wrong_arguments_raise(call: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        call()


def test_the_type_error_names_the_function() -> None:
    with pytest.raises(TypeError, match=r"acl\.rt\.malloc: args parsing failed"):
        acl.rt.malloc("10", 0)
    with pytest.raises(TypeError, match=r"acl\.create_data_buffer: args parsing failed"):
        acl.create_data_buffer(1)


def test_numbers_of_numpy_are_numbers(program: Program) -> None:
    block = ok(acl.rt.malloc(np.int64(64), np.int32(0)))
    ok(acl.rt.free(np.uint64(block)))


def test_a_thread_needs_a_context(case: Case) -> None:
    def body() -> None:
        codes.append(acl.rt.malloc(8, 0)[1])
        codes.append(acl.rt.create_stream()[1])
        codes.append(acl.mdl.execute(case.model, case.inputs, case.outputs))
        codes.append(acl.rt.get_context()[1])
        codes.append(acl.mdl.load_from_file("/")[1])
        codes.append(acl.rt.set_context(case.program.context))
        codes.append(acl.mdl.execute(case.model, case.inputs, case.outputs))
        codes.append(acl.rt.get_context())

    codes: list[object] = []
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert codes == [107002, 107002, 107002, 107002, 107002, 0, 0, (case.program.context, 0)]


def test_contexts_of_a_thread() -> None:
    assert acl.rt.get_context() == (0, 107002)
    assert acl.rt.set_device(0) == 0
    primary = ok(acl.rt.get_context())
    assert acl.rt.destroy_context(primary) == 107002
    own = ok(acl.rt.create_context(0))
    assert acl.rt.get_context() == (own, 0)
    assert acl.rt.set_device(0) == 0
    assert acl.rt.get_context() == (primary, 0)
    ok(acl.rt.set_context(own))
    ok(acl.rt.destroy_context(own))
    assert acl.rt.get_context() == (0, 107002)
    assert acl.rt.malloc(8, 0) == (0, 107002)
    ok(acl.rt.set_context(primary))
    assert [acl.rt.reset_device(0) for _ in range(3)] == [0, 0, 107001]
    assert acl.rt.get_context() == (0, 107002)
    assert acl.rt.set_context(primary) in (107000, 107002)


def test_begin_and_end(tmp_path: Path) -> None:
    assert acl.finalize() in (0, 100037)
    broken = tmp_path / "acl.json"
    broken.write_text("{")
    assert acl.init(str(broken)) == 100006
    broken.write_text("{}")
    for arguments in ((), (None,), ("",), (str(broken),)):
        assert acl.init(*arguments) == 0
        assert acl.finalize() == 0
    assert acl.finalize() == 100037
    assert acl.finalize_reference() == (0, 100037)
    assert (acl.init(), acl.init()) == (0, 100002)
    assert acl.finalize_reference() == (1, 0)
    assert acl.finalize_reference() == (0, 0)
    assert acl.finalize() == 100037


def test_before_init(tmp_path: Path) -> None:
    assert acl.rt.get_run_mode() == (1, 0)
    assert acl.get_soc_name().startswith("Ascend")
    assert acl.rt.set_device(0) == 0
    block = ok(acl.rt.malloc(8, 0))
    assert acl.rt.free(block) == 0
    assert acl.mdl.load_from_file(str(static_model(tmp_path / "m.om"))) == (0, 145001)
    assert acl.rt.reset_device(0) == 0


def test_a_run_that_fails_leaves_a_message(program: Program, tmp_path: Path) -> None:
    model = ok(acl.mdl.load_from_file(str(nonzero_model(tmp_path / "m.om"))))
    inputs, _ = program.dataset([32])
    outputs, _ = program.dataset([8])
    ok(acl.rt.memset(acl.get_data_buffer_addr(acl.mdl.get_dataset_buffer(inputs, 0)), 32, 1, 32))
    assert acl.mdl.execute_async(model, inputs, outputs, program.stream) == 0
    assert acl.rt.synchronize_stream(program.stream) == 145000
    assert "output y needs 64 bytes" in (acl.get_recent_err_msg() or "")
    assert acl.rt.synchronize_stream(program.stream) == 0
