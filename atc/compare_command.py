"""`atc compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from atc.command_options import CustomOps, Inputs, Json, ModelPath, Shapes, guarded, out
from atc.console import print_json, table
from atc.option_values import precision_mode as precision_mode_named
from atc.option_values import sizes
from atc.usage import UsageError
from graph_opt.precision.lists import DEFAULT


def compare(
    model: ModelPath,
    package: Annotated[Path | None, typer.Argument(help="package; converted on the way when absent")] = None,
    input: Inputs = None,
    input_shape: Shapes = "",
    csv: Annotated[Path | None, typer.Option(help="write the rows as CSV")] = None,
    msit_csv: Annotated[
        Path | None, typer.Option("--msit_csv", "--msit-csv", help="compared rows under msit's columns, as CSV")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="compared rows as JUnit test cases (.xml)")] = None,
    html: Annotated[Path | None, typer.Option(help="page with rows, error along the model and histograms")] = None,
    precision_mode: Annotated[
        str, typer.Option("--precision_mode", "--precision-mode", help="of the conversion, where no package is given")
    ] = DEFAULT,
    bisect_pass: Annotated[
        bool, typer.Option("--bisect_pass", "--bisect-pass", help="convert again and again to find the pass to blame")
    ] = False,
    bisect_precision: Annotated[
        Path | None,
        typer.Option("--bisect_precision", "--bisect-precision", help="find nodes to keep; write a --keep_dtype file"),
    ] = None,
    all_rows: Annotated[bool, typer.Option("--all", help="show rows that pass as well")] = False,
    custom_op: CustomOps = None,
    json: Json = False,
) -> None:
    """Compares every kernel with onnxruntime; exit code 6 unless it passes."""

    def work() -> int:
        from atc.compare_model import compare_model
        from atc.comparing.exports import write_csv, write_junit, write_msit_csv
        from atc.comparing.page import write_page
        from atc.comparing.rows import STATES
        from atc.writing import check_file

        files = {"--csv": csv, "--msit_csv": msit_csv, "--junit": junit, "--html": html,
                 "--bisect_precision": bisect_precision}  # fmt: skip
        mode, shapes = precision_mode_named("precision_mode", precision_mode), sizes("input_shape", input_shape)
        own = {
            "--precision_mode": mode != DEFAULT,
            "--bisect_pass": bisect_pass,
            "--bisect_precision": bisect_precision,
        }
        if package is not None and (flag := next((f for f, given in own.items() if given), None)) is not None:
            raise UsageError(f"{flag} is about a conversion, and a package is given", where={"flag": flag},
                             remedy="leave the package out: the model is converted on the way")  # fmt: skip
        for flag, file in files.items():
            if file is not None:
                check_file(file, flag, [model, *([package] if package else [])])
        details = html is not None or msit_csv is not None
        found = compare_model(model, package, input or [], shapes, details, mode)
        if csv:
            write_csv(csv, found)
        if msit_csv:
            write_msit_csv(msit_csv, found)
        if junit:
            write_junit(junit, found, model.stem)
        if html:
            write_page(html, found, model, package)
        verdicts = _searched(model, input or [], shapes, mode, bisect_pass, bisect_precision)
        if json:
            print_json({**found.as_dict(), **verdicts})
        else:
            rows = [_row(r) for r in found.shown(all_rows)]
            columns = ["tensor", "state", "kernel", "dtype", "cosine", "rel L2", "isolated", "floor", "verdict", ""]
            out.print(table("", columns, rows))
            states = {s: sum(r.state == s for r in found.rows) for s in STATES}
            counts = ", ".join(f"{n} {s}" for s, n in states.items() if n or s not in ("reference", "unknown"))
            out.print(f"{len(found.rows)} source tensors: {counts}")
            out.print(f"verdict    {found.verdict}" + (f", first bad: {found.first_bad}" if found.first_bad else ""))
            for name, words in verdicts.items():
                out.print(f"{name.removeprefix('bisect_'):<10} {words if isinstance(words, str) else ', '.join(words)}")
        return 0 if found.verdict == "pass" else 6

    guarded(json, work, custom_op)


def _searched(
    model: Path, files: list[str], shapes: dict[str, Any], mode: str, bisect_pass: bool, keep_file: Path | None
) -> dict[str, Any]:
    """What the searches say, by name."""
    if not bisect_pass and keep_file is None:
        return {}
    from atc.comparing.bisect import Probe, guilty_nodes, guilty_passes, write_keep_file
    from atc.inputs import read_files

    probe = Probe(model, read_files(files), shapes, mode)
    found: dict[str, Any] = {"bisect_pass": guilty_passes(probe)} if bisect_pass else {}
    if keep_file is not None:
        nodes = guilty_nodes(probe)
        if nodes is not None:
            write_keep_file(keep_file, nodes)
        found["bisect_precision"] = "it fails with nodes kept as well" if nodes is None else list(nodes)
    return found


def _row(row: Any) -> list[str]:
    left = [row.source, row.state, row.kernel, row.dtype]
    found = row.found
    if found is None:
        return [*left, "-", "-", "-", "-", row.verdict, row.note]
    cosine = "-" if found.cosine is None else f"{found.cosine:.7f}"
    errors = ["-" if d is None or d.rel_l2 is None else f"{d.rel_l2:.2e}" for d in (found, row.isolated, row.floor)]
    return [*left, cosine, *errors, row.verdict, row.note]
