"""Attributes of single operators."""

from __future__ import annotations

from typing import Any

from acl._call import Function, integer, plain, real, status, text, valued, word
from acl._process import handles


class Attributes(dict[str, Any]):
    """Values by name."""


def _list_of(kind: Any) -> Any:
    def parse(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise TypeError(f"list expected, not {type(value).__name__}")
        return [kind(v) for v in value]

    return parse


@plain()
def create_attr() -> int:
    return handles.of(Attributes())


@plain(word, failure=None)
def destroy_attr(attr: int) -> None:
    handles.remove(attr, Attributes)


@valued(word, text, integer)
def set_attr_data_type(attr: int, name: str, value: int) -> int:
    """Gives the attributes."""
    handles.get(attr, Attributes)[name] = value
    return attr


def _setter(suffix: str, kind: Any) -> Function:
    def set_attr(attr: int, name: str, value: Any) -> None:
        handles.get(attr, Attributes)[name] = value

    set_attr.__name__ = set_attr.__qualname__ = f"set_attr_{suffix}"
    set_attr.__module__ = __name__
    return status(word, text, kind)(set_attr)


def _truth(value: Any) -> int:
    return int(bool(integer(value)))


_kinds = {"bool": _truth, "int": integer, "float": real, "string": text}
_setters = {
    f"set_attr_{name}": _setter(name, kind)
    for name, kind in {
        **_kinds,
        **{f"list_{n}": _list_of(k) for n, k in _kinds.items()},
        "list_list_int": _list_of(_list_of(integer)),
    }.items()
}
globals().update(_setters)
__all__ = [*_setters, "create_attr", "destroy_attr", "set_attr_data_type"]
