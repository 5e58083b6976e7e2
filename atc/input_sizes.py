"""Sizes for the named dims of a package where nobody gives any: they suit where a dim stands, and each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from acl_runtime.plan_format import PlanRequirement
from atc.usage import UsageError, did_you_mean
from tensor_types.dim_text import parse as parse_dim
from tensor_types.dims import Dim, evaluate, names
from tensor_types.dtypes import DType
from tensor_types.relations import holds

Tensors = Sequence[tuple[DType, Sequence[int | str] | None]]
Ranges = Mapping[str, tuple[int, int | None]]
IMAGE = 224
SEQUENCE = 16
_FARTHEST = 256
"""How far from a wished size the search for one that fits goes step by step."""
_LARGEST = 1 << 20
"""The size at which it ends, in doubling steps."""
_ROUNDS = 4
"""How often a dim may change, on average."""


def free_dims(
    tensors: Tensors, known: Mapping[str, int], ranges: Ranges, requirements: Sequence[PlanRequirement] = ()
) -> dict[str, int]:
    """A size for every named dim: the known one, else one that suits where the dim stands, within its range.

    1 for a batch, 224 for the height and width of an image, 16 for the length of a sequence of integers and of caches.
    Then whatever of these the `requirements` of the plan forbid is changed: an attention mask gets the length of past
    and new tokens together. Known sizes never change.
    """
    found = dict(known)
    for dtype, shape in tensors:
        for axis, extent in enumerate(shape or ()):
            if isinstance(extent, str) and extent in ranges and extent not in found:
                low, high = ranges[extent]
                wish = _wish(dtype, shape or (), axis)
                found[extent] = max(low, wish if high is None else min(wish, high))
    for name, (low, _) in ranges.items():
        found.setdefault(name, max(low, 1))
    _fit(requirements, found, known.keys(), _uses(tensors), ranges)
    return found


def _wish(dtype: DType, shape: Sequence[int | str], axis: int) -> int:
    if axis == 0:
        return 1
    if len(shape) == 4 and isinstance(shape[axis], str):
        image = all(isinstance(shape[a], str) for a in (2, 3)) or shape[1] in (1, 3, 4)
        if image and axis >= 2 or shape[3] in (1, 3, 4) and axis < 3:
            return IMAGE
        return SEQUENCE if axis == 2 else 1
    return SEQUENCE if dtype.is_integer and len(shape) == 2 else 1


def _uses(tensors: Tensors) -> Counter[str]:
    """How many inputs have a dim: what few have follows what many have."""
    found: Counter[str] = Counter()
    for _, shape in tensors:
        found.update({n for d in shape or () if isinstance(d, str) for n in names(parse_dim(d))})
    return found


def _fit(
    requirements: Sequence[PlanRequirement], sizes: dict[str, int], fixed: Iterable[str], uses: Counter[str],
    ranges: Ranges,
) -> None:  # fmt: skip
    """Changes one size after another until the requirements hold; leaves what no single dim can mend."""
    hopeless: list[PlanRequirement] = []
    for _ in range(_ROUNDS * len(ranges) + len(requirements)):
        known = [r for r in requirements if r not in hopeless and _can_tell(r, sizes)]
        broken = next((r for r in known if not _holds(r, sizes)), None)
        if broken is None:
            return
        kept = [r for r in known if _holds(r, sizes)]
        for name in sorted((names(broken.left) | names(broken.right)) - set(fixed), key=lambda n: (uses[n], n)):
            size = _solution(broken, kept, name, sizes, ranges[name])
            if size is not None:
                sizes[name] = size
                break
        else:
            hopeless.append(broken)


def _can_tell(requirement: PlanRequirement, sizes: Mapping[str, int]) -> bool:
    return names(requirement.left) | names(requirement.right) <= sizes.keys()


def _holds(requirement: PlanRequirement, sizes: Mapping[str, int]) -> bool:
    left, right = evaluate(requirement.left, sizes), evaluate(requirement.right, sizes)
    return holds(requirement.relation, left, right)


def _solution(
    broken: PlanRequirement, kept: Sequence[PlanRequirement], name: str, sizes: Mapping[str, int],
    span: tuple[int, int | None],
) -> int | None:  # fmt: skip
    """The size of one dim for which the broken requirement holds: the root where the dim is linear, else the nearest,
    and before them one that breaks none of the others."""
    low, high = span
    difference: Dim = broken.left - broken.right
    at = [evaluate(difference, {**sizes, name: size}) for size in (0, 1, 2)]
    wish = sizes[name]
    tried = [-at[0] // (at[1] - at[0])] if at[1] != at[0] and at[2] - at[1] == at[1] - at[0] else []
    tried += [wish + sign * step for step in range(_FARTHEST) for sign in (1, -1)]
    tried += [_FARTHEST << shift for shift in range(_LARGEST.bit_length() - _FARTHEST.bit_length() + 1)]
    fits = [s for s in tried if s >= max(low, 1) and (high is None or s <= high)]
    mends = [s for s in fits if _holds(broken, {**sizes, name: s})]
    return next((s for s in mends if all(_holds(r, {**sizes, name: s}) for r in kept)), next(iter(mends), None))


def wished_dims(wishes: Mapping[str, int], ranges: Ranges, flag: str = "--dims") -> dict[str, int]:
    """The sizes given by name. UsageError names what is no dim of the model, or outside its range."""
    for name, size in wishes.items():
        if name not in ranges:
            known = ", ".join(ranges) or "none: its shapes are fixed"
            raise UsageError(f"{flag}: the model has no dim {name!r}", where={"flag": flag},
                             remedy=f"{did_you_mean(name, tuple(ranges))}dims of the model: {known}")  # fmt: skip
        low, high = ranges[name]
        if size < low or high is not None and size > high:
            span = f"{low} to {high}" if high is not None else f"{low} or more"
            raise UsageError(f"{flag}: {name} is {size}, the package was converted for {span}", where={"flag": flag},
                             remedy="give a size within, or convert again with another range")  # fmt: skip
    return dict(wishes)


def concrete_shape(shape: Sequence[int | str], dims: Mapping[str, int]) -> list[int]:
    """The shape with its expressions evaluated."""
    return [d if isinstance(d, int) else evaluate(parse_dim(d), dims) for d in shape]
