"""Targets by name."""

from __future__ import annotations

from codegen.targets.chips import CHIPS
from codegen.targets.hosts import HOSTS
from codegen.targets.target import Target

_TARGETS = {t.name: t for t in (*HOSTS, *CHIPS)}


def target(name: str) -> Target:
    """The target of that name; KeyError lists the known ones."""
    try:
        return _TARGETS[name]
    except KeyError:
        raise KeyError(f"unknown target {name!r}; known: {', '.join(_TARGETS)}") from None


def host_class_names() -> tuple[str, ...]:
    """Names of the host classes, poorest x86-64 class first."""
    return tuple(t.name for t in HOSTS)


def chip_names() -> tuple[str, ...]:
    """Names of the chips."""
    return tuple(t.name for t in CHIPS)
