"""What people and machines see: stage lines, tables, errors and JSON."""

from __future__ import annotations

import errno
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.table import Table

from acl_runtime.om.errors import WRITE_FAILED
from tensor_types.errors import EnvironmentProblem, OpenAtcError, ResourceLimit

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
        else:
            with self.console.status(name) if self.console.is_terminal else nullcontext():
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
    known = _known(error)
    if as_json:
        print_json(error_record(known))
    else:
        place = ", ".join(f"{key} {value}" for key, value in known.where.items() if value)
        print(f"{known.code}: {known.message}", file=sys.stderr)
        if place:
            print(f"  where:  {place}", file=sys.stderr)
        if known.remedy:
            print(f"  remedy: {known.remedy}", file=sys.stderr)
    return known.exit_code


def _known(error: BaseException) -> OpenAtcError:
    """The error in the terms of the product: what the machine refuses has its own class, the rest is internal."""
    if isinstance(error, OpenAtcError):
        if error.code == WRITE_FAILED:
            error.where.setdefault("flag", "--output")
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in _FULL:
                return ResourceLimit(error.message, where=error.where, remedy=error.remedy)
        return error
    if isinstance(error, KeyboardInterrupt):
        return Interrupted("interrupted", remedy="run it again; an older package was left as it is")
    if isinstance(error, MemoryError):
        return ResourceLimit("memory is exhausted", remedy="use smaller input shapes, or a machine with more memory")
    if isinstance(error, ImportError):
        return EnvironmentProblem(f"a package is missing: {error}", remedy="install openatc with its dependencies")
    if isinstance(error, OSError) and error.errno is not None:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        if error.errno in _FULL:
            return ResourceLimit(message, remedy="free some disk space or choose another disk")
        return EnvironmentProblem(message, remedy="check the path and its permissions")
    with tempfile.NamedTemporaryFile("w", prefix="openatc-", suffix=".log", delete=False) as log:
        log.write("".join(traceback.format_exception(error)))
    return InternalError(
        f"internal error: {type(error).__name__}: {error}", remedy=f"please report it with the file {log.name}"
    )


class InternalError(OpenAtcError):
    """A fault of the product."""

    default_code = "E19999"


class Interrupted(OpenAtcError):
    """The user stopped the work."""

    default_code = "E10130"


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on standard output."""
    print(json.dumps(value, default=str))
