"""python -m tests.hostile.soak --minutes N: sessions opened and closed, shapes changed, threads, outputs kept and dropped.

Prints memory, descriptors, threads and the latency of a run every tenth of the time. Exit code 1 if one of them is larger
at the end than after the first third by more than a tenth (and 16 MB, 4 descriptors, 2 threads, half of the latency).
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

import numpy as np

from acl_runtime import InferSession
from tests.hostile import packages

NAMES = ("mlp", "branches", "selected_rows", "quantised", "llama")


def _arrays(draw: random.Random, session: InferSession) -> list[np.ndarray]:
    sizes: dict[str, int] = {}
    arrays = []
    for spec in session.get_inputs():
        shape = [n if isinstance(n, int) else sizes.setdefault(n, draw.randint(1, 9)) for n in spec.shape or ()]
        arrays.append(np.ones(shape, spec.dtype) if spec.dtype.kind == "f" else np.zeros(shape, spec.dtype))
    return arrays


def _round(draw: random.Random, folder: Path, seconds: list[float]) -> None:
    session = InferSession(0, folder / f"{draw.choice(NAMES)}.om", threads=draw.choice([1, 1, 2]))
    kept = []

    def work(seed: int) -> None:
        own = random.Random(seed)
        for _ in range(own.randint(1, 12)):
            started = time.perf_counter()
            outputs = session.infer(_arrays(own, session))
            seconds.append(time.perf_counter() - started)
            if own.random() < 0.3:
                kept.append(outputs)

    threads = [threading.Thread(target=work, args=(draw.randrange(1 << 30),)) for _ in range(draw.choice([1, 1, 3]))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _state(seconds: list[float]) -> dict[str, float]:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "MB": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "us a run": 1e6 * median(seconds) if seconds else 0.0,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.soak")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    draw = random.Random(given.seed)
    states: list[dict[str, float]] = []
    runs = 0
    with tempfile.TemporaryDirectory() as name:
        packages.prepare(Path(name), NAMES)
        for _ in range(10):
            until = time.monotonic() + given.minutes * 6
            seconds: list[float] = []
            while time.monotonic() < until:
                _round(draw, Path(name), seconds)
            runs += len(seconds)
            states.append(_state(seconds))
            print("  ".join(f"{value:.1f} {key}" for key, value in states[-1].items()), flush=True)
    early, late = states[3], states[-1]
    spare = {"MB": 16.0, "descriptors": 4.0, "threads": 2.0, "us a run": early["us a run"] / 2}
    grown = [key for key in early if late[key] > 1.1 * early[key] + spare[key]]
    print(f"{runs} runs; grown: {', '.join(grown) or 'nothing'}")
    return int(bool(grown))


if __name__ == "__main__":
    sys.exit(main())
