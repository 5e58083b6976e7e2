"""What people and machines see: stage lines, tables, errors and JSON."""

from __future__ import annotations

import json
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

from tensor_types.errors import OpenAtcError

INTERNAL_ERROR = "E19999"


class Progress:
    """Stages of long work: one line each, with its time; nothing when quiet."""

    def __init__(self, console: Console | None) -> None:
        self.console = console
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times one stage and shows it while it runs."""
        started = time.perf_counter()
        if self.console is None:
            yield
        elif self.console.is_terminal:
            with self.console.status(name):
                yield
        else:
            yield
        self.seconds[name] = time.perf_counter() - started
        if self.console is not None:
            self.console.print(f"  {name:<10} {self.seconds[name]:7.2f} s", highlight=False)


def table(title: str, columns: list[str], rows: list[list[str]]) -> Table:
    """A plain table; number-like columns to the right."""
    made = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for i, column in enumerate(columns):
        numeric = bool(rows) and all(_number_like(r[i]) for r in rows)
        made.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def _number_like(text: str) -> bool:
    return not text or text == "-" or text[0].isdigit() or (text[0] in "-+" and len(text) > 1)


def error_record(error: OpenAtcError) -> dict[str, Any]:
    """The error for machines."""
    where = {key: error.where.get(key) for key in ("node", "op", "tensor", "flag")}
    return {"error": {"code": error.code, "message": error.message, "where": where, "remedy": error.remedy}}


def report_error(error: BaseException, as_json: bool) -> int:
    """Shows an error and gives the exit code; an unexpected one writes its traceback to a file and names it."""
    if isinstance(error, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        return 130
    if not isinstance(error, OpenAtcError):
        with tempfile.NamedTemporaryFile("w", prefix="openatc-", suffix=".log", delete=False) as log:
            log.write("".join(traceback.format_exception(error)))
        message = f"internal error: {type(error).__name__}: {error}"
        error = OpenAtcError(message, code=INTERNAL_ERROR, remedy=f"please report it with the file {log.name}")
        error.exit_code = 1
    if as_json:
        print_json(error_record(error))
    else:
        place = ", ".join(f"{key} {value}" for key, value in error.where.items() if value)
        print(f"{error.code}: {error.message}", file=sys.stderr)
        if place:
            print(f"  where:  {place}", file=sys.stderr)
        if error.remedy:
            print(f"  remedy: {error.remedy}", file=sys.stderr)
    return error.exit_code


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on standard output."""
    json.dump(value, sys.stdout, indent=None, default=str)
    sys.stdout.write("\n")
