"""Memory of work in flight: what is freed meanwhile, and what ACL_SIM_CHECK=1 says of it."""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from acl_programs import D2D, D2H, H2D, Program, from_device, negative_model, ok, to_device
from PIL import Image
from test_streams import Gate

import acl

ROOT = Path(__file__).resolve().parents[2]
SIZE = 50_000  # blocks of whole pages, which lose their bytes when they are given back


def test_a_freed_input_of_a_queued_execution_is_still_what_it_was(program: Program, tmp_path: Path) -> None:
    model = ok(acl.mdl.load_from_file(str(negative_model(tmp_path / "m.om", SIZE))))
    x = np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)
    given, (a,), made, (y,) = program.datasets(model)
    to_device(x, a)
    gate = Gate(program, program.stream)
    ok(acl.mdl.execute_async(model, given, made, program.stream))
    ok(acl.rt.free(a))
    assert acl.rt.free(a) == 207002
    other = program.malloc(4 * SIZE)
    ok(acl.rt.memset(other, 4 * SIZE, 0xFF, 4 * SIZE))
    assert acl.rt.memcpy(other, 4, a, 4, D2D) == 107000  # to everybody else it is gone
    gate.end()
    np.testing.assert_array_equal(from_device(y, x.shape), -x)
    assert acl.rt.memcpy(other, 4, a, 4, D2D) == 107000


def test_a_freed_output_does_not_become_somebody_elses(program: Program, tmp_path: Path) -> None:
    model = ok(acl.mdl.load_from_file(str(negative_model(tmp_path / "m.om", SIZE))))
    given, (a,), made, (y,) = program.datasets(model)
    to_device(np.ones(SIZE, np.float32), a)
    gate = Gate(program, program.stream)
    ok(acl.mdl.execute_async(model, given, made, program.stream))
    ok(acl.rt.free(y))
    others = [program.malloc(4 * SIZE) for _ in range(4)]
    for other in others:
        ok(acl.rt.memset(other, 4 * SIZE, 3, 4 * SIZE))
    gate.end()
    for other in others:
        assert (from_device(other, (4 * SIZE,), np.uint8) == 3).all()


def test_copies_keep_device_memory_pinned_memory_and_objects(program: Program) -> None:
    a, b = program.malloc(SIZE), program.malloc(SIZE)
    pinned = ok(acl.rt.malloc_host(SIZE))
    ok(acl.rt.memset(pinned, SIZE, 5, SIZE))
    gate = Gate(program, program.stream)
    s = program.stream
    ok(acl.rt.memcpy_async(a, SIZE, pinned, SIZE, H2D, s))
    ok(acl.rt.memcpy_async(b, SIZE, a, SIZE, D2D, s))
    target, array = bytes(SIZE), np.zeros(SIZE, np.uint8)
    seen = []
    ok(acl.rt.memcpy_async(acl.util.bytes_to_ptr(target), SIZE, a, SIZE, D2H, s))
    with pytest.warns(DeprecationWarning):
        ok(acl.rt.memcpy_async(acl.util.numpy_to_ptr(array), SIZE, a, SIZE, D2H, s))
    ok(acl.rt.launch_callback(seen.append, 1, 1, s))
    counts = sys.getrefcount(target), sys.getrefcount(array)
    ok(acl.rt.free_host(pinned))
    ok(acl.rt.free(a))
    gate.end()
    assert (from_device(b, (SIZE,), np.uint8) == 5).all()
    assert set(target) == {5} and (array == 5).all()
    gc.collect()
    assert sys.getrefcount(target) < counts[0] and sys.getrefcount(array) < counts[1]  # the work held both


def test_a_picture_that_is_freed_is_decoded_all_the_same(program: Program) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (64, 128), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=95)
    data = file.getvalue()
    source = ok(acl.media.dvpp_malloc(len(data)))
    ok(acl.rt.memcpy(source, len(data), acl.util.bytes_to_ptr(data), len(data), H2D))
    size = 128 * 64 * 3 // 2
    target = ok(acl.media.dvpp_malloc(size))
    channel, picture = acl.media.dvpp_create_channel_desc(), acl.media.dvpp_create_pic_desc()
    ok(acl.media.dvpp_create_channel(channel))
    for name, value in (("data", target), ("size", size), ("format", 1)):
        ok(getattr(acl.media, f"dvpp_set_pic_desc_{name}")(picture, value))
    gate = Gate(program, program.stream)
    ok(acl.media.dvpp_jpeg_decode_async(channel, source, len(data), picture, program.stream))
    ok(acl.media.dvpp_free(source))
    gate.end()
    luma = from_device(target, (64, 128), np.uint8)
    np.testing.assert_array_equal(luma, np.asarray(Image.open(io.BytesIO(data))))
    ok(acl.media.dvpp_free(target))


def test_work_in_flight_ends_with_its_hold(program: Program) -> None:
    a = program.malloc(SIZE)
    for _ in range(3):
        ok(acl.rt.memset_async(a, SIZE, 1, SIZE, program.stream))
    ok(acl.rt.synchronize_stream(program.stream))
    from acl._process import memory

    assert [b.pins for b in memory().device.blocks()] == [0] * len(memory().device.blocks())


_CHECKED = """
import acl
import numpy as np
acl.init(); acl.rt.set_device(0)
ctx, _ = acl.rt.create_context(0)
s, _ = acl.rt.create_stream(); t, _ = acl.rt.create_stream()
a, _ = acl.rt.malloc(1000, 0)  # line-a
b, _ = acl.rt.malloc(1000, 0)
e, _ = acl.rt.create_event()
def show(*codes):
    print(*codes, "|", acl.get_recent_err_msg())
"""

