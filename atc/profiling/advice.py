"""What to look at first: slowest kernels, utilisation, movement, balance, pipeline, each with its figure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from atc.profiling.report import KernelRow, ProfileReport

_MOVES = frozenset({"movement", "piecewise", "scatter"})
_MANY_MOVES, _FEW_USED, _IDLE, _UNEVEN = 0.10, 0.4, 0.15, 0.8
_MOST = 3
_WORTH = 0.03
"""Kernels below this share are not worth a word."""


@dataclass(frozen=True)
class Advice:
    """topic: which of the five; figure: the number behind it; text: what to do."""

    topic: str
    figure: str
    text: str


def advise(report: ProfileReport) -> list[Advice]:
    """At most one word a topic and kernel, and of a topic on the slowest kernels only."""
    rows = sorted((k for k in report.kernels if k.ms), key=lambda k: -k.ms)
    found = []
    for row in rows[:_MOST]:
        if row.share >= _WORTH:
            where = ", ".join(row.source_nodes[:3])
            text = f"{row.name} ({row.family}, {row.bound}-bound) computes {where}"
            found.append(Advice("slowest", f"{row.share:.0%} of the time, {row.ms:.3f} ms", text))
    found += _ai_cpu(rows)
    poor = [r for r in rows if r.share >= _WORTH and r.utilisation is not None and r.utilisation < _FEW_USED]
    for row in poor[:_MOST]:
        found.append(Advice("utilisation", f"{row.utilisation:.0%} of the {_peak(row)}", _why_slow(row)))
    found += _others("utilisation", poor)
    moves = sum(k.share for k in rows if k.family in _MOVES)
    if moves >= _MANY_MOVES:
        names = ", ".join(k.name for k in rows if k.family in _MOVES)
        text = f"kernels that only move data: {names[:200]}; atc inspect --fusion says why they did not fuse"
        found.append(Advice("movement", f"{moves:.0%} of the time", text))
    if report.threads > 1:
        uneven = [r for r in rows if r.share >= _WORTH and r.balance < _UNEVEN]
        for row in uneven[:_MOST]:
            text = f"{row.name} has {row.grid} grid indices in {row.calls} parts for {report.threads} threads"
            found.append(Advice("balance", f"threads {row.balance:.0%} as busy as the busiest", text))
        found += _others("balance", uneven)
        idle = 1 - sum(report.lanes) / (report.span_ms * report.threads) if report.span_ms else 0.0
        if idle >= _IDLE:
            text = "threads wait for each other between kernels: fewer threads, or more work a run (a larger batch)"
            found.append(Advice("pipeline", f"{idle:.0%} of the threads' time is idle", text))
    elif report.span_ms:
        gaps = 1 - sum(report.lanes) / report.span_ms
        if gaps >= _IDLE:
            text = "the time between kernels; many tiny kernels: a larger batch, or look for what did not fuse"
            found.append(Advice("pipeline", f"{gaps:.0%} of the run is between kernels", text))
    return found


def _others(topic: str, rows: list[KernelRow]) -> list[Advice]:
    """A word on the kernels of a topic that have none of their own."""
    rest = rows[_MOST:]
    share = sum(r.share for r in rest)
    names = ", ".join(r.name for r in rest[:_MOST])
    return [Advice(topic, f"{share:.0%} of the time", f"{len(rest)} more kernels, first {names}")] if rest else []


def _ai_cpu(rows: list[KernelRow]) -> list[Advice]:
    by_op: dict[str, list[KernelRow]] = defaultdict(list)
    for row in rows:
        if row.device == "AI CPU":
            by_op[row.family].append(row)
    found = []
    for op, members in by_op.items():
        share = sum(m.share for m in members)
        if share >= _WORTH:
            text = f"{len(members)} x {op} on the AI CPU, first {members[0].name}; atc convert -v gives reasons"
            found.append(Advice("AI CPU", f"{share:.0%} of the time", text))
    return found


def _peak(row: KernelRow) -> str:
    return "measured f32 peak" if row.bound != "memory" else "measured bandwidth"


def _why_slow(row: KernelRow) -> str:
    if row.bound == "latency":
        return f"{row.name}: neither operations nor bytes explain its time; small grids and scattered access do this"
    if row.bound == "memory":
        return f"{row.name}: reads and writes {row.bytes / 1e6:.2f} MB at {row.gbytes_s:.1f} GB/s"
    return f"{row.name}: {(row.flops or 0) / 1e6:.1f} million operations at {row.gflops_s:.1f} GFLOP/s"
