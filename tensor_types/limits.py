"""Budgets: how much work and memory a model, package or program from outside may ask for, and how a user raises one.

`OPENATC_LIMITS="launch_work=1e16,verify_steps=5e6"` overrides the defaults, for every command and for `acl_runtime`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from tensor_types.errors import EnvironmentProblem, ResourceLimit

VARIABLE = "OPENATC_LIMITS"


class Limit(NamedTuple):
    """A budget: default and what it counts."""

    default: int
    meaning: str


LIMITS: Mapping[str, Limit] = {
    "verify_steps": Limit(250_000, "steps of symbolic arithmetic to verify one tile program"),
    "parse_steps": Limit(2_000_000, "steps of symbolic arithmetic to read one plan, or one tile program"),
    "launch_work": Limit(1 << 46, "scalar operations of one launch of a kernel, at most"),
    "run_work": Limit(1 << 50, "scalar operations of all kernels of one run, at most"),
    "run_seconds": Limit(86_400, "seconds of one run, as far as it runs loops and operators of the AI CPU"),
    "tensor_bytes": Limit(1 << 33, "bytes of one result of an AI CPU operator that makes much of little"),
    "section_bytes": Limit(1 << 28, "bytes of one compressed section of a package"),
    "json_bytes": Limit(1 << 30, "bytes of memory that the values of one JSON text take, about"),
    "arena_bytes": Limit(1 << 38, "bytes for the intermediate tensors of one run"),
    "function_nodes": Limit(1 << 18, "nodes of a model with its functions written out"),
}


def limit(name: str) -> int:
    """The budget of that name. EnvironmentProblem if OPENATC_LIMITS is not understood."""
    return _overrides(os.environ.get(VARIABLE, "")).get(name, LIMITS[name].default)


def require_within(name: str, amount: int, what: str, remedy: str = "") -> None:
    """ResourceLimit with both figures if an amount is above the budget of that name."""
    most = limit(name)
    if amount > most:
        raise ResourceLimit(
            f"{what}: {shown(amount)}, at most {shown(most)} are allowed",
            remedy=(remedy + "; " if remedy else "") + f"{VARIABLE}={name}=... raises the limit",
        )


def shown(amount: int) -> str:
    """A number for a message: short whatever its size."""
    return str(amount) if amount < 10**12 else f"about 2^{amount.bit_length() - 1}"


@lru_cache(maxsize=8)
def _overrides(text: str) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = item.partition("=")
        try:
            number = int(float(value)) if any(c in value for c in ".eE") else int(value)
            if name not in LIMITS or number < 0:
                raise ValueError
        except (ValueError, OverflowError):
            raise EnvironmentProblem(
                f"{VARIABLE} holds {item[:80]!r}", remedy=f"write name=number; names are {', '.join(LIMITS)}"
            ) from None
        found[name] = number
    return found
