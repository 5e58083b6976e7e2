"""`atc bench`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from atc.command_options import CustomOps, Dims, Inputs, Json, ModelPath, Shapes, Threads, guarded, out
from atc.console import Progress, print_json
from atc.option_values import named_sizes, sizes
from atc.tables import table
from atc.usage import UsageError
from graph_opt.precision.lists import DEFAULT


def bench(
    model: ModelPath,
    package: Annotated[Path | None, typer.Argument(help="package; converted on the way when absent")] = None,
    against: Annotated[str, typer.Option(help="onnxruntime, openvino, or both with a comma")] = "onnxruntime",
    input: Inputs = None,
    input_shape: Shapes = "",
    dims: Dims = "",
    precision_mode: Annotated[
        str, typer.Option("--precision_mode", "--precision-mode", help="of the conversion, where no package is given")
    ] = DEFAULT,
    threads: Threads = 1,
    rounds: Annotated[int, typer.Option(help="turns of each contender", min=1, max=10_000)] = 15,
    slice: Annotated[float, typer.Option(help="milliseconds of a turn, one run at least", min=0.001)] = 50.0,
    clock: Annotated[str, typer.Option(help="wall, or cpu: for a busy machine, one thread")] = "wall",
    why: Annotated[bool, typer.Option("--why", help="which nodes of the model the difference lies in")] = False,
    custom_op: CustomOps = None,
    json: Json = False,
) -> None:
    """Times a model beside onnxruntime and OpenVINO, in turns; exit code 6 if outputs differ."""

    def work() -> int:
        from atc.benchmarking.contenders import OURS, REFERENCE
        from atc.benchmarking.rounds import Settings

        names = list(dict.fromkeys([REFERENCE, *filter(None, against.split(","))]))
        known = (REFERENCE, "openvino")
        for name in names:
            if name not in known:
                raise UsageError(f"--against {name!r} is unknown", code="E10001", where={"flag": "--against"},
                                 remedy=f"name {' or '.join(known)}")  # fmt: skip
        if clock not in ("wall", "cpu") or clock == "cpu" and threads > 1:
            raise UsageError(f"--clock {clock} with {threads} threads", code="E10001", where={"flag": "--clock"},
                             remedy="write wall, or cpu with one thread")  # fmt: skip
        if package is not None and precision_mode != DEFAULT:
            raise UsageError("--precision_mode is about a conversion, and a package is given",
                             where={"flag": "--precision_mode"}, remedy="leave the package out")  # fmt: skip
        given = sizes("input_shape", input_shape)
        progress = Progress(None if json else out)
        with tempfile.TemporaryDirectory() as folder:
            case = _case(model, package, input or [], given, named_sizes("dims", dims), precision_mode, Path(folder),
                         progress)  # fmt: skip
            settings = Settings(threads, rounds, slice / 1e3, clock)
            with progress.stage("time"):
                found = _measured(case, [OURS, *names], settings)
            if why:
                from atc.benchmarking.by_node import time_by_node

                with progress.stage("why"):
                    groups = time_by_node(model, case.package, case.inputs, threads, max(3, rounds))
                found["by_node"] = [g.as_dict() for g in sorted(groups, key=_loss, reverse=True)]
        states = {name: record["state"] for name, record in found["contenders"].items()}
        if json:
            print_json(found)
        else:
            _show(found, settings)
        return 6 if "wrong" in states.values() else 8 if states.get(OURS) != "ok" else 0

    guarded(json, work, custom_op)


def _case(
    model: Path, package: Path | None, files: list[str], shapes: dict[str, Any], dims: dict[str, int], mode: str,
    folder: Path, progress: Progress,
) -> Any:  # fmt: skip
    """Model, package and inputs; without a package the model is converted for the sizes of the inputs."""
    from acl_runtime import InferSession
    from acl_runtime.om import open_package
    from acl_runtime.package_layout import json_section
    from atc.benchmarking.case import Case
    from atc.conversion import convert
    from atc.golden import structure
    from atc.inputs import read_files
    from atc.options import Options
    from atc.run import session_inputs

    given = read_files(files)
    made = package or folder / "model.om"
    with progress.stage("convert"):
        if package is None:
            convert(model, made, Options(input_shape=dict(shapes), precision_mode=mode))
        session = InferSession(0, made)
        feeds = session_inputs(session, made, given, shapes, dims=dims)
        if package is None and session.dims:
            made = folder / "static.om"
            fixed = {name: list(array.shape) for name, array in feeds.items() if array.ndim}
            convert(model, made, Options(input_shape=dict(fixed), precision_mode=mode))
    chosen = json_section(open_package(made), "report").get("precision_mode", DEFAULT)
    quantised, _, _ = structure(model)
    return Case(model.stem, model, feeds, bool(quantised), package=made, reduced=chosen != DEFAULT)


def _measured(case: Any, contenders: list[str], settings: Any) -> dict[str, Any]:
    """The record of `rounds.measure` with statistics in place of its own, and what was measured on."""
    import sys
    from dataclasses import asdict

    from atc import __version__
    from atc.benchmarking.contenders import REFERENCE
    from atc.benchmarking.machine import machine
    from atc.benchmarking.rounds import measure
    from atc.benchmarking.statistics_of_turns import as_record, paired, spread
    from atc.comparing.rows import digest_of

    found = measure(case, contenders, settings)
    rows = found["contenders"]
    reference = rows.get(REFERENCE, {}).get("slices_ms")
    for name, record in rows.items():
        if own := record.get("slices_ms"):
            pair = paired(own, reference) if name != REFERENCE and reference else None
            record |= as_record(spread(own), pair)
    about = {"tool": f"openatc {__version__}", "command": " ".join(["atc", *sys.argv[1:]]),
             "input_digest": digest_of([case.inputs])}  # fmt: skip
    return {**about, "machine": machine(), "settings": asdict(settings), **found}


def _loss(group: Any) -> float:
    """Milliseconds that ours takes longer."""
    return (group.ms(group.a) or 0.0) - (group.ms(group.b) or 0.0)


def _show_why(groups: list[dict[str, Any]]) -> None:
    """Groups where ours loses most, and what all that it loses and gains comes to."""

    def names(kernels: list[dict[str, str]]) -> str:
        counts: dict[str, int] = {}
        for kernel in kernels:
            counts[kernel["family"]] = counts.get(kernel["family"], 0) + 1
        return ", ".join(f"{n} x {f}" if n > 1 else f for f, n in counts.items()) or "-"

    rows, losses = [], [(g["ms_a"] or 0.0) - (g["ms_b"] or 0.0) for g in groups]
    for group, loss in list(zip(groups, losses, strict=True))[:8]:
        nodes = ", ".join(group["source_nodes"][:4])
        more = len(group["source_nodes"]) - 4
        figures = [f"{ms or 0.0:.4f}" for ms in (group["ms_a"], group["ms_b"], loss)]
        rows.append([*figures, names(group["a"]), names(group["b"]), nodes + (f" and {more} more" if more > 0 else "")])
    columns = ["ms ours", "onnxruntime", "lost", "our kernels", "theirs", "nodes of the model"]
    out.print(table("by nodes of the model, what ours loses most first", columns, rows))
    slower, faster = sum(x for x in losses if x > 0), -sum(x for x in losses if x < 0)
    where = f"{sum(x > 0 for x in losses)} groups"
    out.print(f"balance    {slower:.3f} ms lost in {where}, {faster:.3f} ms won in the others")


def _show(found: dict[str, Any], settings: Any) -> None:
    from atc.benchmarking.contenders import OURS, REFERENCE

    columns = ["contender", "median ms", "mean", "std", "min", "max", f"time / {REFERENCE}", "95 % of its median", ""]
    rows, unstable = [], []
    for name in sorted(found["contenders"], key=lambda n: n != OURS):
        record = found["contenders"][name]
        if "median_ms" not in record:
            rows.append([name, *["-"] * 7, f"{record['state']}: {record.get('reason', '')}"])
            continue
        figures = [f"{record[k]:.3f}" for k in ("median_ms", "mean_ms", "std_ms", "least_ms", "most_ms")]
        ratio, interval = "1", "-"
        if name != REFERENCE:
            ratio = f"{record['ratio']:.3f}"
            interval = "-" if record["low"] is None else f"{record['low']:.3f} .. {record['high']:.3f}"
        rows.append([name, *figures, ratio, interval, record.get("word", "")])
        if record["std_ms"] > 0.1 * record["mean_ms"]:
            unstable.append(name)
    out.print(table("", columns, rows))
    threads = f"{settings.threads} thread{'s' if settings.threads > 1 else ''}"
    length = f"{settings.slice_seconds * 1e3:g} ms"
    out.print(f"turns      {settings.rounds} of each, {length}, {settings.clock} clock, {threads}")
    if unstable:
        out.print(f"unstable   {', '.join(unstable)}: turns differ by more than 10 %; ratios count, times do not")
    ours = found["contenders"].get(OURS, {})
    if ours.get("word") == "slower":
        words = "--why shows the nodes of the model that it lies in, " if "by_node" not in found else ""
        out.print(f"why        {words}atc profile what holds a kernel up")
    if "by_node" in found:
        _show_why(found["by_node"])
