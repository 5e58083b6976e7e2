"""Getters and setters of records: a family of functions from the fields of a class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from acl._call import Function, integer, plain, status, word
from acl._process import handles

_SIGNED = {"format", "ret_code", "interpolation", "level"}


def accessors(module: str, prefix: str, kind: type, names: Sequence[str] = ()) -> dict[str, Function]:
    """`<prefix>`-named functions for fields of a dataclass: 'dvpp_{}_pic_desc' with 'get' and 'set' in the gap.

    A setter takes a handle and a number and gives a code; a getter gives the number, 0 for a handle of nothing.
    """
    made: dict[str, Function] = {}
    for name in names or [f.name for f in fields(kind)]:
        number = integer if name in _SIGNED else word

        def set_field(handle: int, value: Any, name: str = name) -> None:
            setattr(handles.get(handle, kind), name, value)

        def get_field(handle: int, name: str = name) -> Any:
            return getattr(handles.get(handle, kind), name)

        for verb, body, convention in (("set", set_field, status(word, number)), ("get", get_field, plain(word))):
            body.__name__ = body.__qualname__ = f"{prefix.format(verb)}_{name}"
            body.__module__ = module
            made[body.__name__] = convention(body)
    return made


def life(module: str, prefix: str, kind: type) -> dict[str, Function]:
    """`create` and `destroy` of a record that starts empty: 'dvpp_{}_pic_desc' with the verb in the gap."""

    def create() -> int:
        return handles.of(kind())

    def destroy(handle: int) -> None:
        handles.remove(handle, kind)

    made = {}
    for verb, body, convention in (("create", create, plain()), ("destroy", destroy, status(word))):
        body.__name__ = body.__qualname__ = prefix.format(verb)
        body.__module__ = module
        made[body.__name__] = convention(body)
    return made
