"""How a kernel is cut, as a value: one frozen dataclass for each way of cutting, one text form, one test of fit.

A tile program is a pure function of problem, target and tiling. A family names candidates in order of preference; the
default is the first whose tiles fit the memories of the target (`first_fit`). A tuner takes the same candidates, and a
user sets a node's tiling by its text form:

    matmul rows=128 columns=256 panels_outside=1 pack=0 widen=0 part=128
    conv block=8x56 panel=64 split=1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, dataclass, fields, replace
from typing import ClassVar, TypeVar

from codegen.kernels.operands import NotLowerable
from graph_opt.plan.records import KernelRecord, Record

_MOST = 1 << 30


class DoesNotFit(NotLowerable):
    """The tiles of a program are larger than a memory of the target, or not aligned as it wants."""


@dataclass(frozen=True)
class Tiling:
    """Base of all tilings. Fields are positive ints, tuples of them, or bools; ValueError for anything else."""

    kind: ClassVar[str]
    """The first word of the text form."""
    known: ClassVar[dict[str, type[Tiling]]] = {}
    """Every tiling that has been declared, by kind."""

    place: ClassVar[str]
    """'host' or 'chip' if only kernels of such targets are cut so, else ''."""

    kept: ClassVar[frozenset[str]] = frozenset()
    """Fields that a search leaves as the family says: they change how results are rounded."""

    def __init_subclass__(cls, kind: str, place: str = "") -> None:
        cls.kind, cls.place = kind, place
        Tiling.known[kind] = cls

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            for number in value if isinstance(value, tuple) else (value,):
                if not isinstance(number, bool) and not (isinstance(number, int) and 1 <= number <= _MOST):
                    raise ValueError(f"{self.kind}: {f.name} is {number}, not within 1 .. {_MOST}")

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"{f.name}={_text(getattr(self, f.name))}" for f in fields(self))])

    @classmethod
    def of(cls, words: Iterable[str]) -> Tiling:
        """The tiling of `name=value` words; fields with a default may be left out. ValueError says what is wrong."""
        given: dict[str, object] = {}
        types = {f.name: f.type for f in fields(cls)}
        for word in words:
            name, equals, value = word.partition("=")
            if not equals or name not in types or name in given:
                known = ", ".join(types)
                raise ValueError(f"{word!r} is no field of a {cls.kind} tiling, or stands twice; fields: {known}")
            given[name] = _value(str(types[name]), name, value)
        if missing := [f.name for f in fields(cls) if f.name not in given and f.default is MISSING]:
            raise ValueError(f"a {cls.kind} tiling needs {', '.join(missing)}")
        return cls(**given)


def _text(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(int(value))  # type: ignore[call-overload]


def _value(declared: str, name: str, text: str) -> object:
    """The value of a field from its text; ValueError if it is none of the declared type."""
    if not all(part.isascii() and part.isdigit() and len(part) < 12 for part in text.split("x")):
        raise ValueError(f"{name}={text}: numbers only")
    numbers = tuple(map(int, text.split("x")))
    if declared.startswith("tuple"):
        return numbers
    if len(numbers) != 1 or declared == "bool" and numbers[0] > 1:
        raise ValueError(f"{name}={text}: {'0 or 1' if declared == 'bool' else 'one number'}")
    return bool(numbers[0]) if declared == "bool" else numbers[0]


T = TypeVar("T", bound=Tiling)


def first_fit(candidates: Iterable[T], emit: Callable[[T], list[Record]], given: Tiling | None = None) -> list[Record]:
    """The tasks under the given tiling, or else under the first candidate that fits.

    DoesNotFit tells the reason of the first candidate, which is the one to be wished for; NotLowerable that a given
    tiling is none for this kernel. `emit` writes the program anew each time.
    """
    reason: DoesNotFit | None = None
    for candidate in candidates:
        tiling = candidate if given is None else _checked(given, candidate)
        try:
            return [_labelled(record, tiling) for record in emit(tiling)]
        except DoesNotFit as error:
            if given is not None:
                raise
            reason = reason or error
    raise reason or NotLowerable("there is no way to cut it")


def _checked(given: Tiling, like: T) -> T:
    """The given tiling if it is of the kind and the number of axes of a candidate; NotLowerable if not."""
    if not isinstance(given, type(like)):
        raise NotLowerable(f"its kernel takes a tiling of kind {like.kind}, not {given.kind}")
    for f in fields(like):
        mine, wanted = getattr(given, f.name), getattr(like, f.name)
        if isinstance(wanted, tuple) and len(mine) != len(wanted):
            raise NotLowerable(f"{f.name} has {len(mine)} axes, the kernel {len(wanted)}, as in `{like}`")
    return given


def _labelled(record: Record, tiling: Tiling) -> Record:
    """A record that tells its tiling; one of a task with a tiling of its own tells that."""
    if isinstance(record, KernelRecord) and not record.tiling:
        return replace(record, tiling=str(tiling))
    return record


def halvings(most: int, least: int = 1) -> Iterator[int]:
    """most, most / 2, ... as long as they are `least` at least; `most` in any case."""
    yield most
    while most // 2 >= least:
        most //= 2
        yield most


def parse_tiling(text: str) -> Tiling:
    """The tiling of a text form; ValueError says what is wrong with it. Only declared kinds are known."""
    kind, *words = text.split() or [""]
    if kind not in Tiling.known:
        raise ValueError(f"{kind!r} is no kind of tiling; known: {', '.join(sorted(Tiling.known))}")
    return Tiling.known[kind].of(words)
