"""A profile as rows of kernels: time, work, bound, source nodes, and how the threads shared it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from acl_runtime import InferSession
from acl_runtime.machine_peaks import Peaks, measure_peaks
from acl_runtime.om import open_package
from acl_runtime.profile import Profile, TaskTime
from atc import __version__
from atc.comparing.rows import digest_of
from atc.diffing import source_nodes
from atc.inputs import read_files
from atc.kernel_names import kernel_name
from atc.package_texts import graph_of
from atc.profiling.memory import MemoryUse, model_memory
from atc.run import session_inputs
from codegen.targets import target
from codegen.targets.roofline import estimate
from codegen.tile.ir import Program
from codegen.tile.text import parse_program
from graph_opt.ir import Graph

_CACHED = 1 << 20
"""Operands up to this many bytes are taken to lie in the cache."""
_BUSY = 0.15
"""A kernel below this part of every bound is held up by something else: its start, dependences, scattered access."""


@dataclass(frozen=True)
class KernelRow:
    """One task. ms: in the fastest run; median_ms: over all runs; share: of the sum of all tasks.

    flops: operations, a multiply-add counts as two, None where they are not known. bytes: of the operands, each once.
    bound: 'compute', 'memory', 'latency' (nothing of both), 'AI CPU' or '' (did not run). utilisation: of the bound's
    peak. balance: mean busy time of the threads over the busiest one's.
    """

    task: int
    name: str
    family: str
    kernel: str
    device: str
    source_nodes: list[str]
    ms: float
    median_ms: float
    share: float
    flops: float | None
    bytes: int
    bound: str
    utilisation: float | None
    gflops_s: float | None
    gbytes_s: float | None
    grid: int
    calls: int
    threads: int
    balance: float


@dataclass(frozen=True)
class ProfileReport:
    """All of `atc profile`. lanes: busy milliseconds of each thread; span_ms: from first begin to last end."""

    package: str
    tool: str
    command: str
    input_digest: str
    host_class: str
    threads: int
    runs: int
    kernels: list[KernelRow]
    total_ms: float
    span_ms: float
    plain_ms: float
    measuring_overhead: float
    peaks: Peaks
    lanes: list[float]
    memory: MemoryUse
    calls: np.ndarray = field(repr=False)
    """task, worker, begin and end in ns from the first begin."""
    after: list[tuple[int, ...]] = field(default_factory=list, repr=False)
    """Tasks that must end before each."""

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        left_out = {"calls", "after", "memory"}
        record = {k: v for k, v in vars(self).items() if k not in left_out}
        record["kernels"] = [asdict(k) for k in self.kernels]
        record["peaks"] = asdict(self.peaks)
        record["arena_bytes"] = self.memory.arena
        record["peak_live_bytes"] = self.memory.peak
        return record


def profile_package(
    package: Path, files: Sequence[str] = (), input_shape: Mapping[str, Sequence[int]] | None = None, threads: int = 1,
    runs: int = 20,
) -> ProfileReport:  # fmt: skip
    """Runs a package `runs` times with measuring and as often without. OpenAtcError as `atc run` has it."""
    session = InferSession(0, package, threads=threads)
    feeds = session_inputs(session, package, read_files(files), input_shape or {})
    profile = session.profile(feeds, runs)
    peaks = measure_peaks(threads)
    opened = open_package(package)
    graph = graph_of(opened)
    segments = session.plan.segments
    calls = profile.calls.copy()
    first = int(calls["begin"].min()) if len(calls) else 0
    calls["begin"] -= first
    calls["end"] -= first
    rows = _rows(profile, calls, session, graph, peaks, threads)
    total = sum(r.ms for r in rows)
    after, begin = [], 0
    for segment in segments:
        after += [tuple(begin + a for a in task.after) for task in segment.tasks]
        begin += len(segment.tasks)
    return ProfileReport(
        package=str(package), tool=f"openatc {__version__}", command=" ".join(["atc", *sys.argv[1:]]),
        input_digest=digest_of([feeds]), host_class=session.host_class, threads=threads, runs=runs, kernels=rows,
        total_ms=total, span_ms=profile.seconds * 1e3, plain_ms=profile.plain_seconds * 1e3,
        measuring_overhead=profile.overhead, peaks=peaks, lanes=_lanes(calls, threads),
        memory=model_memory(segments, profile.dims), calls=calls, after=after,
    )  # fmt: skip


def _lanes(calls: np.ndarray, threads: int) -> list[float]:
    lengths = (calls["end"] - calls["begin"]) / 1e6
    return [float(lengths[calls["worker"] == t].sum()) for t in range(threads)]


def _rows(
    profile: Profile, calls: np.ndarray, session: InferSession, graph: Graph, peaks: Peaks, threads: int
) -> list[KernelRow]:
    sources = source_nodes(graph)
    programs = _Programs(session)
    of_task = [calls[calls["task"] == number] for number in range(len(profile.tasks))]
    # From the calls themselves, so that rows and trace say the same; the executor's stamps lie around them.
    spans = [float(own["end"].max() - own["begin"].min()) / 1e9 if len(own) else 0.0 for own in of_task]
    total = sum(spans)
    rows = []
    for number, (timed, own) in enumerate(zip(profile.tasks, of_task, strict=True)):
        task = replace(timed, seconds=spans[number])
        busy = [float((own["end"] - own["begin"])[own["worker"] == w].sum()) for w in np.unique(own["worker"])]
        flops = programs.flops(task)
        bound, part = _bound(task, flops, programs.speed_up(task), peaks)
        seconds = task.seconds
        rows.append(
            KernelRow(
                task=number, name=task.node, family=task.family, kernel=programs.name(task), device=task.device,
                source_nodes=sources.get(task.node, [task.node]), ms=seconds * 1e3, median_ms=task.median * 1e3,
                share=seconds / total if total else 0.0, flops=flops, bytes=task.bytes, bound=bound, utilisation=part,
                gflops_s=flops / seconds / 1e9 if flops and seconds else None,
                gbytes_s=task.bytes / seconds / 1e9 if task.bytes and seconds else None,
                grid=task.grid, calls=len(own), threads=len(busy),
                balance=sum(busy) / max(busy) / min(threads, max(1, task.grid)) if busy and max(busy) else 1.0,
            )
        )  # fmt: skip
    return rows


def _bound(task: TaskTime, flops: float | None, speed_up: float, peaks: Peaks) -> tuple[str, float | None]:
    """What holds a task up, and the part of that peak that it reaches."""
    if not task.seconds:
        return "", None
    if task.device == "AI CPU":
        return "AI CPU", None
    bandwidth = peaks.cache_bytes if task.bytes <= _CACHED else peaks.memory_bytes
    parts = {
        "compute": (flops or 0.0) / (peaks.flops * speed_up) / task.seconds,
        "memory": task.bytes / bandwidth / task.seconds,
    }
    bound = max(parts, key=lambda name: parts[name])
    return (bound if parts[bound] >= _BUSY else "latency"), parts[bound]


class _Programs:
    """The tile programs of a session, parsed when they are asked for."""

    def __init__(self, session: InferSession) -> None:
        self._texts = session.plan.programs
        self._target = target(session.host_class)
        self._parsed: dict[int, Program] = {}
        self._flops: dict[tuple[int, tuple[tuple[str, int], ...]], float | None] = {}

    def _program(self, number: int) -> Program:
        if number not in self._parsed:
            self._parsed[number] = parse_program(self._texts[number])
        return self._parsed[number]

    def name(self, task: TaskTime) -> str:
        return task.family if task.program is None else kernel_name(self._texts[task.program])

    def flops(self, task: TaskTime) -> float | None:
        if task.program is None:
            return None
        key = (task.program, task.dims)
        if key not in self._flops:
            program, dims = self._program(task.program), dict(task.dims)
            complete = all(d.name in dims for d in program.dims)
            self._flops[key] = estimate(program, dims, self._target).flops if complete else None
        return self._flops[key]

    def speed_up(self, task: TaskTime) -> float:
        """How much faster than in f32 the machine multiplies numbers of the task's first operand."""
        if task.program is None:
            return 1.0
        rates = self._target.cube.rates
        dtype = self._program(task.program).params[0].dtype.name
        return max(1.0, rates.get(dtype, 0) / rates["f32"])
