"""Serving for a while at full load: `python -m tests.acl.soak --minutes 10`.

Threads with contexts and streams of their own run models with queued copies and executions, as a server does. Printed
are requests a second, the middle and the 99th percentile of their time, and what memory, descriptors and threads grew
by after the first tenth. Ends with 1 if a result was wrong or something grew.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "runtime"), str(Path(__file__).parents[2])]

from acl_programs import D2H, H2D, Program, negative_model, ok  # noqa: E402

import acl  # noqa: E402

_SIZE = 1 << 14
_GROWTH = 32 << 20


def resident() -> int:
    """Bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def figures() -> tuple[int, int, int]:
    return resident(), len(os.listdir("/proc/self/fd")), threading.active_count()


class Client(threading.Thread):
    def __init__(self, path: str, until: float, seed: int) -> None:
        super().__init__()
        self.path, self.until, self.random = path, until, np.random.default_rng(seed)
        self.times: list[float] = []
        self.wrong = 0

    def run(self) -> None:
        context, stream = ok(acl.rt.create_context(0)), ok(acl.rt.create_stream())
        model = ok(acl.mdl.load_from_file(self.path))
        nbytes = 4 * _SIZE
        while time.monotonic() < self.until:
            start = time.perf_counter()
            x = self.random.standard_normal(_SIZE).astype(np.float32)
            data, result = x.tobytes(), bytes(nbytes)
            blocks = [ok(acl.rt.malloc(nbytes, 0)) for _ in range(2)]
            buffers = [acl.create_data_buffer(b, nbytes) for b in blocks]
            sets = [ok(acl.mdl.add_dataset_buffer(acl.mdl.create_dataset(), b)) for b in buffers]
            ok(acl.rt.memcpy_async(blocks[0], nbytes, acl.util.bytes_to_ptr(data), nbytes, H2D, stream))
            ok(acl.mdl.execute_async(model, *sets, stream))
            ok(acl.rt.memcpy_async(acl.util.bytes_to_ptr(result), nbytes, blocks[1], nbytes, D2H, stream))
            for block, buffer, dataset in zip(blocks, buffers, sets, strict=True):
                ok(acl.rt.free(block) or acl.destroy_data_buffer(buffer) or acl.mdl.destroy_dataset(dataset))
            ok(acl.rt.synchronize_stream(stream))
            self.wrong += not np.array_equal(np.frombuffer(result, np.float32), -x)
            self.times.append(time.perf_counter() - start)
        ok(acl.mdl.unload(model))
        ok(acl.rt.destroy_context(context))


def main(minutes: float, clients: int) -> int:
    program = Program()
    with tempfile.TemporaryDirectory() as folder:
        path = str(negative_model(Path(folder) / "m.om", _SIZE))
        begin = time.monotonic()
        threads = [Client(path, begin + 60 * minutes, n) for n in range(clients)]
        for thread in threads:
            thread.start()
        time.sleep(6 * minutes)
        early = figures()
        time.sleep(48 * minutes)
        late = figures()
        for thread in threads:
            thread.join()
    program.end()
    times = np.concatenate([t.times for t in threads])
    wrong = sum(t.wrong for t in threads)
    middle, tail = np.percentile(times, [50, 99]) * 1e3
    grown = [after - before for before, after in zip(early, late, strict=True)]
    print(f"{len(times)} requests, {len(times) / (60 * minutes):.0f} a second, {wrong} wrong")
    print(f"p50 {middle:.3f} ms, p99 {tail:.3f} ms, p99/p50 {tail / middle:.2f}")
    print(f"grown by {grown[0] / 2**20:.1f} MiB, {grown[1]} descriptors, {grown[2]} threads")
    return int(wrong > 0 or grown[0] > _GROWTH or grown[1] > 0 or grown[2] > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=2)
    given = parser.parse_args()
    sys.exit(main(given.minutes, given.clients))
