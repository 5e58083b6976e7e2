"""One case, all contenders: start the workers, check the outputs, let the workers take turns."""

from __future__ import annotations

import os
import select
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from atc.benchmarking.case import Case
from atc.benchmarking.contenders import CONTENDERS, MACHINE, OURS, REFERENCE, Sgemm
from atc.benchmarking.messages import Message, load_arrays, receive, save_arrays, send
from atc.benchmarking.verify import EXACT, QUANTISED, REDUCED, differences

ANSWER_SECONDS = 900
ROOT = Path(__file__).resolve().parent.parent.parent
"""Where `atc` is imported from, installed or not."""


@dataclass(frozen=True)
class Settings:
    """`clock` is "wall", or "cpu": the worker's own processor time, which a busy machine disturbs less."""

    threads: int = 1
    rounds: int = 15
    slice_seconds: float = 0.03
    clock: str = "wall"


class Worker:
    """A contender's process. A question that is not answered in time, or a process that dies, ends it."""

    def __init__(self, contender: str, threads: int) -> None:
        available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
        cpus = ",".join(map(str, available[-threads:]))
        environment = os.environ | {"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
        if contender == MACHINE:
            # A core type forced for old BLAS builds would hide the machine's speed.
            environment = {key: value for key, value in environment.items() if key not in FORCED_BLAS}
            environment["OPENBLAS_NUM_THREADS"] = "1"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "atc.benchmarking.worker", contender, str(threads), cpus],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=environment,
        )

    def ask(self, message: Message) -> Message:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests and answers
        try:
            send(requests, message)
        except BrokenPipeError:
            return {"state": "failed", "reason": f"its process ended with code {self._process.wait()}"}
        if not select.select([answers], [], [], ANSWER_SECONDS)[0]:
            self._process.kill()
            return {"state": "failed", "reason": f"no answer in {ANSWER_SECONDS} s"}
        answer = receive(answers)
        return answer or {"state": "failed", "reason": f"its process ended with code {self._process.wait()}"}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()


FORCED_BLAS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


def measure(case: Case, contenders: Sequence[str], settings: Settings) -> dict[str, Any]:
    """A record of the case: for every contender its state (ok, wrong, failed, not available) and, when ok, its times.

    The reference and the machine's sgemm always take part. A name given twice runs twice, the second as `name#2`.
    """
    labels = {MACHINE: MACHINE, REFERENCE: REFERENCE}
    seen = set()
    for name in contenders:
        label = name
        while label in seen:
            label = f"{name}#{int(label.partition('#')[2] or 1) + 1}"
        seen.add(label)
        labels[label] = name
    with tempfile.TemporaryDirectory() as scratch:
        workers: dict[str, Worker] = {}
        try:
            for label, name in labels.items():
                workers[label] = Worker(name, settings.threads)
            records = _load(case, labels, workers, Path(scratch))
            racing = [label for label in labels if records[label]["state"] == "ok"]
            slices = _race(racing, workers, records, settings) if REFERENCE in racing else {}
        finally:
            for worker in workers.values():
                worker.__exit__(None, None, None)
    machine = records.pop(MACHINE)
    rates = [Sgemm.FLOPS / seconds / 1e9 for seconds in slices.pop(MACHINE, [])]
    result: dict[str, Any] = {"name": case.name, "flops": case.flops, "contenders": records}
    if rates:
        result["machine_gflops"] = {"median": statistics.median(rates), "min": min(rates), "max": max(rates)}
        result["machine_gflops_by_round"] = rates
    else:
        result["machine_gflops"] = {"reason": machine.get("reason", "the reference did not run")}
    for label, medians in slices.items():
        if records[label]["state"] == "ok":
            records[label] |= _summary(medians, slices[REFERENCE], case.flops)
    return result


def _load(case: Case, labels: dict[str, str], workers: dict[str, Worker], scratch: Path) -> dict[str, dict[str, Any]]:
    """Loads the model everywhere and checks what each contender computes against the reference."""
    save_arrays(scratch / "inputs.npz", case.inputs)
    records: dict[str, dict[str, Any]] = {}
    expected: dict[str, np.ndarray] | None = None
    for index, (label, name) in enumerate(labels.items()):
        path = case.reference_path if name == REFERENCE and case.reference_path else case.path
        if name == OURS and case.package:
            path = case.package
        outputs = scratch / f"outputs_{index}.npz"
        files = {"model": path.resolve(), "inputs": scratch / "inputs.npz", "outputs": outputs}
        question = {"do": "load", **{key: str(file) for key, file in files.items()}}
        record: dict[str, Any] = {"state": "ok"} | workers[label].ask(question)
        if record["state"] == "ok" and name != MACHINE and CONTENDERS[name].compares:
            arrays = load_arrays(outputs)
            expected = arrays if label == REFERENCE else expected
            if expected is None:
                record |= {"state": "not compared", "reason": f"{REFERENCE} did not run"}
            else:
                reduced = CONTENDERS[name].reduced or name == OURS and case.reduced
                limits = QUANTISED if case.int8 else REDUCED if reduced else EXACT
                found = differences(expected, arrays, limits)
                record["outputs"] = [entry.record() for entry in found]
                problems = [f"{entry.output}: {entry.problem}" for entry in found if entry.problem]
                if problems:
                    record |= {"state": "wrong", "reason": "; ".join(problems)}
        records[label] = record
    return records


def _race(
    racing: list[str], workers: dict[str, Worker], records: dict[str, dict[str, Any]], settings: Settings
) -> dict[str, list[float]]:
    """Median seconds of every slice, a list as long as the rounds for each contender that got through all of them."""
    question = {"do": "time", "slice_seconds": settings.slice_seconds, "clock": settings.clock}
    slices: dict[str, list[float]] = {label: [] for label in racing}
    for number in range(settings.rounds):
        # The start moves on, so that nobody always runs behind the same other.
        order = [*racing[number % len(racing) :], *racing[: number % len(racing)]]
        for label in order:
            if label in slices:
                answer = workers[label].ask(question)
                if "seconds" in answer:
                    slices[label].append(statistics.median(answer["seconds"]))
                else:
                    records[label] |= answer
                    del slices[label]
    return slices if REFERENCE in slices else {}


def _summary(medians: list[float], reference: list[float], flops: float | None) -> dict[str, Any]:
    """Times in ms; `ratio` is this contender's time over the reference's in the same round, below one is faster."""
    ratios = [own / other for own, other in zip(medians, reference, strict=True)]
    summary: dict[str, Any] = {
        "min_ms": min(medians) * 1e3,
        "median_ms": statistics.median(medians) * 1e3,
        "ratio_median": statistics.median(ratios),
        "ratio_p10": float(np.percentile(ratios, 10)),
        "slices_ms": [seconds * 1e3 for seconds in medians],
    }
    if flops:
        summary["gflops"] = flops / statistics.median(medians) / 1e9
    return summary
