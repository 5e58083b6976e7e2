"""A meter for symbolic work that a stranger's text can ask for: counted in steps, so the same text always ends alike.

    with effort(1_000_000):
        ...             # computations on dims spend steps; the one that has none left raises TooMuchWork

Meters nest: what an inner one spends, the outer one has spent as well. Without a meter nothing is counted.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from types import TracebackType

from tensor_types.errors import ResourceLimit


class TooMuchWork(ResourceLimit, ValueError):
    """A computation on dims exceeds its limit. A ValueError too: for readers the text is no usable expression."""


class _Meter:
    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps


_current: ContextVar[_Meter | None] = ContextVar("effort", default=None)


class effort:  # noqa: N801 (a context manager is used like a function)
    """Limits the steps of what runs inside; `spent` holds their number afterwards."""

    __slots__ = ("_steps", "_meter", "_outer", "_token", "spent")

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self.spent = 0

    def __enter__(self) -> effort:
        self._outer = _current.get()
        self._steps = self._steps if self._outer is None else min(self._steps, self._outer.left)
        self._meter = _Meter(self._steps)
        self._token: Token[_Meter | None] = _current.set(self._meter)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        _current.reset(self._token)
        self.spent = self._steps - self._meter.left
        if self._outer is not None:
            self._outer.left -= self.spent


def spend(steps: int) -> None:
    """Counts steps; TooMuchWork if the meter has none left."""
    meter = _current.get()
    if meter is not None:
        meter.left -= steps
        if meter.left < 0:
            raise TooMuchWork(
                "the sizes of this model take too much work to compare",
                remedy="use fewer or simpler symbolic sizes",
            )


def exhausted() -> bool:
    """True if the meter has nothing left."""
    meter = _current.get()
    return meter is not None and meter.left <= 0
