"""An offline model compiler: ONNX in, .om package out. ATC's spelling works too: atc --model=M --framework=5 ..."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atc import __version__
from atc.bench_command import bench
from atc.command_options import (
    CustomOps,
    Dims,
    Inputs,
    Json,
    ModelPath,
    Shapes,
    Threads,
    UsageProblem,
    guarded,
    out,
    report_usage,
)
from atc.compare_command import compare
from atc.console import print_json
from atc.convert_command import convert
from atc.diff_command import diff
from atc.generate_command import generate
from atc.key_commands import key_app
from atc.models_command import models_app
from atc.option_values import named_sizes, one_chip, sizes
from atc.profile_command import profile
from atc.tables import table
from atc.usage import UsageError

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__, rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
cache_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The cache of compiled kernels.")
app.add_typer(cache_app, name="cache")
app.add_typer(key_app, name="key")
app.add_typer(models_app, name="models")


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="print the version")] = False) -> None:
    if version:
        out.print(f"openatc {__version__}")
        raise typer.Exit(0)


app.command()(convert)
app.command()(compare)
app.command()(profile)
app.command()(bench)
app.command()(diff)
app.command()(generate)


@app.command()
def run(
    path: Annotated[Path, typer.Argument(help="package (.om) or ONNX file", show_default=False)],
    input: Inputs = None,
    input_shape: Shapes = "",
    dims: Dims = "",
    loop: Annotated[int, typer.Option(help="timed runs", min=1)] = 1,
    warmup: Annotated[int, typer.Option(help="runs before, which are not timed", min=0)] = 1,
    duration: Annotated[float, typer.Option(help="seconds to go on for at least", min=0)] = 0.0,
    threads: Threads = 1,
    output_dir: Annotated[Path | None, typer.Option(help="folder for the outputs as .npy")] = None,
    on: Annotated[str, typer.Option("--on", help="chip whose programs are interpreted: slow, exact in meaning")] = "",
    custom_op: CustomOps = None,
    json: Json = False,
) -> None:
    """Runs a package (or converts and runs a model) and shows its latency."""

    def work() -> int:
        from atc.run import run_model

        chip = one_chip("on", on) if on else None
        result = run_model(
            path, input or [], sizes("input_shape", input_shape), loop, threads, output_dir, chip,
            dims=named_sizes("dims", dims), warmup=warmup, duration=duration,
        )  # fmt: skip
        if json:
            print_json(result)
        else:
            times = result["latency_ms"]
            figures = "   ".join(f"{key} {times[key]:.3f} ms" for key in ("median", "p90", "p99", "min"))
            out.print(f"latency    {figures}   ({result['runs']} runs, {threads} thread{'s' if threads > 1 else ''})")
            if chip is not None:
                out.print(f"on         {chip}: times are those of the interpreter, not of the chip")
            else:
                out.print(f"AI CPU     {result['aicpu_share'] * 100:.1f} % of the time")
            for name, found in result["outputs"].items():
                out.print(f"output     {name}  {found['dtype']}{found['shape']}")
                for file in (e["file"] for e in (found, *found.get("elements", ())) if "file" in e):
                    out.print(f"           {file}")
        return 0

    guarded(json, work, custom_op)


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(help="package; an ONNX file with --ir", show_default=False)],
    layers: Annotated[bool, typer.Option("--layers", help="tasks in order")] = False,
    memory: Annotated[bool, typer.Option("--memory", help="arena and its bound")] = False,
    fusion: Annotated[bool, typer.Option("--fusion", help="why kernels end where they do")] = False,
    ir: Annotated[str, typer.Option("--ir", help="text of a stage: read, optimised or programs")] = "",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="page (.html): arena over time, before and after, fusion")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="check the digests of the weights too")] = False,
    soc: Annotated[str, typer.Option("--soc", help="kernels, memory and AI CPU nodes of a chip")] = "",
    custom_op: CustomOps = None,
    json: Json = False,
) -> None:
    """Shows what a package holds."""

    def work() -> int:
        from atc import inspect_package as view

        if soc:
            from atc.chip_view import chip_tables, inspect_chip

            report = inspect_chip(path, one_chip("soc", soc))
            if json:
                print_json(report)
            for part in () if json else chip_tables(report):
                out.print(part)
            return 0
        if ir:
            text = _ir_text(path, ir)
            if json:
                print_json({"stage": ir, "text": text})
            else:
                out.print(text)
            return 0
        found = view.inspect_package(path, verify)
        if output is not None:
            from atc.package_page import write_page
            from atc.writing import check_file

            check_file(output, "-o", [path])
            write_page(output, path, found)
        if json:
            print_json(found)
            return 0
        out.print(f"{path.name}  made by {found['tool']}, for {', '.join(found['classes'])} and {found['soc_version']}")
        for role in ("inputs", "outputs"):
            for tensor in found[role]:
                shape = "?" if tensor["shape"] is None else ", ".join(map(str, tensor["shape"]))
                out.print(f"{role[:-1]:<8} {tensor['name']}  {tensor['dtype']}[{shape}]")
        for op, found_op in found["operators"].items():
            needs = f"needs the module {found_op['module']}" if found_op["kind"] == "numpy" else "native code"
            out.print(f"operator {op}  {needs}")
        for host, reason in found["signatures"].items():
            out.print(f"signed   {host}: {reason}")
        parts = [[p["name"], p["kind"], str(p["bytes"])] for p in found["parts"]]
        out.print(table("", ["part", "kind", "bytes"], parts))
        if memory:
            for key, value in found["memory"].items():
                out.print(f"{key:<26} {value}")
        if layers:
            columns = ["task", "node", "family", "engine", "program", "grid"]
            rows = [["-" if t[c] is None else str(t[c]) for c in columns] for t in found["layers"]]
            out.print(table("", columns, rows))
        if fusion:
            from atc.fusion_report import fusion_table

            out.print(fusion_table(found["fusion_notes"]))
        return 0

    guarded(json, work, custom_op)


def _ir_text(path: Path, stage: str) -> str:
    from atc.inspect_package import IR_STAGES, model_text, package_text

    is_model = path.suffix == ".onnx"
    known = [s for s in IR_STAGES if s != ("programs" if is_model else "read")]
    if stage not in known:
        raise UsageError(f"--ir {stage}: no such stage of this file", where={"flag": "--ir"},
                         remedy=f"use one of {', '.join(known)}")  # fmt: skip
    return model_text(path, stage) if is_model else package_text(path, stage)


@app.command()
def check(
    model: ModelPath,
    soc_version: Annotated[
        str, typer.Option("--soc_version", "--soc-version", help="chip, or chips with commas, for AI CPU nodes")
    ] = "",
    input_shape: Shapes = "",
    custom_op: CustomOps = None,
    json: Json = False,
) -> None:
    """Lists every operator that cannot be converted, all at once; exit code 4 if there is one.

    With a chip, also the nodes that its AI CPU would run, each with the reason.
    """

    def work() -> int:
        from atc import option_values
        from atc.check_model import check_model

        chips = option_values.chips("soc_version", soc_version).value if soc_version else ()
        found = check_model(model, chips, option_values.shapes("input_shape", input_shape))
        rows = found["unsupported"]
        if json:
            print_json(found)
        elif rows:
            columns = ["node", "op", "domain", "why", "remedy"]
            out.print(table("", columns, [[str(r[c]) for c in columns] for r in rows]))
        else:
            out.print("every operator is supported")
            for chip, nodes in found.get("aicpu_nodes", {}).items():
                columns = ["name", "op", "domain", "why"]
                out.print(table(f"AI CPU of {chip}", columns, [[n[c] for c in columns] for n in nodes]) if nodes
                          else f"no node on the AI CPU of {chip}")  # fmt: skip
        return 4 if rows else 0

    guarded(json, work, custom_op)


@app.command()
def strip(
    package: Annotated[Path, typer.Argument(help="package", show_default=False)],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="default: in place")] = None,
    json: Json = False,
) -> None:
    """Removes the parts made for one class of host; they are made again at load."""

    def work() -> int:
        from acl_runtime.strip_package import strip_package
        from atc.writing import check_package, writing

        target = output or package
        if output:
            check_package(output, "--output")
        with writing("--output"):
            dropped = strip_package(package, target)
        removed, left = sum(s.size for s in dropped), target.stat().st_size
        if json:
            print_json({"package": str(target), "package_bytes": left, "removed": [s.name for s in dropped]})
        else:
            out.print(f"{target}: {removed} bytes of {len(dropped)} parts removed, {left} bytes left")
        return 0

    guarded(json, work)


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

    guarded(json, work)


@cache_app.command("clear")
def cache_clear(json: Json = False) -> None:
    """Removes every compiled kernel, and the trust in packages that comes from having compiled them here."""

    def work() -> int:
        from acl_runtime.om.trust import forget
        from atc.chip_figures import figure_files
        from codegen.kernels.answer_files import answer_files
        from codegen.llvm.cache import ObjectCache
        from codegen.tile.verdicts import verdict_files

        cache = ObjectCache()
        removed = sum(files.clear() for files in (cache, verdict_files(), answer_files(), figure_files()))
        forget()
        if json:
            print_json({"removed": removed, "cache": str(cache.folder)})
        else:
            out.print(f"removed {removed} files from {cache.folder.parent}")
        return 0

    guarded(json, work)


@app.command()
def explain(code: Annotated[str, typer.Argument(help="code of an error, such as E10016")], json: Json = False) -> None:
    """Says what an error code means and what helps, those of ATC that never occur here included."""

    def work() -> int:
        from atc.explain import explanation

        found = explanation(code)
        if json:
            print_json(found)
        else:
            for key, value in found.items():
                out.print(f"{key:<10} {value}")
        return 0

    guarded(json, work)


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--folder", help="where model and package are put")] = Path("openatc-demo"),
    json: Json = False,
) -> None:
    """Builds a small model, converts it, runs it and compares it with onnxruntime."""

    def work() -> int:
        from atc.demo import run_demo

        found = run_demo(folder, None if json else out)
        if json:
            print_json(found)
        return 0 if found["compare"]["verdict"] == "pass" else 6

    guarded(json, work)


def run_command(words: list[str], as_json: bool) -> int:
    """Does what the words say and gives the exit code; KeyboardInterrupt where the user breaks off."""
    try:
        return int(app(words, standalone_mode=False) or 0)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except UsageProblem as problem:
        return report_usage(problem, as_json)
