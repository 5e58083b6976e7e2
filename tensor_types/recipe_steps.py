"""The steps of recipes, each over another recipe or several. They are built by the functions of `recipes`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from tensor_types.cook_toom import cook_toom
from tensor_types.dtypes import F16, F32, DType
from tensor_types.formats import Bits, to_points
from tensor_types.recipe_base import Box, Recipe


@dataclass(frozen=True, eq=False)
class _Step(Recipe):
    of: Recipe

    @cached_property
    def key(self) -> Hashable:
        return type(self).__name__, self.of.key, self._own()

    @abstractmethod
    def _own(self) -> Hashable:
        """What tells the step from others of its kind."""


@dataclass(frozen=True, eq=False)
class Cast(_Step):
    """Every element in another dtype; finite numbers stay finite in f16."""

    dtype: DType

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.of.shape

    def _own(self) -> Hashable:
        return self.dtype.name

    def read(self, box: Box) -> np.ndarray:
        return converted(self.of.read(box), self.dtype)


@dataclass(frozen=True, eq=False)
class Transposed(_Step):
    """Axis i is axis `order[i]` of what it is made of."""

    order: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(self.of.shape[a] for a in self.order)

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.of.dtype

    def _own(self) -> Hashable:
        return self.order

    def read(self, box: Box) -> np.ndarray:
        inner = [(0, 0)] * len(box)
        for axis, bounds in zip(self.order, box, strict=True):
            inner[axis] = bounds
        return self.of.read(tuple(inner)).transpose(self.order)


@dataclass(frozen=True, eq=False)
class Reshaped(_Step):
    """The same elements in row-major order under another shape."""

    shape: tuple[int, ...]

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.of.dtype

    def _own(self) -> Hashable:
        return self.shape

    def read(self, box: Box) -> np.ndarray:
        """Runs of axes of equal products are mapped each on its own, so a box inside stays a small box."""
        inner: list[tuple[int, int]] = []
        picks: list[slice | np.ndarray] = []
        for old, new in _equal_runs(self.of.shape, self.shape):
            olds, news = self.of.shape[slice(*old)], self.shape[slice(*new)]
            bounds = box[slice(*new)]
            first = _flat([a for a, _ in bounds], news)
            end = _flat([b - 1 for _, b in bounds], news) + 1
            cover = _cover(first, end, olds)
            inner.extend(cover)
            base = _flat([a for a, _ in cover], olds)
            if prod(b - a for a, b in bounds) == end - first:
                picks.append(slice(first - base, end - base))
            else:
                places = np.zeros((1,) * len(bounds), np.int64)
                for axis, (a, b) in enumerate(bounds):
                    line = np.arange(a, b).reshape([-1 if i == axis else 1 for i in range(len(bounds))])
                    places = places + line * prod(news[axis + 1 :])
                picks.append(places.reshape(-1) - base)
        found = self.of.read(tuple(inner))
        at, runs = 0, []
        for old, _ in _equal_runs(self.of.shape, self.shape):
            runs.append(prod(found.shape[at : at + old[1] - old[0]]))
            at += old[1] - old[0]
        found = found.reshape(runs)
        for axis, pick in enumerate(picks):
            found = found[(slice(None),) * axis + (pick,)]
        return found.reshape([b - a for a, b in box])


@dataclass(frozen=True, eq=False)
class Sliced(_Step):
    """The elements of a box of what it is made of."""

    box: Box

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(b - a for a, b in self.box)

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.of.dtype

    def _own(self) -> Hashable:
        return self.box

    def read(self, box: Box) -> np.ndarray:
        return self.of.read(tuple((a + start, b + start) for (a, b), (start, _) in zip(box, self.box, strict=True)))


@dataclass(frozen=True, eq=False)
class Padded(_Step):
    """`before` and `after` zeros around one axis."""

    axis: int
    before: int
    after: int

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        more = self.before + self.after
        return tuple(n + more if a == self.axis else n for a, n in enumerate(self.of.shape))

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.of.dtype

    def _own(self) -> Hashable:
        return self.axis, self.before, self.after

    def read(self, box: Box) -> np.ndarray:
        start, stop = (bound - self.before for bound in box[self.axis])
        first, end = max(start, 0), min(stop, self.of.shape[self.axis])
        made = np.zeros([b - a for a, b in box], self.dtype.numpy)
        if first < end:
            inner = (*box[: self.axis], (first, end), *box[self.axis + 1 :])
            made[(slice(None),) * self.axis + (slice(first - start, end - start),)] = self.of.read(inner)
        return made


@dataclass(frozen=True, eq=False)
class Points(_Step):
    """The taps along an axis as the points of Cook-Toom's scheme of so many outputs."""

    axis: int
    outputs: int

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        points = cook_toom(self.outputs, self.of.shape[self.axis]).points
        return (*self.of.shape[: self.axis], points, *self.of.shape[self.axis + 1 :])

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.of.dtype if self.of.dtype.bits > 16 else F32

    def _own(self) -> Hashable:
        return self.axis, self.outputs

    def read(self, box: Box) -> np.ndarray:
        whole = (*box[: self.axis], (0, self.of.shape[self.axis]), *box[self.axis + 1 :])
        first, end = box[self.axis]
        made = to_points(self.of.read(whole), self.axis, self.outputs)
        return made[(slice(None),) * self.axis + (slice(first, end),)]


