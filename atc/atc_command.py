"""A command line in ATC's own spelling: its modes, its lines, its exit codes.

    --mode=0  converts (the default)             --mode=3  checks the model, writes check_result.json
    --mode=1  shows a model or package as JSON   --mode=5  shows a dumped graph (ge_proto_*.txt) as JSON
    --mode=6  shows what a package holds
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from acl_runtime.om.errors import PackageError
from atc.console import out, print_json, report_error
from atc.options import Options
from atc.run_conversion import run_conversion
from atc.spelling import FLAGS, parse

START = "ATC start working now, please wait for a moment."
SUCCESS = "ATC run success, welcome to the next use."
FAILURE = "ATC run failed, Please check the detail log, Try 'atc --help' for more information"
"""What ATC prints first and last, which scripts look for."""


def run_as_atc(words: Sequence[str], as_json: bool) -> int:
    """Does what the flags ask and gives the exit code; with `as_json` one JSON object is all that is printed."""
    if not as_json:
        out.print(START)
    try:
        flags, options = parse(words)
        if "help" in flags:
            _help()
            return 0
        with _package_flag(flags):
            code = _MODES[flags.get("mode", "0")](flags, options, as_json)
    except (Exception, KeyboardInterrupt) as error:
        if not as_json:
            out.print(f"...\n{FAILURE}")
        return report_error(error, as_json)
    if not as_json:
        out.print(f"...\n{SUCCESS if not code else FAILURE}")
    return code


@contextmanager
def _package_flag(flags: Mapping[str, str]) -> Iterator[None]:
    """A package that cannot be read is that of --om, where this names one."""
    try:
        yield
    except PackageError as error:
        if "om" in flags:
            error.where.setdefault("flag", "--om")
        raise


def _help() -> None:
    out.print("Usage: atc --flag=value ...\n\nConverts an ONNX file to a package (.om).\n")
    for name, meaning in FLAGS.items():
        out.print(f"  --{name:<18} {meaning}")
    out.print("\nFlags without effect, and those that are refused: docs/flags.md. atc --help lists the commands.")


def _convert(flags: Mapping[str, str], options: Options, as_json: bool) -> int:
    from atc.display import model_info
    from atc.writing import make_folder

    if "singleop" in flags:
        return _single_operators(flags, options, as_json)
    log = flags.get("log", "info")
    package = Path(flags["output"] + ".om")
    if Path(flags["model"]).exists():
        make_folder(package.parent, "--output")
    quiet, verbose = log in ("error", "null"), log == "debug"
    code = run_conversion(Path(flags["model"]), package, options, as_json, quiet=quiet, verbose=verbose,
                          fusion_result=package.parent / "fusion_result.json")  # fmt: skip
    if flags.get("display_model_info") == "1" and not as_json:
        out.print("\n".join(model_info(package)))
    return code


def _single_operators(flags: Mapping[str, str], options: Options, as_json: bool) -> int:
    from atc.single_operator_file import write_operators
    from atc.writing import make_folder

    folder = Path(flags["output"])
    make_folder(folder, "--output")
    made = write_operators(Path(flags["singleop"]), folder, options)
    if as_json:
        print_json({"packages": [str(path) for path in made]})
    else:
        out.print("\n".join(f"package    {path}" for path in made))
    return 0


def _as_json(flags: Mapping[str, str], options: Options, as_json: bool) -> int:
    from atc.display import model_json, write_json

    write_json(Path(flags["json"]), model_json(Path(flags["om"])), "--json")
    return 0


def _text_as_json(flags: Mapping[str, str], options: Options, as_json: bool) -> int:
    from atc.display import write_json
    from atc.text_proto import read_text_proto

    write_json(Path(flags["json"]), read_text_proto(Path(flags["om"])), "--json")
    return 0


def _check(flags: Mapping[str, str], options: Options, as_json: bool) -> int:
    from atc.check_report import write_check_report
    from atc.custom_operators import import_operators
    from frontend import read_model, unsupported, unsupported_error

    import_operators(options.custom_op)
    graph = read_model(Path(flags["model"]), options.input_shape or None, options.out_nodes)
    missing = unsupported(graph)
    write_check_report(options.check_report or Path("check_result.json"), graph, missing)
    if missing:
        raise unsupported_error(missing)
    if not as_json:
        out.print(f"{len(graph.nodes)} operators, all of them with an implementation")
    return 0


def _show(flags: Mapping[str, str], options: Options, as_json: bool) -> int:
    from atc.display import model_info

    out.print("\n".join(model_info(Path(flags["om"]))))
    return 0


_MODES: dict[str, Any] = {"0": _convert, "1": _as_json, "3": _check, "5": _text_as_json, "6": _show}
