"""The time that one run of a model may take, asked for wherever Python code runs a package's loops.

    with run_deadline():
        ...             # check_deadline() raises ResourceLimit once the budget `run_seconds` is used up

What runs natively is bounded before it starts (`launch_work`, `run_work`), so the two together end every run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tensor_types.errors import ResourceLimit
from tensor_types.limits import VARIABLE, limit

_ends: ContextVar[float] = ContextVar("run_deadline", default=float("inf"))


@contextmanager
def run_deadline() -> Iterator[None]:
    """Bounds what runs inside on this thread; an outer deadline stays in force."""
    token = _ends.set(min(_ends.get(), time.monotonic() + limit("run_seconds")))
    try:
        yield
    finally:
        _ends.reset(token)


def check_deadline() -> None:
    """ResourceLimit if the run has used up its time."""
    if time.monotonic() > _ends.get():
        raise ResourceLimit(
            f"the run takes more than {limit('run_seconds')} seconds",
            remedy=f"check the values that loops of the model depend on; {VARIABLE}=run_seconds=... raises the limit",
        )