@dataclass(frozen=True, eq=False)
class PackedCodes(_Step):
    """Codes of the innermost axis, several in a byte; in the dtype of the codes, as formats have it."""

    step: Bits

    @cached_property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        if self.of.dtype.bytes != 1 or self.of.shape[-1] % self.step.together:
            raise ValueError(f"{self.of.dtype}{list(self.of.shape)} are no whole bytes of {self.step.bits}-bit codes")
        return (*self.of.shape[:-1], self.of.shape[-1] // self.step.together)

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.of.dtype

    def _own(self) -> Hashable:
        return self.step.bits

    def read(self, box: Box) -> np.ndarray:
        first, end = (bound * self.step.together for bound in box[-1])
        return self.step.packed(self.of.read((*box[:-1], (first, end))))


@dataclass(frozen=True, eq=False)
class UnpackedCodes(_Step):
    """The codes of bytes, those of the lowest bits first, as elements of `dtype` along the innermost axis."""

    step: Bits
    dtype: DType

    @cached_property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (*self.of.shape[:-1], self.of.shape[-1] * self.step.together)

    def _own(self) -> Hashable:
        return self.step.bits, self.dtype.name

    def read(self, box: Box) -> np.ndarray:
        first, end = box[-1]
        start, size = first // self.step.together, self.step.together
        found = self.of.read((*box[:-1], (start, -(-end // size))))
        codes = self.step.unpacked(np.asarray(found, order="C").view(self.dtype.numpy))
        return codes[..., first - start * size : end - start * size]


@dataclass(frozen=True, eq=False)
class Joined(Recipe):
    """Parts end to end along an axis."""

    parts: tuple[Recipe, ...]
    axis: int

    @cached_property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        extent = sum(p.shape[self.axis] for p in self.parts)
        return tuple(extent if a == self.axis else n for a, n in enumerate(self.parts[0].shape))

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.parts[0].dtype

    @cached_property
    def key(self) -> Hashable:
        return "joined", self.axis, tuple(p.key for p in self.parts)

    def read(self, box: Box) -> np.ndarray:
        found, at = [], 0
        start, stop = box[self.axis]
        for part in self.parts:
            extent = part.shape[self.axis]
            first, end = max(start - at, 0), min(stop - at, extent)
            if first < end:
                found.append(part.read((*box[: self.axis], (first, end), *box[self.axis + 1 :])))
            at += extent
        return found[0] if len(found) == 1 else np.concatenate(found, self.axis)


@dataclass(frozen=True, eq=False)
class Scaled(_Step):
    """(element - zero) * scale, computed in f64 and rounded once to `dtype`.

    `every` tells for each axis how many elements share an entry of `scale` and `zero`: 1, the whole axis, or a block.
    """

    factor: Recipe
    zero: Recipe | None
    dtype: DType
    every: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.of.shape

    def _own(self) -> Hashable:
        return self.factor.key, None if self.zero is None else self.zero.key, self.dtype.name, self.every

    def read(self, box: Box) -> np.ndarray:
        made = self.of.read(box).astype(np.float64)
        if self.zero is not None:
            made -= self._parameter(self.zero, box)
        made *= self._parameter(self.factor, box)
        with np.errstate(over="ignore"):
            return made.astype(self.dtype.numpy)

    def _parameter(self, of: Recipe, box: Box) -> np.ndarray:
        found = of.read(tuple((a // s, -(-b // s)) for (a, b), s in zip(box, self.every, strict=True)))
        found = found.astype(np.float64)
        for axis, ((a, b), s) in enumerate(zip(box, self.every, strict=True)):
            if s != 1 and found.shape[axis] != 1:
                found = found.repeat(s, axis)[(slice(None),) * axis + (slice(a % s, a % s + b - a),)]
        return found


@dataclass(frozen=True, eq=False)
class Computed(Recipe):
    """An element-wise operator of constants that broadcast to `shape`.

    `apply` takes the operands' arrays; `name` tells it from other functions, attributes included.
    """

    name: Hashable
    apply: Callable[[Sequence[np.ndarray]], Any]
    operands: tuple[Recipe, ...]
    shape: tuple[int, ...]
    dtype: DType

    @cached_property
    def key(self) -> Hashable:
        return "computed", self.name, self.shape, self.dtype.name, tuple(o.key for o in self.operands)

    def read(self, box: Box) -> np.ndarray:
        arrays = []
        for operand in self.operands:
            own = box[len(box) - len(operand.shape) :]
            arrays.append(operand.read(tuple((0, 1) if n == 1 else b for n, b in zip(operand.shape, own, strict=True))))
        made = np.asarray(self.apply(arrays))
        return np.broadcast_to(made, [b - a for a, b in box])


def converted(array: np.ndarray, dtype: DType) -> np.ndarray:
    """The array rounded to `dtype`; finite numbers stay finite in f16."""
    if dtype == F16 and array.dtype.itemsize > 2:
        limit = array.dtype.type(65504)
        array = np.where(np.isfinite(array), np.clip(array, -limit, limit), array)
    with np.errstate(over="ignore"):
        return np.asarray(array).astype(dtype.numpy)


def _flat(index: Sequence[int], shape: Sequence[int]) -> int:
    found = 0
    for i, n in zip(index, shape, strict=True):
        found = found * n + i
    return found


def _cover(first: int, end: int, shape: Sequence[int]) -> list[tuple[int, int]]:
    """The smallest box that holds the flat range first .. end and is contiguous in it."""
    found: list[tuple[int, int]] = []
    last = end - 1
    for axis, extent in enumerate(shape):
        inner = prod(shape[axis + 1 :])
        a, b = first // inner, last // inner
        found.append((a, b + 1))
        if a != b:
            return [*found, *((0, n) for n in shape[axis + 1 :])]
        first, last = first - a * inner, last - b * inner
        assert a < extent
    return found


def _equal_runs(old: Sequence[int], new: Sequence[int]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The shortest runs of axes, as (start, end) in both shapes, that have equal products. Neither has a 0."""
    ends = [(0, 0)]
    i = j = 0
    left = right = 1
    while i < len(old) or j < len(new):
        if left <= right and i < len(old):
            left, i = left * old[i], i + 1
        else:
            right, j = right * new[j], j + 1
        if left == right:
            ends.append((i, j))
            left = right = 1
    return [((a, b), (c, d)) for (a, c), (b, d) in pairwise(ends)]
