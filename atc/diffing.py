"""What differs between two packages of a model, or two profiles: kernels, fusions, dtypes, memory, time.

Kernels are paired by the source nodes that they compute: those that share a node belong to one group, whose kernels and
time stand side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from acl_runtime import InferSession
from acl_runtime.om import open_package
from atc.inspect_package import inspect_package
from atc.kernel_names import kernel_name
from atc.package_texts import graph_of, report_of
from atc.run import session_inputs
from atc.usage import UsageError
from graph_opt.ir import Graph
from tensor_types.json_text import parse_json


@dataclass(frozen=True)
class Kernel:
    """A task of one side; ms is None where nothing was timed."""

    name: str
    family: str
    kernel: str
    source_nodes: tuple[str, ...]
    ms: float | None = None


@dataclass(frozen=True)
class Side:
    """One package or profile. dtypes: by source tensor; facts: figures by name, of both sides to be told."""

    title: str
    kernels: tuple[Kernel, ...]
    dtypes: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """Kernels of both sides that compute the same source nodes."""

    nodes: tuple[str, ...]
    a: tuple[Kernel, ...]
    b: tuple[Kernel, ...]

    @property
    def change(self) -> str:
        """'same', 'kernel' (another program of the same nodes), 'fusion' (nodes lie together in another way), or which
        side alone has them."""
        if not self.a or not self.b:
            return "only a" if self.a else "only b"
        shared = {n for k in self.a for n in k.source_nodes} & {n for k in self.b for n in k.source_nodes}
        parts = [{frozenset(shared & set(k.source_nodes)) for k in side} for side in (self.a, self.b)]
        if parts[0] != parts[1]:
            return "fusion"  # what only one side has (a Cast) is no fusion of the model's nodes
        return "same" if [k.kernel for k in self.a] == [k.kernel for k in self.b] else "kernel"

    def ms(self, side: Sequence[Kernel]) -> float | None:
        """Their time together."""
        times = [k.ms for k in side if k.ms is not None]
        return sum(times) if times else None

    def as_dict(self) -> dict[str, Any]:
        def of(kernels: Sequence[Kernel]) -> list[dict[str, str]]:
            return [{"name": k.name, "family": k.family, "kernel": k.kernel} for k in kernels]

        return {"source_nodes": list(self.nodes), "change": self.change, "a": of(self.a), "b": of(self.b),
                "ms_a": self.ms(self.a), "ms_b": self.ms(self.b)}  # fmt: skip


@dataclass(frozen=True)
class Diff:
    """`groups` in the order of side a; `dtypes` of source tensors that differ, as (a, b)."""

    a: Side
    b: Side
    groups: list[Group]
    dtypes: dict[str, tuple[str, str]]

    @property
    def facts(self) -> dict[str, tuple[Any, Any]]:
        """Figures that both sides may have, None where one has not."""
        names = dict.fromkeys([*self.a.facts, *self.b.facts])
        return {n: (self.a.facts.get(n), self.b.facts.get(n)) for n in names}

    @property
    def changed(self) -> list[Group]:
        return [g for g in self.groups if g.change != "same"]

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        total = [sum(k.ms or 0.0 for k in s.kernels) if any(k.ms is not None for k in s.kernels) else None
                 for s in (self.a, self.b)]  # fmt: skip
        return {
            "a": self.a.title, "b": self.b.title,
            "kernels": {"a": len(self.a.kernels), "b": len(self.b.kernels), **Counter(g.change for g in self.groups)},
            "fusions": [g.as_dict() for g in self.changed],
            "dtypes": {name: list(pair) for name, pair in self.dtypes.items()},
            "memory": {name: list(pair) for name, pair in self.facts.items()},
            "time": {"a_ms": total[0], "b_ms": total[1], "groups": [g.as_dict() for g in self.groups]},
        }  # fmt: skip


def diff_files(a: Path, b: Path, given: Mapping[str, Any], runs: int, threads: int = 1) -> Diff:
    """Two packages, timed in turns `runs` times (0: not at all), or two files of `atc profile --json`. UsageError."""
    kinds = [p.suffix for p in (a, b)]
    if kinds == [".json", ".json"]:
        sides = [_profile(p) for p in (a, b)]
    elif ".json" in kinds:
        raise UsageError("one is a package, the other a profile", where={"flag": "B"}, remedy="name two of a kind")
    else:
        sides = [_package(p) for p in (a, b)]
        if runs:
            sides = _timed(sides, (a, b), given, runs, threads)
    shared = sides[0].dtypes.keys() & sides[1].dtypes.keys()
    pairs = {n: (sides[0].dtypes[n], sides[1].dtypes[n]) for n in sides[0].dtypes if n in shared}
    changed = {n: p for n, p in pairs.items() if p[0] != p[1]}
    return Diff(sides[0], sides[1], grouped(sides[0].kernels, sides[1].kernels), changed)


def grouped(a: Sequence[Kernel], b: Sequence[Kernel]) -> list[Group]:
    """Connected by shared source nodes."""
    leader: dict[str, str] = {}

    def find(node: str) -> str:
        while leader.setdefault(node, node) != node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    for kernel in (*a, *b):
        for node in kernel.source_nodes[1:]:
            leader[find(node)] = find(kernel.source_nodes[0])
    groups: dict[str, tuple[dict[str, None], list[list[Kernel]]]] = {}
    for side, kernels in enumerate((a, b)):
        for kernel in kernels:
            nodes, members = groups.setdefault(find(kernel.source_nodes[0]), ({}, [[], []]))
            nodes.update(dict.fromkeys(kernel.source_nodes))
            members[side].append(kernel)
    return [Group(tuple(nodes), tuple(x), tuple(y)) for nodes, (x, y) in groups.values()]


def source_nodes(graph: Graph) -> dict[str, list[str]]:
    """Names of the source nodes by the node of the optimised graph that computes them."""
    found: dict[str, list[str]] = {}
    for node in graph.nodes:
        inner = [n.name for n in node.subgraphs["body"].nodes] if node.op == "Fused" else [node.name]
        found.setdefault(node.name, []).extend(dict.fromkeys(inner))
    return found


def _package(path: Path) -> Side:
    found = inspect_package(path)
    opened = open_package(path)
    graph = graph_of(opened)
    report = report_of(opened)
    sources = source_nodes(graph)
    session = InferSession(0, path)
    names = {n: kernel_name(text) for n, text in enumerate(session.plan.programs)}
    kernels = tuple(
        Kernel(row["node"], row["family"], names.get(row["program"], row["family"]),
               tuple(sources.get(row["node"], [row["node"]])))
        for row in found["layers"]
    )  # fmt: skip
    dtypes = {
        source: graph.values[origin.value].dtype.name
        for source, origin in graph.origins.items()
        if origin.value in graph.values and origin.relation in ("same", "cast")
    }
    memory = found["memory"]
    facts = {
        "tool": found["tool"], "precision_mode": report.get("precision_mode"), "kernels": len(kernels),
        "on the AI CPU": sum(r["engine"] == "AI CPU" for r in found["layers"]), "arena_bytes": memory["arena_bytes"],
        "weights_bytes": memory["weights_bytes"], "package_bytes": found["package_bytes"],
    }  # fmt: skip
    return Side(str(path), kernels, dtypes, facts)


def _profile(path: Path) -> Side:
    try:
        record = parse_json(path.read_bytes())
        kernels = tuple(
            Kernel(str(k["name"]), str(k["family"]), str(k.get("kernel", k["name"])),
                   tuple(map(str, k["source_nodes"])) or (str(k["name"]),), float(k["ms"]))
            for k in record["kernels"]
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}", where={"flag": "A"},
                         remedy="give what atc profile --json printed") from error  # fmt: skip
    names = ("tool", "host_class", "threads", "arena_bytes", "peak_live_bytes")
    return Side(str(path), kernels, {}, {n: record.get(n) for n in names})


def _timed(
    sides: Sequence[Side], paths: Sequence[Path], given: Mapping[str, Any], runs: int, threads: int
) -> list[Side]:  # fmt: skip
    """The sides with the median time of each task over the runs, in which they took turns."""
    sessions = [InferSession(0, p, threads=threads) for p in paths]
    feeds = [session_inputs(s, p, given, {}) for s, p in zip(sessions, paths, strict=True)]
    times: list[list[list[float]]] = [[], []]
    for _ in range(runs):
        for n in (0, 1):
            times[n].append([t.seconds * 1e3 for t in sessions[n].profile(feeds[n], 1).tasks])
    made = []
    for side, found in zip(sides, times, strict=True):
        middle = np.median(np.array(found), axis=0).tolist()
        timed = tuple(
            Kernel(k.name, k.family, k.kernel, k.source_nodes, ms) for k, ms in zip(side.kernels, middle, strict=True)
        )
        made.append(Side(side.title, timed, side.dtypes, {**side.facts, "sum of tasks, ms": round(sum(middle), 4)}))
    return made
