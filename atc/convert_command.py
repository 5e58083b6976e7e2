"""`atc convert` as typer reads it: one parameter for each flag of the table of options."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from atc.command_options import Json, ModelPath, guarded
from atc.flag_fates import REFUSED, WITHOUT_EFFECT
from atc.options import Option, Options, declared, default_text
from atc.run_conversion import run_conversion


def convert(
    model: ModelPath,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="package to write")] = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="AI CPU nodes and fusion, with reasons")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="only errors")] = False,
    json: Json = False,
    **given: Any,
) -> None:
    """Converts an ONNX file to a package (.om)."""
    flags = {name: value for name, value in given.items() if value not in (None, False)}
    guarded(json, lambda: run_conversion(model, output, Options.of(flags), json, quiet=quiet, verbose=verbose))


def _declare_options() -> None:
    """Gives `convert` one parameter for each flag of an option: typer reads its signature."""
    own = inspect.signature(convert, eval_str=True)
    kept = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    place = next(i for i, p in enumerate(kept) if p.name == "verbose")
    made = [parameter for name, about in declared() for parameter in _of_option(name, about)]
    made += [_parameter(flag, str | None, hidden=True) for flag in (*WITHOUT_EFFECT, *REFUSED)]
    convert.__signature__ = own.replace(parameters=[*kept[:place], *made, *kept[place:]])  # type: ignore[attr-defined]
    convert.__annotations__ = {p.name: p.annotation for p in (*kept, *made)}


def _of_option(name: str, about: Option) -> Iterator[inspect.Parameter]:
    kind: Any = bool if not about.value else list[str] | None if about.several else str | None
    shown = {"help": about.help, "metavar": about.value or None, "show_default": default_text(name) or False}
    yield _parameter(name, kind, **shown)
    for flag, (_, help) in about.also.items():
        yield _parameter(flag, kind, **shown | {"help": help, "show_default": False})


def _parameter(flag: str, kind: Any, **info: Any) -> inspect.Parameter:
    place, default = inspect.Parameter.POSITIONAL_OR_KEYWORD, False if kind is bool else None
    spelled = dict.fromkeys((f"--{flag}", f"--{flag.replace('_', '-')}"))
    return inspect.Parameter(flag, place, default=default, annotation=Annotated[kind, typer.Option(*spelled, **info)])


_declare_options()
