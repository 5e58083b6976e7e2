"""`atc profile`."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from atc.command_options import CustomOps, Inputs, Json, Shapes, Threads, guarded, out
from atc.console import Progress, print_json
from atc.option_values import sizes
from atc.tables import table


def profile(
    path: Annotated[Path, typer.Argument(help="package (.om) or ONNX file", show_default=False)],
    input: Inputs = None,
    input_shape: Shapes = "",
    threads: Threads = 1,
    runs: Annotated[int, typer.Option(help="measured runs", min=1, max=100_000)] = 20,
    trace: Annotated[
        Path | None, typer.Option("-o", "--trace", help="trace for ui.perfetto.dev (.json or .json.gz)")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="page with swimlane, roofline and memory")] = None,
    csv: Annotated[Path | None, typer.Option(help="kernels as op_summary CSV")] = None,
    all_rows: Annotated[bool, typer.Option("--all", help="show every kernel, not the slowest ten")] = False,
    custom_op: CustomOps = None,
    json: Json = False,
) -> None:
    """Shows where the time of a package goes, kernel by kernel, and what holds each kernel up."""

    def work() -> int:
        from atc.conversion import convert
        from atc.options import Options
        from atc.profiling.advice import advise
        from atc.profiling.exports import write_op_summary, write_trace
        from atc.profiling.page import write_page
        from atc.profiling.report import profile_package
        from atc.writing import check_file

        files = (("-o", trace, write_trace), ("--html", html, write_page), ("--csv", csv, write_op_summary))
        for flag, file, _ in files:
            if file is not None:
                check_file(file, flag, [path])
        given = sizes("input_shape", input_shape)
        progress = Progress(None if json else out)
        with tempfile.TemporaryDirectory() as folder:
            package = path
            if path.suffix == ".onnx":
                with progress.stage("convert"):
                    package = Path(folder) / f"{path.stem}.om"
                    convert(path, package, Options(input_shape=given))
            with progress.stage("measure"):
                report = replace(profile_package(package, input or [], given, threads, runs), package=str(path))
        for flag, file, write in files:
            if file is not None:
                write(file, report, flag)
        if json:
            print_json(report.as_dict())
            return 0
        rows = sorted(report.kernels, key=lambda k: -k.ms)[: None if all_rows else 10]
        columns = ["kernel", "family", "us", "share", "bound", "used", "GFLOP/s", "GB/s", "balance", "source nodes"]
        out.print(table("", columns, [_row(k) for k in rows]))
        peaks = report.peaks
        out.print(
            f"span       {report.span_ms:.3f} ms, fastest of {runs} runs; {len(report.kernels)} tasks, "
            f"{report.total_ms:.3f} ms in sum; measuring added {report.measuring_overhead * 100:.1f} %"
        )
        out.print(
            f"machine    {peaks.flops / 1e9:.1f} GFLOP/s in f32, {peaks.cache_bytes / 1e9:.1f} GB/s from cache, "
            f"{peaks.memory_bytes / 1e9:.1f} GB/s from memory, measured with {peaks.threads} thread"
            f"{'s' if peaks.threads > 1 else ''}"
        )
        for advice in advise(report):
            out.print(f"{advice.topic:<10} {advice.figure}. {advice.text}")
        return 0

    guarded(json, work, custom_op)


def _row(kernel: object) -> list[str]:
    from atc.profiling.report import KernelRow

    assert isinstance(kernel, KernelRow)

    def number(value: float | None, digits: int, factor: float = 1.0, unit: str = "") -> str:
        return "-" if value is None else f"{value * factor:.{digits}f}{unit}"

    return [
        kernel.name, kernel.family, number(kernel.ms, 2, 1e3), number(kernel.share, 1, 100, " %"), kernel.bound,
        number(kernel.utilisation, 0, 100, " %"), number(kernel.gflops_s, 1), number(kernel.gbytes_s, 1),
        number(kernel.balance, 0, 100, " %"), ", ".join(kernel.source_nodes),
    ]  # fmt: skip
