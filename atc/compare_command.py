"""`atc compare`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atc.command_options import CustomOps, Dims, Inputs, Json, Shapes, guarded, out
from atc.console import Progress, print_json
from atc.option_values import named_sizes, one_chip, sizes
from atc.tables import table
from atc.usage import UsageError
from graph_opt.precision.lists import DEFAULT

if TYPE_CHECKING:
    from atc.compare_model import Comparer
    from atc.comparing.rows import Comparison, Measured


def compare(
    model: Annotated[Path | None, typer.Argument(help="ONNX file", show_default=False)] = None,
    package: Annotated[Path | None, typer.Argument(help="package; converted on the way when absent")] = None,
    input: Inputs = None,
    data: Annotated[Path | None, typer.Option(help="several inputs: a folder, an .npz, or images")] = None,
    input_shape: Shapes = "",
    dims: Dims = "",
    against: Annotated[
        str, typer.Option(help="onnxruntime, reference, a package (.om), or a folder of .npy files")
    ] = "onnxruntime",
    soc: Annotated[str, typer.Option(help="chip whose programs are interpreted and compared: slow")] = "",
    dump: Annotated[str, typer.Option(help="all: tensors inside of kernels are compared as well")] = "",
    threshold: Annotated[
        list[str] | None, typer.Option(help="relative L2 that may be, of some tensors as 'layer*=0.05'; repeatable")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="write the measurements, for --recheck")] = None,
    recheck: Annotated[Path | None, typer.Option(help="judge saved measurements again, without running")] = None,
    csv: Annotated[Path | None, typer.Option(help="write the rows as CSV")] = None,
    msit_csv: Annotated[
        Path | None, typer.Option("--msit_csv", "--msit-csv", help="compared rows under msit's columns, as CSV")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="compared rows as JUnit test cases (.xml)")] = None,
    html: Annotated[Path | None, typer.Option(help="page with rows, error along the model and histograms")] = None,
    precision_mode: Annotated[
        str, typer.Option("--precision_mode", "--precision-mode", help="of the conversion, where no package is given")
    ] = DEFAULT,
    keep_dtype: Annotated[
        Path | None, typer.Option("--keep_dtype", "--keep-dtype", help="of the conversion: nodes that stay wide")
    ] = None,
    aipp: Annotated[str, typer.Option(help="of the conversion: how images become tensors, as imagenet-rgb")] = "",
    bisect_pass: Annotated[
        bool, typer.Option("--bisect_pass", "--bisect-pass", help="convert again and again to find the pass to blame")
    ] = False,
    bisect_precision: Annotated[
        Path | None,
        typer.Option("--bisect_precision", "--bisect-precision", help="find nodes to keep; write a --keep_dtype file"),
    ] = None,
    reduce: Annotated[
        Path | None, typer.Option(help="write the smallest part of the model that fails, with its inputs")
    ] = None,
    all_rows: Annotated[bool, typer.Option("--all", help="show rows that pass as well")] = False,
    custom_op: CustomOps = None,
    json: Json = False,
) -> None:
    """Compares every kernel with onnxruntime, or another oracle; exit code 6 unless it passes."""

    def work() -> int:
        from atc.comparing.limits import parse_thresholds
        from atc.comparing.saved_run import load_run, save_run
        from atc.judging import judge
        from atc.writing import check_file

        files = {"--csv": csv, "--msit_csv": msit_csv, "--junit": junit, "--html": html, "--save": save,
                 "--bisect_precision": bisect_precision, "--reduce": reduce}  # fmt: skip
        sources = [p for p in (model, package, recheck) if p is not None]
        for flag, file in files.items():
            if file is not None:
                check_file(file, flag, sources)
        limits = parse_thresholds(threshold or [])
        searches = {"--bisect_pass": bisect_pass, "--bisect_precision": bisect_precision, "--reduce": reduce}
        if recheck is not None:
            without: dict[str, Any] = {"MODEL": model, "--input": input, "--data": data, "--save": save, **searches}
            for flag in (f for f, given in without.items() if given):
                raise UsageError(f"{flag} asks for a run, and --recheck judges an older one", where={"flag": flag},
                                 remedy="leave one of them out")  # fmt: skip
            measured, about = load_run(recheck)
            _report(judge(measured, limits), about, files, json, all_rows, {})
            return 0 if judge(measured, limits).verdict == "pass" else 6
        if model is None:
            raise UsageError("no model is given", where={"flag": "MODEL"}, remedy="name an ONNX file, or --recheck RUN")
        own: dict[str, Any] = {
            "--precision_mode": precision_mode != DEFAULT, "--keep_dtype": keep_dtype, "--aipp": aipp, **searches
        }  # fmt: skip
        for flag in (f for f, given in own.items() if given and package is not None):
            raise UsageError(f"{flag} is about a conversion, and a package is given", where={"flag": flag},
                             remedy="leave the package out: the model is converted on the way")  # fmt: skip
        if dump not in ("", "all"):
            raise UsageError(f"--dump {dump!r}", code="E10001", where={"flag": "--dump"}, remedy="write --dump all")
        if dump and soc:
            raise UsageError("--dump and --soc exclude each other", code="E10056", where={"flag": "--dump"},
                             remedy="leave one of them out: interiors are those of the host's kernels")  # fmt: skip
        from atc.compare_model import Comparer, Settings
        from atc.comparing.oracles import oracle_of
        from atc.options import Options

        chip = one_chip("soc", soc) if soc else None
        flags = {"precision_mode": precision_mode, "keep_dtype": keep_dtype, "aipp": aipp, "soc_version": chip}
        settings = Settings(
            Options.of({flag: str(value) for flag, value in flags.items() if value}), limits,
            html is not None or msit_csv is not None, oracle_of(against), chip, dump == "all",
            sizes("input_shape", input_shape), named_sizes("dims", dims), Progress(None if json else out),
        )  # fmt: skip
        with Comparer(model, package, settings) as comparer:
            measured = _measured(comparer, input or [], data, against)
            about = _about(comparer, measured, package, against)
        if save is not None:
            save_run(save, measured, about)
        found = judge(measured, limits)
        verdicts: dict[str, Any] = {}
        if any(searches.values()):
            at = next((i for i, m in enumerate(measured) if judge([m], limits).verdict == "fail"), 0)
            quiet = replace(settings, progress=Progress(None))
            say = (lambda words: None) if json else out.print
            feeds = comparer.samples[at][1]
            verdicts = _searched(model, found, feeds, quiet, say, bisect_pass, bisect_precision, reduce)
        _report(found, about, files, json, all_rows, verdicts)
        return 0 if found.verdict == "pass" else 6

    guarded(json, work, custom_op)


def _measured(comparer: Comparer, files: list[str], data: Path | None, against: str) -> list[Measured]:
    """On the one input of --input, or on each of --data; a folder of dumps that holds the inputs gives them."""
    from atc.comparing.oracles import dumped_inputs
    from atc.comparing.samples import read_samples
    from atc.inputs import read_files

    given = read_files(files)
    tensors = comparer.session.get_inputs()
    if Path(against).is_dir():
        given = {**dumped_inputs(Path(against), [t.name for t in tensors]), **given}
    samples = [("", given)]
    if data is not None:
        samples = [(name, {**given, **own}) for name, own in read_samples(data, tensors, comparer.images)]
    return [comparer.measure(arrays, name) for name, arrays in samples]


def _about(comparer: Comparer, measured: list[Measured], package: Path | None, against: str) -> dict[str, str]:
    """What reports say of the run itself."""
    import sys

    from atc import __version__
    from atc.comparing.rows import digest_of

    return {
        "tool": f"openatc {__version__}", "model": str(comparer.model),
        "package": str(package or "converted on the way"), "against": against,
        "command": " ".join(["atc", *sys.argv[1:]]), "inputs": digest_of([feeds for _, feeds in comparer.samples]),
    }  # fmt: skip


def _searched(
    model: Path, found: Comparison, given: Any, settings: Any, say: Any, bisect_pass: bool, keep_file: Path | None,
    reduced: Path | None,
) -> dict[str, Any]:  # fmt: skip
    """What the searches say, by name."""
    from atc.comparing.bisect import Probe, guilty_nodes, guilty_passes, write_keep_file
    from atc.comparing.reduce_model import reduce_model, write_reduced

    probe = Probe(model, given, settings, say)
    verdicts: dict[str, Any] = {"bisect_pass": guilty_passes(probe)} if bisect_pass else {}
    if keep_file is not None:
        nodes = guilty_nodes(probe)
        if nodes is not None:
            write_keep_file(keep_file, nodes)
        verdicts["bisect_precision"] = "it fails with nodes kept as well" if nodes is None else list(nodes)
    if reduced is not None:
        without_shapes = replace(settings, input_shape={})
        made = reduce_model(model, found, given, lambda path, inputs: probe.on(path, inputs, without_shapes))
        data = write_reduced(reduced, made)
        verdicts["reduce"] = (
            f"{reduced} with {data.name}: {len(made.nodes)} of {made.of} nodes, {', '.join(made.nodes[:8])}"
        )
    return verdicts


def _report(
    found: Comparison, about: dict[str, str], files: dict[str, Path | None], json: bool, all_rows: bool,
    verdicts: dict[str, Any],
) -> None:  # fmt: skip
    """Files, and what is printed."""
    from atc.comparing.exports import write_csv, write_junit, write_msit_csv
    from atc.comparing.page import write_page
    from atc.comparing.rows import STATES

    if csv := files["--csv"]:
        write_csv(csv, found)
    if msit_csv := files["--msit_csv"]:
        write_msit_csv(msit_csv, found)
    if junit := files["--junit"]:
        write_junit(junit, found, Path(about["model"]).stem, about)
    if html := files["--html"]:
        write_page(html, found, about)
    if json:
        print_json({**found.as_dict(), **verdicts, "about": about})
        return
    several = len(found.samples) > 1
    columns = ["tensor", "state", "kernel", "dtype", "cosine", "rel L2", *(["mean", "worst of"] if several else []),
               "isolated", "floor", "verdict", ""]  # fmt: skip
    out.print(table("", columns, [_row(r, several) for r in found.shown(all_rows)]))
    states = {s: sum(r.state == s for r in found.rows) for s in STATES}
    counts = ", ".join(f"{n} {s}" for s, n in states.items() if n or s not in ("reference", "unknown"))
    for note in found.notes:
        out.print(f"inside     {note}")
    for name, share in found.top1.items():
        inputs = f", {len(found.samples)} inputs" if several else ""
        out.print(f"top-1      {name}: {share * 100:.2f} % agree{inputs}")
    out.print(f"{len(found.rows)} source tensors: {counts}")
    out.print(f"verdict    {_verdict(found)}")
    for name, words in verdicts.items():
        out.print(f"{name.removeprefix('bisect_'):<10} {words if isinstance(words, str) else ', '.join(words)}")


def _verdict(found: Comparison) -> str:
    """In a line: the first bad layer and who is to blame."""
    row = found.first_bad_row
    if row is None:
        return found.verdict
    sample = f" on {row.sample}" if row.sample else ""
    kernel = f" ({row.kernel})" if row.kernel else ""
    passing = f"; it passes with --threshold {found.passing:g}" if found.passing else ""
    return f"{found.verdict}, first bad: {row.source}{kernel}{sample}" + (f": {row.note}" if row.note else "") + passing


def _row(row: Any, several: bool) -> list[str]:
    left = [row.source, row.state, row.kernel, row.dtype]
    found = row.found
    if found is None:
        return [*left, "-", "-", *(["-", "-"] if several else []), "-", "-", row.verdict, row.note]
    cosine = "-" if found.cosine is None else f"{found.cosine:.7f}"

    def shown(error: float | None) -> str:
        return "-" if error is None else f"{error:.2e}"

    own, alone, floor = (shown(None if d is None else d.rel_l2) for d in (found, row.isolated, row.floor))
    more = [shown(row.mean), row.sample] if several else []
    return [*left, cosine, own, *more, alone, floor, row.verdict, row.note]
