"""A conversion as a command: it shows what was done and gives the exit code, for both ways to spell it."""

from __future__ import annotations

from pathlib import Path

from atc.console import Progress, out, print_json, table
from atc.options import Options


def run_conversion(
    model: Path, output: Path | None, options: Options, json: bool, *, quiet: bool, verbose: bool
) -> int:
    """Converts, shows what was done and gives the exit code."""
    from atc.conversion import convert as convert_model

    progress = Progress(None if json or quiet else out)
    result = convert_model(model, output, options, progress)
    if json:
        print_json(result.as_dict())
    elif not quiet:
        for line in result.lines():
            out.print(line)
        if verbose and result.aicpu_nodes:
            columns = ["name", "op", "domain", "why"]
            out.print(table("AI CPU nodes", columns, [[n[c] for c in columns] for n in result.aicpu_nodes]))
        if verbose:
            from atc.fusion_report import fusion_table

            out.print(fusion_table(result.fusion_notes))
    return 0
