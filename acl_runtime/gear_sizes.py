"""The combinations of sizes that a package was made for (gears), as its header tells them
(docs/architecture.md, section 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from acl_runtime.om import PackageError
from acl_runtime.plan_format import PlanValue
from tensor_types.dims import names
from tensor_types.errors import InvalidModel

MOST = 128
KINDS = BATCH, IMAGE, DIMS = "batch", "image", "dims"


def gear_dims(header: Mapping[str, Any], inputs: Sequence[PlanValue]) -> tuple[dict[str, int], ...]:
    """The values of the plan's dims, by combination; empty without gears. PackageError if they do not fit the plan."""
    found = header.get("gears")
    if found is None:
        return ()
    try:
        combinations = [[int(n) for n in c] for c in found["combinations"]]
        by_name = {v.name: v.shape for v in inputs}
        places: dict[str, int] = {}
        for row in found["axes"]:
            shape = by_name[row["input"]]
            assert shape is not None
            (dim,) = names(shape[row["axis"]])
            places[dim] = row["value"]
        known = {dim for v in inputs for size in v.shape or () for dim in names(size)} <= places.keys()
        fits = known and str(found["kind"]) in KINDS and 0 < len(combinations) <= MOST
        if not fits or len({len(c) for c in combinations}) != 1 or any(n < 1 for c in combinations for n in c):
            raise ValueError("sizes do not fit the inputs")
        return tuple({d: c[n] for d, n in places.items()} for c in combinations)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, AssertionError) as error:
        raise PackageError(
            f"the gears of the package make no sense: {error!r}", remedy="convert the model again"
        ) from None


def require_gear(gears: Sequence[Mapping[str, int]], dims: Mapping[str, int]) -> None:
    """InvalidModel unless the sizes are those of a combination."""
    if gears and not any(all(dims.get(name) == size for name, size in gear.items()) for gear in gears):
        given = ", ".join(f"{name}={dims.get(name)}" for name in gears[0])
        shown = "; ".join(",".join(str(size) for size in gear.values()) for gear in gears)
        raise InvalidModel(
            f"{given} is no gear of the package, which was made for {', '.join(gears[0])} of {shown}", code="E10050",
            remedy="give inputs of one of these sizes, or convert without gears: one package then takes every size",
        )
