"""What escapes from the product as an exception that is not meant for users becomes an error with a code and a report.

A report is a file with the traceback, in the system's folder for temporary files; nothing is sent anywhere.
"""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from tensor_types.errors import OpenAtcError, ResourceLimit
from tensor_types.interrupts import is_of_a_handler


class InternalError(OpenAtcError):
    """A fault of the product."""

    default_code = "E19999"


def internal_error(error: BaseException) -> InternalError:
    """The error for users, its traceback in a report file that it names."""
    text = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile("w", prefix="openatc-", suffix=".log", delete=False, errors="replace") as log:
            log.write(text)
        remedy = f"please report it with the file {log.name}"
    except OSError:
        remedy = f"please report it; no report could be written: {text[-400:]}"
    return InternalError(f"internal error: {type(error).__name__}: {str(error)[:400]}", remedy=remedy)


def coded(error: Exception) -> OpenAtcError:
    """The error for users in place of an exception: itself if it has a code."""
    if isinstance(error, OpenAtcError):
        return error
    if isinstance(error, MemoryError):
        remedy = "use smaller input shapes, or a machine with more memory"
        return ResourceLimit("memory is exhausted", remedy=remedy)
    return internal_error(error)


def raise_coded(error: Exception) -> NoReturn:
    """Raises the error for users; what a signal handler of theirs raised during a run is theirs."""
    if is_of_a_handler(error):
        raise error
    raise coded(error) from error


@contextmanager
def coded_errors() -> Iterator[None]:
    """Errors with a code go on as they are; exhausted memory and whatever else is raised inside get one."""
    try:
        yield
    except OpenAtcError:
        raise
    except Exception as error:
        raise_coded(error)
