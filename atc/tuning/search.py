"""Spends a budget of seconds on the kernels of a graph, the longest ones first.

1. Nodes whose default programs are equal are one kernel; its time counts as often as it occurs.
2. What the family names is tried first, then neighbours of the best, as long as one of them wins.
3. A candidate takes over when it is faster in paired turns; what is left at the end must beat the default in a longer
   match, or the default stays.
4. What was found, the default too, is kept in the cache beside kernel images, by the default program and the sources
   of the kernels, for whatever model has that kernel next.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from atc.tuning.candidates import first_candidates, neighbours
from atc.tuning.timing import Runnable, compile_together, ratio
from codegen.cache_files import CacheFiles, name_of, sources_digest
from codegen.cache_folder import cache_folder
from codegen.kernels import NotLowerable, Tilings, lower_node, tiling_of
from codegen.kernels.tiling import Tiling
from codegen.llvm.cache import generator_version
from codegen.targets.target import Target
from graph_opt.ir import Graph, Node
from graph_opt.plan.records import KernelRecord
from tensor_types.dims import evaluate

_PAIRS, _FINAL_PAIRS = 7, 21
_WINS = 0.97
"""Share of the time below which a candidate takes over; closer ones are noise."""
_SLOW = 1.3
"""A first look at more than this share of the best is the last."""
_LEAST_SECONDS = 5e-6
"""Kernels below it are not worth a search."""
_LEAST_PARTS = 8
"""Kernels are timed on one thread: a candidate must leave as much to share as the default has, or this much."""
_AT_ONCE = 8
"""Kernels whose candidates are compiled together."""
_CACHE_LIMIT = 1 << 24
_FAMILIES = frozenset(
    ("conv", "matmul", "grouped_matmul", "attention", "pool", "lrn", "reduction", "lstm", "gru", "rnn")
)
"""Those whose time depends on the cut; others move or map elements, in place where they can."""


@dataclass
class Tuned:
    """What was found: tilings that are better than the defaults by node, and what it took."""

    tilings: dict[str, Tiling] = field(default_factory=dict)
    kernels: int = 0
    """Different kernels that were looked at."""
    tried: int = 0
    known: int = 0
    """Kernels whose tiling was in the cache."""
    before: float = 0.0
    after: float = 0.0
    """Seconds of all kernels looked at, one thread, by default and as found."""

    def with_given(self, given: Tilings) -> Tilings:
        """All tilings of the conversion: those given and those found."""
        return {**given, **{node: (*given.get(node, ()), tiling) for node, tiling in self.tilings.items()}}

    def line(self) -> str:
        """The result in a line."""
        gain = f"{self.before * 1e3:.2f} to {self.after * 1e3:.2f} ms" if self.kernels else "nothing to do"
        return (f"{self.kernels} kernels, {self.tried} tilings tried, {self.known} known, {len(self.tilings)} nodes "
                f"changed: {gain} on one thread")  # fmt: skip


@dataclass
class _Kernel:
    """A default program and the nodes that have it."""

    nodes: list[Node]
    records: list[KernelRecord]
    default: Tiling
    runs: Runnable
    best: Tiling
    best_runs: Runnable
    seen: set[str]

    @property
    def share(self) -> float:
        return self.runs.seconds * len(self.nodes)


def tune(graph: Graph, target: Target, given: Tilings, budget: float) -> Tuned:
    """Searches the tilings of the fused nodes of a graph whose sizes are all known, for `budget` seconds. Nodes for
    which a tiling of the target is given keep it."""
    result, store = Tuned(), CacheFiles(cache_folder() / "tilings", _CACHE_LIMIT)
    kernels = sorted(_kernels(graph, target, given), key=lambda k: -k.share)
    end = time.monotonic() + budget  # what the default needs is compiled in any case
    result.kernels = len(kernels)
    open_: list[tuple[_Kernel, Iterator[Tiling]]] = []
    for kernel in kernels:
        known = _known(store, kernel, target)
        if known is not None:
            result.known += 1
            _adopt(kernel, known, target)
        else:
            open_.append((kernel, _candidates(kernel, target)))
    finished = []
    while open_ and time.monotonic() < end:
        # A candidate of each of the longest kernels, so that they are compiled side by side.
        round_: list[tuple[_Kernel, Tiling, list[KernelRecord]]] = []
        for entry in open_[:_AT_ONCE]:
            kernel, candidates = entry
            found = _next(kernel, candidates, target)
            if found is None:
                open_.remove(entry)
                finished.append(kernel)
            else:
                round_.append((kernel, *found))
        compile_together([r.program for _, _, records in round_ for r in records], target.name)
        for kernel, candidate, records in round_:
            _play(kernel, candidate, records, target)
            result.tried += 1
    for kernel in (*finished, *(kernel for kernel, _ in open_)):
        if kernel.best != kernel.default and ratio(kernel.best_runs, kernel.runs, _FINAL_PAIRS) > _WINS:
            kernel.best, kernel.best_runs = kernel.default, kernel.runs
    for kernel in finished:
        store.write(_place(kernel, target), str(kernel.best).encode())
    for kernel in kernels:
        share = 1.0 if kernel.best == kernel.default else ratio(kernel.best_runs, kernel.runs, _PAIRS)
        result.before += kernel.share
        result.after += kernel.share * share
        if kernel.best != kernel.default:
            result.tilings.update((node.name, kernel.best) for node in kernel.nodes)
    return result


def _kernels(graph: Graph, target: Target, given: Tilings) -> Iterator[_Kernel]:
    found: dict[str, tuple[list[Node], list[KernelRecord]]] = {}
    for node in graph.nodes:
        fixed = any(t.place in ("", target.kind) for t in given.get(node.name, ()))
        tunable = node.op == "Fused" and node.attrs.get("family") in _FAMILIES
        if not tunable or fixed or "#" in node.name or "\n" in node.name:
            continue
        records = _records(node, target, None)
        if records is not None and len({r.tiling for r in records}) == 1 and records[0].tiling:
            found.setdefault(_text(records), ([], records))[0].append(node)
    compile_together([r.program for _, records in found.values() for r in records], target.name)
    for text, (nodes, records) in found.items():
        runs = _runnable(records, target)
        if runs is not None and runs.seconds >= _LEAST_SECONDS:
            default = tiling_of(records[0].tiling)
            yield _Kernel(nodes, records, default, runs, default, runs, {text})


def _text(records: list[KernelRecord]) -> str:
    return "\0".join(r.program for r in records)


def _records(node: Node, target: Target, tiling: Tiling | None) -> list[KernelRecord] | None:
    """The tasks of a node if they are kernels of known sizes; None if not, or if there is no such kernel."""
    try:
        records = lower_node(node, target, tiling)
    except NotLowerable:
        return None
    kernels = [r for r in records if isinstance(r, KernelRecord)]
    static = all(isinstance(d, int) for r in kernels for d in (*r.dims, r.grid))
    return kernels if kernels and len(kernels) == len(records) and static else None


def _runnable(records: list[KernelRecord], target: Target) -> Runnable | None:
    try:
        return Runnable(records, target.name)
    except ValueError:
        return None


def _candidates(kernel: _Kernel, target: Target) -> Iterator[Tiling]:
    yield from first_candidates(kernel.nodes[0], target)
    centre = None
    while centre != kernel.best:
        centre = kernel.best
        yield from neighbours(centre)


def _next(kernel: _Kernel, candidates: Iterator[Tiling], target: Target) -> tuple[Tiling, list[KernelRecord]] | None:
    """The next candidate that gives a program not seen before, or None."""
    for candidate in candidates:
        records = _records(kernel.nodes[0], target, candidate)
        if records is None or _parts(records) < min(_parts(kernel.records), _LEAST_PARTS):
            continue
        if _text(records) not in kernel.seen:
            kernel.seen.add(_text(records))
            return candidate, records
    return None


def _parts(records: list[KernelRecord]) -> int:
    """Grid indices of the task that has the fewest: as many threads can share it."""
    return min(evaluate(r.grid, {}) for r in records)


def _play(kernel: _Kernel, candidate: Tiling, records: list[KernelRecord], target: Target) -> None:
    """Lets a candidate play against the best."""
    runs = _runnable(records, target)
    if runs is None or ratio(runs, kernel.best_runs, 1) > _SLOW:
        return
    if ratio(runs, kernel.best_runs, _PAIRS) < _WINS:
        kernel.best, kernel.best_runs = candidate, runs


def _adopt(kernel: _Kernel, known: Tiling, target: Target) -> None:
    records = _records(kernel.nodes[0], target, known) if known != kernel.default else None
    runs = None if records is None else _runnable(records, target)
    if runs is not None:
        kernel.best, kernel.best_runs = known, runs


def _place(kernel: _Kernel, target: Target) -> str:
    programs = _text(kernel.records)
    direct = str(any(n.attrs.get("direct") for n in kernel.nodes[0].subgraphs["body"].nodes))
    return name_of(generator_version(), sources_digest("codegen/kernels"), target.name, direct, programs)


def _known(store: CacheFiles, kernel: _Kernel, target: Target) -> Tiling | None:
    content = store.read(_place(kernel, target))
    return None if content is None else tiling_of(content.decode())
