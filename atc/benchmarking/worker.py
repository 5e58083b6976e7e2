"""The process of one contender: loads a model, then times slices on demand.

`python -m atc.benchmarking.worker CONTENDER THREADS CPU,CPU,...` reads messages from standard input and answers on
standard output; whatever libraries print goes to standard error.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from atc.benchmarking.messages import Message, load_arrays, receive, save_arrays, send

Run = Callable[[], object]
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def _load(message: Message, contender: str, threads: int) -> tuple[Message, Run]:
    from atc.benchmarking.contenders import CONTENDERS

    inputs = load_arrays(Path(message["inputs"])) if message["inputs"] else {}
    start = time.perf_counter()
    loaded = CONTENDERS[contender].load(Path(message["model"]), inputs, threads)
    seconds = time.perf_counter() - start
    save_arrays(Path(message["outputs"]), loaded.run())
    return {"load_seconds": seconds, "options": loaded.options}, loaded.run


def _time(message: Message, run: Run) -> Message:
    """Seconds of single runs that fill a slice, after one run that is not counted when the slice has several."""
    clock = CLOCKS[message["clock"]]
    start = clock()
    run()
    first = clock() - start
    if first > message["slice_seconds"] / 2:
        return {"seconds": [first]}
    seconds = []
    end = clock() + message["slice_seconds"]
    while (start := clock()) < end:
        run()
        seconds.append(clock() - start)
    return {"seconds": seconds}


def serve(requests: IO[bytes], answers: IO[bytes], contender: str, threads: int) -> None:
    run: Run | None = None
    while (message := receive(requests)) is not None:
        try:
            if message["do"] == "load":
                answer, run = _load(message, contender, threads)
                gc.collect()
                gc.disable()
            elif run is not None:
                answer = _time(message, run)
            else:
                answer = {"state": "failed", "reason": "no model is loaded"}
        except ImportError as error:
            answer = {"state": "not available", "reason": str(error)}
        except Exception as error:  # noqa: BLE001 - whatever one contender raises, the others go on
            answer = {"state": "failed", "reason": f"{type(error).__name__}: {error}"}
        send(answers, answer)


def main(contender: str, threads: str, cpus: str) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers, contender, int(threads))


if __name__ == "__main__":
    main(*sys.argv[1:])
