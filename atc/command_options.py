"""What the commands of the command line share: arguments and flags that mean the same, output, the way to end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from atc.console import out as out
from atc.console import outcome, report_error
from atc.usage import UsageError

UsageProblem: type = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
"""What typer raises for a command line that it cannot read; releases differ in where they keep the class."""

ModelPath = Annotated[Path, typer.Argument(help="ONNX file", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="one JSON object on standard output")]
Inputs = Annotated[
    list[str] | None, typer.Option("--input", help="name=file.npy, .npz or .bin; seeded values for the others")
]
Shapes = Annotated[str, typer.Option("--input_shape", "--input-shape", help='"name:d,d;name2:d", -1 stays symbolic')]
Dims = Annotated[str, typer.Option(help='sizes of open dims by name: "batch=2,past=128"')]
Threads = Annotated[int, typer.Option(help="threads of the device", min=1, max=64)]
CustomOps = Annotated[
    list[str] | None,
    typer.Option("--custom_op", "--custom-op", help="module, or .py file, that registers custom operators"),
]


def guarded(as_json: bool, work: Callable[[], int | None], custom_op: list[str] | None = None) -> None:
    """Ends the command with the exit code of `work`, which runs after the modules of custom operators are imported."""
    raise typer.Exit(outcome(as_json, work, custom_op))


def report_usage(problem: Any, as_json: bool) -> int:
    """Shows what typer refuses and gives the exit code; called without arguments it shows the help instead."""
    message = str(problem.format_message())
    if not as_json and type(problem).__name__ == "NoArgsIsHelpError":
        print(message)
        return 2
    option = getattr(problem, "option_name", None)
    if option is None and getattr(problem, "param", None) is not None:
        option = "/".join(problem.param.opts) or problem.param.name
    context = getattr(problem, "ctx", None)
    remedy = f"see {context.command_path} --help" if context is not None else "see atc --help"
    return report_error(UsageError(message, where={"flag": option} if option else {}, remedy=remedy), as_json)
