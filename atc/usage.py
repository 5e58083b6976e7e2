"""Refusals of a command line: one error, or all of them together."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from tensor_types.errors import OpenAtcError


class UsageError(OpenAtcError):
    """A flag is unknown, missing or has a value that it cannot have."""

    default_code = "E10001"

    @property
    def exit_code(self) -> int:
        """That of a wrong command line, whatever the code."""
        return 2


class SeveralErrors(UsageError):
    """Everything that is wrong with one command line; code and exit code are those of the first error."""

    def __init__(self, errors: Sequence[OpenAtcError]) -> None:
        lines = [f"  {e}" for e in errors]
        flags = ", ".join(dict.fromkeys(e.where["flag"] for e in errors if "flag" in e.where))
        super().__init__(
            "\n".join([f"{len(errors)} things are wrong:", *lines]), code=errors[0].code, where={"flag": flags},
            remedy="mend them all: each has its remedy in its line",
        )  # fmt: skip
        self.errors = tuple(errors)


class Problems:
    """Gathers the errors of several checks, so that they are told in one message."""

    def __init__(self) -> None:
        self.errors: list[OpenAtcError] = []

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """An OpenAtcError of the block is kept, and the work goes on behind the block."""
        try:
            yield
        except SeveralErrors as error:
            self.errors.extend(error.errors)
        except OpenAtcError as error:
            self.errors.append(error)

    def raise_all(self) -> None:
        """Raises what was gathered: one error as it is, several as SeveralErrors."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise SeveralErrors(self.errors)


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is most like `word`, in any case; one of the same letters first. Empty if none is."""
    by_key = {k.lower(): k for k in known}
    if swapped := [k for k in by_key if sorted(k) == sorted(word.lower())]:
        return by_key[swapped[0]]
    found = difflib.get_close_matches(word.lower(), list(by_key), 1, 0.6)
    return by_key[found[0]] if found else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """'did you mean X? ' for the start of a remedy, or nothing."""
    found = nearest(word, known)
    return f"did you mean {found}? " if found else ""
