"""The command line: `atc convert|run|compare|inspect|check|strip|env|cache`, and ATC's own `atc --model=...`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from atc import __version__
from atc.console import Progress, print_json, report_error, table
from atc.spelling import is_atc_spelling, parse, parse_input_shape

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
cache_app = typer.Typer(no_args_is_help=True, help="The cache of compiled kernels.")
app.add_typer(cache_app, name="cache")
out = Console(highlight=False, soft_wrap=True)

ModelPath = Annotated[Path, typer.Argument(help="ONNX file", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="one JSON object on standard output")]
Inputs = Annotated[list[str] | None, typer.Option("--input", help="name=file.npy; seeded values for the others")]
Shapes = Annotated[str, typer.Option("--input_shape", "--input-shape", help='"name:d,d;name2:d", -1 stays symbolic')]
Threads = Annotated[int, typer.Option(help="threads of the device", min=1, max=64)]
Soc = Annotated[str, typer.Option("--soc_version", "--soc-version", help="chip for the estimate")]


def _guarded(as_json: bool, work: Callable[[], int | None]) -> None:
    try:
        code = work() or 0
    except (Exception, KeyboardInterrupt) as error:
        code = report_error(error, as_json)
    raise typer.Exit(code)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="print the version")] = False) -> None:
    if version:
        out.print(f"openatc {__version__}")
        raise typer.Exit(0)


@app.command()
def convert(
    model: ModelPath,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="package to write")] = None,
    input_shape: Shapes = "",
    soc_version: Soc = "Ascend910B2",
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="no stage lines")] = False,
    json: Json = False,
) -> None:
    """Converts an ONNX file to a package (.om)."""
    _guarded(json, lambda: _convert(model, output, input_shape, soc_version, quiet, json))


def _convert(model: Path, output: Path | None, input_shape: str, soc: str, quiet: bool, json: bool) -> int:
    from atc.conversion import convert as convert_model

    progress = Progress(None if json or quiet else out)
    result = convert_model(
        model, output, input_shape=parse_input_shape(input_shape), soc_version=soc, progress=progress
    )
    if json:
        print_json(result.as_dict())
    elif not quiet:
        for line in result.lines():
            out.print(line)
    return 0


@app.command()
def run(
    path: Annotated[Path, typer.Argument(help="package (.om) or ONNX file", show_default=False)],
    input: Inputs = None,
    input_shape: Shapes = "",
    loop: Annotated[int, typer.Option(help="timed runs", min=1)] = 1,
    threads: Threads = 1,
    output_dir: Annotated[Path | None, typer.Option(help="folder for the outputs as .npy")] = None,
    json: Json = False,
) -> None:
    """Runs a package (or converts and runs a model) and shows its latency."""

    def work() -> int:
        from atc.run import run_model

        result = run_model(path, input or [], parse_input_shape(input_shape), loop, threads, output_dir)
        if json:
            print_json(result)
        else:
            times = result["latency_ms"]
            out.print(f"latency    median {times['median']:.3f} ms   p99 {times['p99']:.3f} ms   min {times['min']:.3f} ms"
                      f"   ({loop} runs, {threads} thread{'s' if threads > 1 else ''})")  # fmt: skip
            out.print(f"AI CPU     {result['aicpu_share'] * 100:.1f} % of the time")
            for name, found in result["outputs"].items():
                out.print(f"output     {name}  {found['dtype']}{found['shape']}")
        return 0

    _guarded(json, work)


@app.command()
def compare(
    model: ModelPath,
    package: Annotated[Path | None, typer.Argument(help="package; converted on the way when absent")] = None,
    input: Inputs = None,
    input_shape: Shapes = "",
    csv: Annotated[Path | None, typer.Option(help="write the rows as CSV")] = None,
    all_rows: Annotated[bool, typer.Option("--all", help="show rows that pass as well")] = False,
    json: Json = False,
) -> None:
    """Compares every kernel with onnxruntime; exit code 6 when the model fails."""

    def work() -> int:
        from atc.compare_model import compare_model, write_csv

        found = compare_model(model, package, input or [], parse_input_shape(input_shape))
        if csv:
            write_csv(csv, found)
        if json:
            print_json(found.as_dict())
        else:
            shown = [r for r in found.rows if all_rows or r.verdict in ("warn", "fail")]
            rows = [_row(r) for r in shown] + [_row(r) for r in found.outputs]
            out.print(table("", ["tensor", "state", "kernel", "dtype", "cosine", "rel L2", "max abs", "verdict"], rows))
            states = {s: sum(r.state == s for r in found.rows) for s in ("compared", "fused", "folded", "dead")}
            out.print(f"{len(found.rows)} source tensors: " + ", ".join(f"{n} {s}" for s, n in states.items()))
            out.print(f"verdict    {found.verdict}" + (f", first bad: {found.first_bad}" if found.first_bad else ""))
        return 0 if found.verdict == "pass" else 6

    _guarded(json, work)


def _row(row: Any) -> list[str]:
    found = row.found
    if found is None:
        return [row.source, row.state, row.kernel, row.dtype, "-", "-", "-", row.verdict]
    cosine = "-" if found.cosine is None else f"{found.cosine:.7f}"
    return [row.source, row.state, row.kernel, row.dtype, cosine, f"{found.rel_l2:.2e}", f"{found.max_abs:.2e}", row.verdict]


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(help="package", show_default=False)],
    layers: Annotated[bool, typer.Option(help="kernels in order")] = False,
    memory: Annotated[bool, typer.Option(help="arena and its bound")] = False,
    json: Json = False,
) -> None:
    """Shows what a package holds."""

    def work() -> int:
        from atc.inspect_package import inspect_package

        found = inspect_package(path)
        if json:
            print_json(found)
            return 0
        out.print(f"{path.name}  made by openatc {found['version']}, for {found['soc_version']}")
        out.print(table("", ["part", "bytes"], [[p["name"], f"{p['bytes']}"] for p in found["parts"]]))
        if memory:
            for key, value in found["memory"].items():
                out.print(f"{key:<28} {value}")
        if layers:
            rows = [[str(i), k["node"], k["family"], k["program"]] for i, k in enumerate(found["layers"])]
            out.print(table("", ["#", "node", "family", "program"], rows))
        return 0

    _guarded(json, work)


@app.command()
def check(model: ModelPath, json: Json = False) -> None:
    """Lists every operator that cannot be converted, all at once; exit code 4 if there is one."""

    def work() -> int:
        from frontend import read_model, unsupported

        rows = unsupported(read_model(model))
        if json:
            print_json({"unsupported": [vars(r) for r in rows]})
        elif rows:
            columns = ["node", "op", "domain", "why", "remedy"]
            out.print(table("", columns, [[str(getattr(r, c)) for c in columns] for r in rows]))
        else:
            out.print("every operator is supported")
        return 4 if rows else 0

    _guarded(json, work)


@app.command()
def strip(
    package: Annotated[Path, typer.Argument(help="package", show_default=False)],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="default: in place")] = None,
) -> None:
    """Removes the parts made for one class of host; they are made again at load."""

    def work() -> int:
        from acl_runtime.om.strip import strip as strip_package

        target = output or package
        before = package.stat().st_size
        strip_package(package, target)
        out.print(f"{target}: {before} -> {target.stat().st_size} bytes")
        return 0

    _guarded(False, work)


@app.command()
def env(json: Json = False) -> None:
    """Versions, the host class and where the cache lies."""

    def work() -> int:
        from atc.environment import environment

        found = environment()
        if json:
            print_json(found)
        else:
            for key, value in found.items():
                out.print(f"{key:<16} {value}")
        return 0

    _guarded(json, work)


@cache_app.command("clear")
def cache_clear() -> None:
    """Removes every compiled kernel."""

    def work() -> int:
        from codegen.llvm.cache import ObjectCache

        out.print(f"removed {ObjectCache().clear()} kernels")
        return 0

    _guarded(False, work)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `atc`; ends the process with a documented exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if is_atc_spelling(words):
        as_json = "--json" in words

        def work() -> int:
            flags = parse(words)
            return _convert(
                Path(flags["model"]), Path(flags["output"] + ".om"), flags.get("input_shape", ""),
                flags["soc_version"], flags.get("log") in ("error", "null"), "json" in flags,
            )  # fmt: skip

        try:
            sys.exit(work())
        except (Exception, KeyboardInterrupt) as error:
            sys.exit(report_error(error, as_json))
    app(words)
