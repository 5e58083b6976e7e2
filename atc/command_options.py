"""What the commands of the command line share: arguments and flags that mean the same, output, the way to end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from atc.console import report_error

out = Console(highlight=False, markup=False, soft_wrap=True, width=None if sys.stdout.isatty() else 200)

ModelPath = Annotated[Path, typer.Argument(help="ONNX file", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="one JSON object on standard output")]
Inputs = Annotated[list[str] | None, typer.Option("--input", help="name=file.npy; seeded values for the others")]
Shapes = Annotated[str, typer.Option("--input_shape", "--input-shape", help='"name:d,d;name2:d", -1 stays symbolic')]
Threads = Annotated[int, typer.Option(help="threads of the device", min=1, max=64)]
Precision = Annotated[
    str,
    typer.Option("--precision_mode", "--precision-mode", "--precision_mode_v2", "--precision-mode-v2",
                 help="ATC's modes: allow_mix_precision_bf16, force_fp16, mixed_float16 ..."),
]  # fmt: skip
CustomOps = Annotated[
    list[str] | None,
    typer.Option("--custom_op", "--custom-op", help="module, or .py file, that registers custom operators"),
]
Soc = Annotated[str, typer.Option("--soc_version", "--soc-version", help="chip for the estimate")]


def guarded(as_json: bool, work: Callable[[], int | None], custom_op: list[str] | None = None) -> None:
    """Ends the command with the exit code of `work`, which runs after the modules of custom operators are imported."""
    try:
        if custom_op:
            from atc.custom_operators import import_operators

            import_operators(custom_op)
        code = work() or 0
    except (Exception, KeyboardInterrupt) as error:
        code = report_error(error, as_json)
    raise typer.Exit(code)
