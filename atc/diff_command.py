"""`atc diff`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atc.command_options import CustomOps, Inputs, Json, Threads, guarded, out
from atc.console import Progress, print_json
from atc.tables import table

if TYPE_CHECKING:
    from atc.diffing import Group

_MOST = 20


def diff(
    a: Annotated[Path, typer.Argument(help="package (.om), or what atc profile --json printed", show_default=False)],
    b: Annotated[Path, typer.Argument(help="the other one, of the same kind", show_default=False)],
    input: Inputs = None,
    runs: Annotated[int, typer.Option(help="turns in which both are timed, 0 for none", min=0, max=10_000)] = 10,
    threads: Threads = 1,
    all_rows: Annotated[bool, typer.Option("--all", help="show everything, not the largest differences")] = False,
    custom_op: CustomOps = None,
    json: Json = False,
) -> None:
    """Shows what differs between two packages of a model: kernels, fusions, dtypes, memory, time."""

    def work() -> int:
        from atc.diffing import diff_files
        from atc.inputs import read_files

        progress = Progress(None if json else out)
        with progress.stage("compare"):
            found = diff_files(a, b, read_files(input or []), runs, threads)
        if json:
            print_json(found.as_dict())
            return 0
        most = None if all_rows else _MOST
        facts = [[name, str(x), str(y), _percent(x, y)] for name, (x, y) in found.facts.items()]
        out.print(table("", ["", "a", "b", "b - a"], facts))
        rows = sorted(found.groups if all_rows else found.changed, key=lambda g: -abs(_gain(g)))
        columns = ["change", "kernels of a", "kernels of b", "ms a", "ms b", "source nodes"]
        shown = [_row(group) for group in rows[:most]]
        out.print(table("kernels and fusions", columns, shown) if rows else "kernels    the same")
        if len(rows) > len(shown):
            out.print(f"           and {len(rows) - len(shown)} more, see --all")
        dtypes = [[name, *pair] for name, pair in found.dtypes.items()]
        out.print(table("dtypes", ["source tensor", "a", "b"], dtypes[:most]) if dtypes else "dtypes     the same")
        if most and len(dtypes) > most:
            out.print(f"           and {len(dtypes) - most} more, see --all")
        return 0

    guarded(json, work, custom_op)


def _gain(group: Group) -> float:
    return (group.ms(group.b) or 0.0) - (group.ms(group.a) or 0.0)


def _row(group: Group) -> list[str]:
    def names(kernels: Any) -> str:
        return ", ".join(k.kernel for k in kernels) or "-"

    def time(ms: float | None) -> str:
        return "-" if ms is None else f"{ms:.4f}"

    nodes = ", ".join(group.nodes[:6]) + (f" and {len(group.nodes) - 6} more" if len(group.nodes) > 6 else "")
    return [group.change, names(group.a), names(group.b), time(group.ms(group.a)), time(group.ms(group.b)), nodes]


def _percent(x: Any, y: Any) -> str:
    if not isinstance(x, (int, float)) or not isinstance(y, (int, float)):
        return "" if x == y else "changed"
    share = f" ({(y / x - 1) * 100:+.1f} %)" if x else ""
    return "" if x == y else f"{y - x:+.6g}{share}"
