"""The time that one run of a model may take, asked for wherever Python code runs a package's loops.

    with run_deadline():
        ...             # check_deadline() raises ResourceLimit once the budget `run_seconds` is used up

What runs natively is bounded before it starts (`launch_work`, `run_work`), so the two together end every run.
"""

from __future__ import annotations

import time
from contextvars import ContextVar, Token

from tensor_types.errors import ResourceLimit
from tensor_types.limits import VARIABLE, limit

_began: ContextVar[float] = ContextVar("run_began", default=float("inf"))


class run_deadline:  # noqa: N801  # used as a function
    """Bounds what runs inside on this thread; an outer deadline stays in force. Every run pays for it, so it only notes
    the time: the budget is looked up by who checks."""

    __slots__ = ("_token",)
    _token: Token[float]

    def __enter__(self) -> None:
        self._token = _began.set(min(_began.get(), time.monotonic()))

    def __exit__(self, *_: object) -> None:
        _began.reset(self._token)


def check_deadline() -> None:
    """ResourceLimit if the run has used up its time."""
    if time.monotonic() - _began.get() > limit("run_seconds"):
        raise ResourceLimit(
            f"the run takes more than {limit('run_seconds')} seconds",
            remedy=f"check the values that loops of the model depend on; {VARIABLE}=run_seconds=... raises the limit",
        )
