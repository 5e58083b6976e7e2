"""Views in canonical form, and what two accesses to one base have to do with each other.

Canonical: axes of extent 1 are gone, and each axis of the base is written as an offset and the step of each view axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from codegen.tile.ir import View, linear_index
from tensor_types.dims import Dim, substitute

Axis = tuple[Dim, tuple[tuple[int, Dim], ...]]
"""One axis of a base: (offset, ((view axis, step), ...)), steps in order of the view axes."""


@dataclass(frozen=True)
class Window:
    """A canonical view; `extents` belong to its remaining axes."""

    base: str
    axes: tuple[Axis, ...]
    extents: tuple[Dim, ...]

    def mapped(self, loops: tuple[int, ...]) -> Window:
        """The window with view axis k called `loops[k]`, as a key that is equal for equal elements."""
        axes = tuple((o, tuple(sorted((loops[k], s) for k, s in steps))) for o, steps in self.axes)
        return Window(self.base, axes, ())

    def shifted(self, distances: Mapping[int, int]) -> Window:
        """The window moved by some indices along its loop classes."""
        axes = tuple((o + sum(s * distances.get(k, 0) for k, s in steps), steps) for o, steps in self.axes)
        return Window(self.base, axes, ())

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.base, self.axes, self.extents))

    def loops(self) -> frozenset[int]:
        """The axes (loop classes of a mapped window) that occur."""
        return self._loops

    @cached_property
    def _loops(self) -> frozenset[int]:
        return frozenset(k for _, steps in self.axes for k, _ in steps)

    def steps(self, base_strides: tuple[Dim, ...]) -> tuple[Dim, dict[int, Dim]]:
        """(offset, step per axis) in elements of a base with these strides."""
        offset: Dim = 0
        total: dict[int, Dim] = {}
        for (start, steps), stride in zip(self.axes, base_strides, strict=True):
            offset = offset + start * stride
            for k, step in steps:
                total[k] = total.get(k, 0) + step * stride
        return offset, total


@lru_cache(maxsize=16384)
def window(view: View, kept: tuple[int, ...]) -> Window:
    """The canonical form of a view of which only the axes `kept` remain, renumbered in that order."""
    rank = len(view.shape)
    number = {old: new for new, old in enumerate(kept)}
    axes = []
    for index in view.index:
        start, steps = linear_index(index, rank)
        axes.append((start, tuple((number[k], s) for k, s in enumerate(steps) if s != 0 and k in number)))
    return Window(view.base, tuple(axes), tuple(view.shape[k] for k in kept))


@dataclass(frozen=True)
class Relation:
    """How two overlapping windows meet: axis pairs that run together, and axes of each side that must not."""

    pairs: tuple[tuple[int, int], ...]
    first_blocked: frozenset[int]
    second_blocked: frozenset[int]
    pointwise: bool
    """Both touch an element at the same index of the paired axes only."""


@lru_cache(maxsize=65536)
def relate(first: Window, second: Window) -> Relation | None:
    """The relation of two windows of one base; None if they share no element."""
    pairs: dict[int, int] = {}
    pointwise = True
    blocked: tuple[set[int], set[int]] = (set(), set())
    for (start_a, steps_a), (start_b, steps_b) in zip(first.axes, second.axes, strict=True):
        if _disjoint(start_a, steps_a, first.extents, start_b, steps_b, second.extents):
            return None
        matched = _match(start_a, steps_a, first.extents, start_b, steps_b, second.extents)
        if matched is None:
            pointwise = False
            blocked[0].update(k for k, _ in steps_a)
            blocked[1].update(k for k, _ in steps_b)
            continue
        for a, b in matched:
            if pairs.get(a, b) != b or any(y == b and x != a for x, y in pairs.items()):
                blocked[0].add(a)
                blocked[1].add(b)
                pointwise = False
            pairs[a] = b
    return Relation(tuple(sorted(pairs.items())), frozenset(blocked[0]), frozenset(blocked[1]), pointwise)


Steps = tuple[tuple[int, Dim], ...]
Extents = tuple[Dim, ...]


def _match(
    start_a: Dim, steps_a: Steps, extents_a: Extents, start_b: Dim, steps_b: Steps, extents_b: Extents
) -> list[tuple[int, int]] | None:
    """Axis pairs under which both index expressions are the same; None if they are not."""
    if start_a != start_b or len(steps_a) != len(steps_b):
        return None
    rest = {step: k for k, step in steps_b}
    if len(rest) != len(steps_b):
        return None
    pairs = []
    for k, step in steps_a:
        other = rest.pop(step, None)
        if other is None or extents_a[k] != extents_b[other]:
            return None
        pairs.append((k, other))
    return pairs


def _disjoint(
    start_a: Dim, steps_a: Steps, extents_a: Extents, start_b: Dim, steps_b: Steps, extents_b: Extents
) -> bool:
    """True if the ranges of two index expressions certainly share no index."""
    distance = start_b - start_a
    if not isinstance(distance, int):
        return False
    strides = [step for _, step in (*steps_a, *steps_b)]
    if strides and all(isinstance(step, int) for step in strides) and distance % math.gcd(*strides):  # type: ignore[arg-type]
        return True
    reach_a, reach_b = _reach(steps_a, extents_a), _reach(steps_b, extents_b)
    if distance > 0 and reach_a is not None and all(isinstance(s, int) and s >= 0 for _, s in steps_b):
        return reach_a < distance
    if distance < 0 and reach_b is not None and all(isinstance(s, int) and s >= 0 for _, s in steps_a):
        return reach_b < -distance
    return False


def _reach(steps: Steps, extents: Extents) -> int | None:
    """The largest distance from the start, for static non-negative steps; dynamic extents give None."""
    total = 0
    for k, step in steps:
        extent = extents[k]
        if not isinstance(step, int) or not isinstance(extent, int) or step < 0:
            return None
        total += step * max(extent - 1, 0)
    return total


def compose(view: View, through: View, source: View) -> View | None:
    """`view` of a tile that was filled by copying `source` to `through`, as a view of the source's base.

    None if `through` does not place each of its axes, by itself and with step 1, on one axis of the tile.
    """
    rank = len(through.shape)
    env: dict[str, Dim] = {}
    for index, wanted in zip(through.index, view.index, strict=True):
        start, steps = linear_index(index, rank)
        used = [(k, s) for k, s in enumerate(steps) if s != 0]
        if not used:
            continue
        if len(used) != 1 or used[0][1] != 1 or f"_{used[0][0]}" in env:
            return None
        env[f"_{used[0][0]}"] = wanted - start
    for k, extent in enumerate(through.shape):
        if f"_{k}" not in env:
            if extent != 1:
                return None
            env[f"_{k}"] = 0
    return View(source.base, tuple(substitute(i, env) for i in source.index), view.shape)
