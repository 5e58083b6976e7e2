"""A conversion as a command: it shows what was done and gives the exit code, for both ways to spell it."""

from __future__ import annotations

from pathlib import Path

from atc.console import Progress, out, print_json
from atc.options import Options


def run_conversion(
    model: Path, output: Path | None, options: Options, json: bool, *, quiet: bool, verbose: bool,
    fusion_result: Path | None = None,
) -> int:  # fmt: skip
    """Converts, shows what was done and gives the exit code. `fusion_result` names the file in which ATC tells what
    fused."""
    from atc.conversion import convert as convert_model

    progress = Progress(None if json or quiet else out)
    result = convert_model(model, output, options, progress)
    if fusion_result is not None:
        from atc.display import write_json
        from atc.fusion_report import fusion_result as in_atcs_structure

        write_json(fusion_result, in_atcs_structure(result.fusions), "--output")
    if json:
        print_json(result.as_dict())
    elif not quiet:
        for line in result.lines():
            out.print(line)
        if verbose and result.aicpu_nodes:
            from atc.tables import table

            columns = ["name", "op", "domain", "why"]
            out.print(table("AI CPU nodes", columns, [[n[c] for c in columns] for n in result.aicpu_nodes]))
        if verbose:
            from atc.fusion_report import fusion_table

            out.print(fusion_table(result.fusion_notes))
    return 0
