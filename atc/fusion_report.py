"""Why kernels end where they do and what nearly fused: the notes of the passes, from conversion to table and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from rich.table import Table

from atc.console import table
from graph_opt.ir.passes import Pass, notes_of


def fusion_notes(passes: Iterable[Pass]) -> list[dict[str, str]]:
    """The notes of passes that have run, as `node`, `step` (the pass or rule) and `reason`."""
    return [asdict(note) for note in notes_of(passes)]


def fusion_table(notes: Sequence[Mapping[str, str]]) -> Table:
    """One row per step and reason: how often, and the first node."""
    counts = Counter((n["step"], n["reason"]) for n in notes)
    first = {(n["step"], n["reason"]): n["node"] for n in reversed(notes)}
    rows = [[str(count), step, reason, first[step, reason]] for (step, reason), count in counts.items()]
    return table("fusion", ["times", "step", "reason", "first node"], rows)
