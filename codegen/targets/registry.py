"""Targets by name."""

from __future__ import annotations

from codegen.targets.chip_table import NANO, OFTEN_MEANT, STAND_INS
from codegen.targets.chips import TARGETS as CHIPS
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


def stand_ins() -> dict[str, tuple[str, str]]:
    """Names of chips without figures of their own, each with the chip that stands for it and why."""
    return dict(STAND_INS)


def nano_chips() -> tuple[str, ...]:
    """Names of chips for which ATC makes files of another kind."""
    return NANO


def chip_remark(name: str) -> str:
    """What must be said of a chip that is often taken for another; empty for most."""
    return OFTEN_MEANT.get(name, "")
