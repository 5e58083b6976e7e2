"""What people and machines see: stage lines, errors and JSON."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from acl_runtime.internal_error import internal_error
from atc.usage import SeveralErrors
from tensor_types.error_codes import WRITE_FAILED
from tensor_types.errors import EnvironmentProblem, OpenAtcError, ResourceLimit, visible

if TYPE_CHECKING:
    from atc.tables import Rich

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
PIPE_CLOSED = 141
"""The exit code when the reader of standard output has gone, as shells give it for SIGPIPE."""


class OutputLost(EnvironmentProblem):
    """Standard output cannot be written."""

    default_code = "E13004"


@contextmanager
def standard_output() -> Iterator[None]:
    """Flushes what the block prints; OutputLost says that standard output took it not, BrokenPipeError that nobody
    reads it any more. Either way the rest is thrown away, so that the end of the process does not fail as well."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        with suppress(OSError):  # a stream that is no file has no descriptor
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stdout.fileno())
            os.close(null)
        if isinstance(error, BrokenPipeError):
            raise
        raise OutputLost(
            f"cannot write standard output: {error.strerror or error}", remedy="see where it is redirected to"
        ) from error


class Output:
    """Standard output for people, plain. What draws tables and spinners is loaded when the first is asked for."""

    @cached_property
    def _rich(self) -> Rich:
        from atc.tables import Rich

        return Rich(self.is_terminal)

    @property
    def is_terminal(self) -> bool:
        """Whether somebody looks at it."""
        return sys.stdout is not None and sys.stdout.isatty()

    def print(self, *objects: Any) -> None:
        """Lines of texts, and tables; raises as `standard_output`."""
        with standard_output():
            if all(isinstance(o, str) for o in objects):
                print(*map(visible, objects))
            else:
                self._rich.print(*(visible(o) if isinstance(o, str) else o for o in objects))

    def status(self, name: str) -> AbstractContextManager[object]:
        """Shows that a stage runs, where somebody looks at it."""
        return self._rich.status(name) if self.is_terminal else nullcontext()


out = Output()


class Progress:
    """Stages of long work: one line each, with its time; nothing when quiet."""

    def __init__(self, console: Output | None) -> None:
        self.console = console
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times one stage and shows it while it runs."""
        started = time.perf_counter()
        if self.console is None:
            yield
        else:
            with self.console.status(name):
                yield
        self.seconds[name] = time.perf_counter() - started
        if self.console is not None:
            self.console.print(f"  {name:<10} {self.seconds[name]:7.2f} s")


def error_record(error: OpenAtcError) -> dict[str, Any]:
    """The error for machines."""
    return {"error": {**_error(error), **({"errors": [_error(e) for e in parts]} if (parts := _parts(error)) else {})}}


def _error(error: OpenAtcError) -> dict[str, Any]:
    where = {key: error.where.get(key) for key in ("node", "op", "tensor", "flag")}
    return {"code": error.code, "message": error.message, "where": where, "remedy": error.remedy}


def _parts(error: OpenAtcError) -> tuple[OpenAtcError, ...]:
    return error.errors if isinstance(error, SeveralErrors) else ()


def report_error(error: BaseException, as_json: bool) -> int:
    """Shows an error and gives the exit code; an unexpected one writes its traceback to a file and names it.

    JSON that standard output does not take goes to standard error as text. A reader that has gone is no error to show.
    """
    if isinstance(error, BrokenPipeError):
        return PIPE_CLOSED
    known = _known(error)
    if as_json and not isinstance(error, OutputLost):
        try:
            print_json(error_record(known))
            return known.exit_code
        except BrokenPipeError:
            return PIPE_CLOSED
        except OutputLost:
            pass
    place = ", ".join(f"{key} {value}" for key, value in known.where.items() if value)
    lines = [f"{known.code}: {known.message}", place and f"  where:  {place}"]
    lines.append(known.remedy and f"  remedy: {known.remedy}")
    with suppress(OSError):
        print(visible("\n".join(filter(None, lines))), file=sys.stderr)
    return known.exit_code


def outcome(as_json: bool, work: Callable[[], int | None], custom_op: list[str] | None = None) -> int:
    """The exit code of `work`, or of the error that it raised, which is shown."""
    try:
        if custom_op:
            from atc.custom_operators import import_operators

            import_operators(custom_op)
        return work() or 0
    except (Exception, KeyboardInterrupt) as error:
        return report_error(error, as_json)


def _known(error: BaseException) -> OpenAtcError:
    """The error in the terms of the product: what the machine refuses has its own class, the rest is internal."""
    if isinstance(error, OpenAtcError):
        if error.code == WRITE_FAILED and isinstance(error.__cause__, OSError) and error.__cause__.errno in _FULL:
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
    return internal_error(error)


class Interrupted(OpenAtcError):
    """The user stopped the work."""

    default_code = "E10130"


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on standard output; raises as `standard_output`."""
    with standard_output():
        print(json.dumps(value, default=str))
