"""The calling convention: positional arguments of known kinds in, codes instead of exceptions out.

Every function has one of three shapes: the code alone (`status`), values and then the code (`valued`), or one value
without a code (`plain`). A wrong number or type of arguments raises TypeError; nothing else does.
"""

from __future__ import annotations

import functools
import logging
import operator
import threading
from collections.abc import Callable
from typing import Any

from acl_runtime.device import Code, DeviceError

_log = logging.getLogger("acl")
_log.addHandler(logging.NullHandler())
_thread = threading.local()
_WORD = (1 << 64) - 1

Kind = Callable[[Any], Any]
Function = Callable[..., Any]


def word(value: Any) -> int:
    """A handle, an address or a size: 64 bits, unsigned; negative numbers wrap as in C."""
    return operator.index(value) & _WORD


def integer(value: Any) -> int:
    """A number with a sign."""
    return operator.index(value)


def real(value: Any) -> float:
    if isinstance(value, float):
        return value
    return float(operator.index(value))


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"str expected, not {type(value).__name__}")
    return value


def optional_text(value: Any) -> str | None:
    return None if value is None else text(value)


def integers(value: Any) -> list[int]:
    """A list of numbers."""
    if not isinstance(value, list):
        raise TypeError(f"list expected, not {type(value).__name__}")
    return [operator.index(v) for v in value]


def mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"dict expected, not {type(value).__name__}")
    return value


def function(value: Any) -> Function:
    if not callable(value):
        raise TypeError(f"function expected, not {type(value).__name__}")
    return value  # type: ignore[no-any-return]


def anything(value: Any) -> Any:
    return value


def status(*kinds: Kind, optional: int = 0) -> Callable[[Function], Function]:
    """A function whose result is its code; the body returns nothing. The last `optional` arguments may be absent."""
    return _convention(kinds, optional, lambda _: 0, int)


def valued(*kinds: Kind, failure: Callable[[], tuple[Any, ...]] = lambda: (0,)) -> Callable[[Function], Function]:
    """A function that gives its values and then the code; the body returns one value, or a tuple of several."""
    return _convention(
        kinds,
        0,
        lambda result: (*(result if isinstance(result, tuple) else (result,)), 0),
        lambda code: (*failure(), int(code)),
    )


def plain(*kinds: Kind, failure: Any = 0) -> Callable[[Function], Function]:
    """A function that gives a value, and `failure` instead of a code."""
    return _convention(kinds, 0, lambda result: result, lambda _: failure)


def take_message() -> str | None:
    """What the last failed call of this thread said, once."""
    message = getattr(_thread, "message", None)
    _thread.message = None
    return message


def _convention(
    kinds: tuple[Kind, ...], optional: int, succeed: Callable[[Any], Any], fail: Callable[[Code], Any]
) -> Callable[[Function], Function]:
    def decorate(body: Function) -> Function:
        least, most = len(kinds) - optional, len(kinds)
        only_words = all(kind is word for kind in kinds)
        public = [part for part in body.__module__.split(".") if not part.startswith("_")]
        name = ".".join([*public, body.__name__])

        @functools.wraps(body)
        def call(*arguments: Any) -> Any:
            if not least <= len(arguments) <= most:
                raise TypeError(f"{name}: args parsing failed: {len(arguments)} given, {most} expected")
            try:
                if only_words:
                    parsed: list[Any] = [operator.index(value) & _WORD for value in arguments]
                else:
                    parsed = [kind(value) for kind, value in zip(kinds, arguments, strict=False)]
            except TypeError as error:
                raise TypeError(f"{name}: args parsing failed: {error}") from None
            try:
                return succeed(body(*parsed))
            except DeviceError as error:
                code, message = error.code, error.message
            except MemoryError:
                code, message = Code.MEMORY_ALLOCATION, "the machine has no memory left"
            except Exception as error:  # a program for a device expects a code, whatever happens
                code, message = Code.INTERNAL_ERROR, f"{type(error).__name__}: {error}"
                _log.exception("%s", name)
            _thread.message = f"{name}: {int(code)}: {message}"
            _log.info("%s", _thread.message)
            return fail(code)

        return call

    return decorate