_CASES = {
    "freed": (
        """
import threading
go = threading.Event()
def serve():
    acl.rt.set_context(ctx)
    while acl.rt.process_report(20):
        pass
tid, _ = acl.util.start_thread(serve, None)
acl.rt.subscribe_report(tid, s)
acl.rt.launch_callback(lambda _: go.wait(20), None, 1, s)
print(acl.rt.memset_async(a, 1000, 1, 1000, s))
print(acl.rt.free(a))  # line-free
go.set()
show(acl.rt.synchronize_stream(s))
""",
        ["0", "0", "107000 |", "rt.malloc gave the block at", "line-a", "line-free"],
    ),
    "block": (
        "show(acl.rt.memset(a, 1010, 1, 1010)); show(acl.rt.memset(a, 1000, 1, 1000))",
        ["107000 |", "1010 bytes", "line-a", "0 | None"],
    ),
    "race": (
        """
acl.rt.memset_async(a, 1000, 1, 1000, s)
acl.rt.memcpy_async(b, 1000, a, 1000, 3, t)
show(acl.rt.synchronize_stream(s), acl.rt.synchronize_stream(t))
""",
        ["0 107000 |", "are in no order", "line-a"],
    ),
    "event": (
        """
acl.rt.memset_async(a, 1000, 1, 1000, s)
acl.rt.record_event(e, s)
acl.rt.stream_wait_event(t, e)
acl.rt.memcpy_async(b, 1000, a, 1000, 3, t)
acl.rt.synchronize_stream(t)
show(acl.rt.memset(a, 1000, 1, 1000), acl.rt.synchronize_stream(s))
acl.rt.memset_async(a, 1000, 1, 1000, t)
acl.rt.synchronize_device()
acl.rt.memset_async(a, 1000, 1, 1000, s)
acl.rt.memset_async(b, 500, 1, 500, t)
acl.rt.memset_async(b + 500, 500, 1, 500, s)
show(acl.rt.synchronize_device())
""",
        ["0 0 | None", "0 | None"],
    ),
    "host": (
        "acl.rt.memset_async(a, 1000, 1, 1000, s); show(acl.rt.memcpy(b, 1000, a, 1000, 3))",
        ["107000 |", "the host", "stream 1"],
    ),
    "leak": (
        "acl.rt.free(b); show(acl.finalize())",
        ["148051 |", "1 blocks were not freed", "1000 bytes of rt.malloc", "line-a"],
    ),
}


@pytest.mark.parametrize("case", sorted(_CASES))
def test_checks_name_the_lines_of_the_program(case: str, tmp_path: Path) -> None:
    body, wanted = _CASES[case]
    file = tmp_path / "program.py"
    file.write_text(_CHECKED + body)
    environment = {**os.environ, "ACL_SIM_CHECK": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=60, env=environment)
    assert not done.stderr, done.stderr
    lines = file.read_text().splitlines()
    text, at = done.stdout, 0
    for word in wanted:
        if word.startswith("line-"):
            number = next(n for n, line in enumerate(lines, 1) if line.endswith(f"# {word}"))
            word = f"program.py:{number}"
        at = text.find(word, at)
        assert at >= 0, (word, text)


def test_remembered_executions_follow_their_buffers(program: Program, tmp_path: Path) -> None:
    """What is not checked again: the same datasets with other memory, freed memory, and other datasets in turns."""
    model = ok(acl.mdl.load_from_file(str(negative_model(tmp_path / "n.om"))))
    pairs = [program.datasets(model) for _ in range(3)]

    def run(n: int, value: float) -> np.ndarray:
        inputs, (x,), outputs, (y,) = pairs[n]
        to_device(np.full(6, value, np.float32), x)
        ok(acl.mdl.execute(model, inputs, outputs))
        return from_device(y, (6,))

    for turn in range(3):
        for n in range(3):
            assert (run(n, 10 * turn + n) == -(10 * turn + n)).all()
    inputs, (x,), outputs, (y,) = pairs[0]
    other = program.malloc(24)
    buffer = acl.mdl.get_dataset_buffer(outputs, 0)
    ok(acl.update_data_buffer(buffer, other, 24))
    to_device(np.full(6, 5, np.float32), x)
    ok(acl.mdl.execute(model, inputs, outputs))
    assert (from_device(other, (6,)) == -5).all() and (from_device(y, (6,)) == -20).all()
    ok(acl.rt.free(x))
    assert acl.mdl.execute(model, inputs, outputs) == 145000
    again = ok(acl.rt.malloc(24, 0))
    ok(acl.update_data_buffer(acl.mdl.get_dataset_buffer(inputs, 0), again, 24))
    to_device(np.full(6, 7, np.float32), again)
    ok(acl.mdl.execute(model, inputs, outputs))
    assert (from_device(other, (6,)) == -7).all()
    ok(acl.rt.free(again))


def test_memory_that_is_freed_while_a_remembered_execution_waits_is_kept(program: Program, tmp_path: Path) -> None:
    model = ok(acl.mdl.load_from_file(str(negative_model(tmp_path / "n.om"))))
    inputs, (x,), outputs, (y,) = program.datasets(model)
    to_device(np.full(6, 3, np.float32), x)
    ok(acl.mdl.execute(model, inputs, outputs))
    gate = Gate(program, program.stream)
    ok(acl.rt.memset(y, 24, 0, 24))
    ok(acl.mdl.execute_async(model, inputs, outputs, program.stream))
    ok(acl.rt.free(x))
    program.blocks.remove(x)
    others = [program.malloc(24) for _ in range(50)]
    for other in others:
        ok(acl.rt.memset(other, 24, 255, 24))
    assert acl.mdl.execute_async(model, inputs, outputs, program.stream) == 145000
    gate.open()
    ok(acl.rt.synchronize_stream(program.stream))
    assert (from_device(y, (6,)) == -3).all()
