"""Recipes of constants: bytes that lie in a file, and the steps that make the wanted tensor of them.

A recipe is evaluated box by box, so that a tensor of any size is written with little memory:

    >>> weight = cast(permute(Source(mapped), (1, 0)), BF16)
    >>> for part in blocks(weight):        # contiguous, in row-major order, end to end the whole tensor
    ...     file.write(part)

Steps that numpy expresses as a view of the source (permute, slice, most reshapes) are taken at once and cost nothing.
Recipes are immutable; equal ones give equal bytes. Big sources are equal if they are the same memory, small ones if
they have the same content.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any, TypeAlias

import numpy as np

from tensor_types.cook_toom import cook_toom
from tensor_types.dtypes import DTYPES, F16, DType, from_numpy
from tensor_types.formats import Bits, Format, Permute, Split, Transformed, to_points

Box: TypeAlias = tuple[tuple[int, int], ...]
"""For each axis the first index and the one behind the last."""

SMALL = 1 << 16
"""Bytes up to which a derived constant is kept once it was evaluated."""
_BLOCK = 1 << 20
"""Elements of a block, at most, where one row of the innermost axis has not more."""


class Recipe(ABC):
    """A constant tensor: `shape` and `dtype` are known, its bytes are made when asked for."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor; of a tensor of strings those of its handles."""
        return self.size * self.dtype.numpy.itemsize

    @property
    @abstractmethod
    def key(self) -> Hashable:
        """What two recipes of equal bytes share."""

    @abstractmethod
    def read(self, box: Box) -> np.ndarray:
        """The elements of a box, which is not empty. The result may be a view of the source."""

    def array(self) -> np.ndarray:
        """The whole tensor, read-only to the caller. Only small ones are kept."""
        _note(self)
        if self.nbytes <= SMALL:
            return self._kept
        return self._evaluate()

    @cached_property
    def _kept(self) -> np.ndarray:
        return self._evaluate()

    def _evaluate(self) -> np.ndarray:
        if not self.size:
            return np.empty(self.shape, self.dtype.numpy)
        return self.read(tuple((0, n) for n in self.shape))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the bytes, in hex."""
        state = hashlib.sha256()
        for part in blocks(self):
            state.update(part.reshape(-1).view(np.uint8).data)
        return state.hexdigest()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Recipe) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)


_asked: ContextVar[list[Recipe] | None] = ContextVar("asked", default=None)


def _note(recipe: Recipe) -> None:
    asked = _asked.get()
    if asked is not None:
        asked.append(recipe)


@contextmanager
def arrays_asked_for() -> Iterator[list[Recipe]]:
    """Collects the constants whose content is asked for as an array as long as this lasts, in this context."""
    asked: list[Recipe] = []
    before = _asked.set(asked)
    try:
        yield asked
    finally:
        _asked.reset(before)


def blocks(recipe: Recipe, limit: int = _BLOCK) -> Iterator[np.ndarray]:
    """The tensor in row-major order as contiguous arrays of about `limit` elements, end to end."""
    if not recipe.size:
        return
    shape = recipe.shape
    inner = len(shape)  # axes from here on are taken whole
    while inner and prod(shape[inner - 1 :]) <= limit:
        inner -= 1
    whole = tuple((0, n) for n in shape[inner:])
    if not inner:
        yield np.asarray(recipe.read(whole), order="C")
        return
    step = max(limit // prod(shape[inner:]), 1)
    for outer in np.ndindex(*shape[: inner - 1]):
        lead = tuple((i, i + 1) for i in outer)
        for start in range(0, shape[inner - 1], step):
            box = (*lead, (start, min(start + step, shape[inner - 1])), *whole)
            yield np.asarray(recipe.read(box), order="C")


# Steps. Built by the functions below, which take views at once.


@dataclass(frozen=True, eq=False)
class Source(Recipe):
    """An array as it is: of a mapped file, or a literal. It must not change any more."""

    content: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.content.shape

    @cached_property
    def dtype(self) -> DType:  # type: ignore[override]
        return from_numpy(self.content.dtype)

    @cached_property
    def key(self) -> Hashable:
        array = self.content
        if array.dtype.hasobject:
            return "words", array.shape, tuple(map(str, array.reshape(-1).tolist()))
        if array.nbytes <= SMALL:
            return "literal", array.dtype.str, self.dtype.name, array.shape, array.tobytes()
        return "memory", self.dtype.name, array.shape, array.strides, array.__array_interface__["data"][0]

    def read(self, box: Box) -> np.ndarray:
        return np.asarray(self.content[_slices(box)])  # of a scalar, numpy gives no array

    def array(self) -> np.ndarray:
        _note(self)
        return self.content


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
        return self.of.dtype

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


# How recipes are built


def cast(of: Recipe, dtype: DType) -> Recipe:
    """`of` in another dtype; finite numbers stay finite in f16."""
    return of if of.dtype == dtype else Cast(of, dtype)


def permute(of: Recipe, order: Sequence[int]) -> Recipe:
    """Axis i of the result is axis `order[i]` of `of`."""
    order = tuple(order)
    if order == tuple(range(len(order))):
        return of
    if isinstance(of, Source):
        return Source(of.content.transpose(order))
    if isinstance(of, Transposed):
        return permute(of.of, [of.order[a] for a in order])
    return Transposed(of, order)


def reshape(of: Recipe, shape: Sequence[int]) -> Recipe:
    """The same elements under another shape; ValueError if their number differs."""
    shape = tuple(shape)
    if prod(shape) != of.size:
        raise ValueError(f"{of.shape} cannot become {shape}")
    if shape == of.shape:
        return of
    if isinstance(of, Source):
        try:
            return Source(np.reshape(of.content, shape, copy=None if of.nbytes <= SMALL else False))
        except ValueError:
            pass  # no view gives it
    if isinstance(of, Reshaped):
        return reshape(of.of, shape)
    return Reshaped(of, shape)


def cut(of: Recipe, box: Box) -> Recipe:
    """The elements of a box."""
    if all(bounds == (0, n) for bounds, n in zip(box, of.shape, strict=True)):
        return of
    return Source(of.content[_slices(box)]) if isinstance(of, Source) else Sliced(of, box)


def join(parts: Sequence[Recipe], axis: int) -> Recipe:
    """Parts of one dtype end to end along an axis."""
    return parts[0] if len(parts) == 1 else Joined(tuple(parts), axis)


def stack(parts: Sequence[Recipe]) -> Recipe:
    """Parts of one shape under a new leading axis."""
    return join([reshape(p, (1, *p.shape)) for p in parts], 0)


def scale(of: Recipe, factor: Recipe, dtype: DType, zero: Recipe | None = None, block: int = 1) -> Recipe:
    """(of - zero) * factor in f64, rounded once to `dtype`.

    Each axis of `factor` (and of `zero`, which has its shape) is 1, that of `of`, or has an entry for each `block`
    elements. ValueError if they do not fit.
    """
    every = tuple(n if m == 1 else 1 if m == n else block for n, m in zip(of.shape, factor.shape, strict=True))
    if any(m != -(-n // max(s, 1)) and n for n, m, s in zip(of.shape, factor.shape, every, strict=True)):
        raise ValueError(f"factors {factor.shape} do not fit {of.shape} in blocks of {block}")
    if zero is not None and zero.shape != factor.shape:
        raise ValueError(f"zeros {zero.shape} for factors {factor.shape}")
    return Scaled(of, factor, zero, dtype, every)


def unpack(of: Recipe, bits: int, dtype: DType) -> Recipe:
    """The codes of bytes [.., n] as elements [.., n * 8/bits] of `dtype`, of a byte each; lowest bits first."""
    return UnpackedCodes(of, Bits(bits), dtype)


def pack(of: Recipe, form: Format) -> Recipe:
    """The physical tensor of `of` in a format; padding holds zeros."""
    for step in form.steps:
        if isinstance(step, Permute):
            of = permute(of, step.perm)
        elif isinstance(step, Bits):
            of = PackedCodes(of, step)
        elif isinstance(step, Split):
            extent = of.shape[step.axis]
            count = -(-extent // step.factor)
            of = _pad(of, step.axis, 0, count * step.factor - extent)
            of = reshape(of, (*of.shape[: step.axis], count, step.factor, *of.shape[step.axis + 1 :]))
        elif isinstance(step, Transformed):
            of = Points(of, step.axis, step.outputs)
        else:
            of = _pad(of, step.axis, step.before, step.after)
    return of


def path_from(recipe: Recipe, known: Mapping[Recipe, str]) -> tuple[str, list[list[Any]]] | None:
    """The recipe as a known one, by name, and the steps from there in JSON values; None if it does not begin in one."""
    steps: list[list[Any]] = []
    while recipe not in known:
        if isinstance(recipe, Cast):
            steps.append(["cast", recipe.dtype.name])
        elif isinstance(recipe, Transposed):
            steps.append(["permute", list(recipe.order)])
        elif isinstance(recipe, Reshaped):
            steps.append(["reshape", list(recipe.shape)])
        elif isinstance(recipe, Sliced):
            steps.append(["cut", [list(bounds) for bounds in recipe.box]])
        elif isinstance(recipe, Scaled):
            factor = path_from(recipe.factor, known)
            zero = None if recipe.zero is None else _number_or_path(recipe.zero, known)
            if factor is None or (zero is None and recipe.zero is not None):
                return None
            steps.append(["scale", [recipe.dtype.name, list(recipe.every), list(factor), zero]])
        elif isinstance(recipe, Joined):
            paths = [path_from(part, known) for part in recipe.parts[1:]]
            if None in paths:
                return None
            steps.append(["join", [recipe.axis, [list(path) for path in paths if path is not None]]])
            recipe = recipe.parts[0]
            continue
        else:
            return None
        recipe = recipe.of
    return known[recipe], steps[::-1]


def _number_or_path(recipe: Recipe, known: Mapping[Recipe, str]) -> Any:
    """A constant of one number throughout as that, any other as `path_from` has it."""
    path = path_from(recipe, known)
    if path is not None:
        return list(path)
    numbers = recipe.array().reshape(-1).astype(np.float64)
    return float(numbers[0]) if numbers.size and (numbers == numbers[0]).all() else None


def along(recipe: Recipe, steps: Sequence[Any], known: Callable[[str], Recipe]) -> Recipe:
    """What `path_from` described, from its beginning; `known` gives a constant by name. ValueError, TypeError or
    KeyError if a step is none or does not fit."""
    for name, of in steps:
        if name == "cast":
            recipe = cast(recipe, DTYPES[of])
        elif name == "permute":
            if sorted(of) != list(range(len(recipe.shape))):
                raise ValueError("not a permutation")
            recipe = permute(recipe, of)
        elif name == "reshape":
            if not all(isinstance(n, int) and n >= 0 for n in of):
                raise ValueError("not a shape")
            recipe = reshape(recipe, of)
        elif name == "cut":
            box = tuple((int(a), int(b)) for a, b in of)
            if any(not 0 <= a <= b <= n for (a, b), n in zip(box, recipe.shape, strict=True)):
                raise ValueError("not a part")
            recipe = cut(recipe, box)
        elif name == "scale":
            recipe = _scaled_along(recipe, of, known)
        elif name == "join":
            axis, paths = of
            if any(s[0] == "join" for _, inner in paths for s in inner):
                raise ValueError("a part that is joined itself")
            parts = [recipe, *(along(known(other), inner, known) for other, inner in paths)]
            kinds = {(p.dtype, (*p.shape[:axis], *p.shape[axis + 1 :])) for p in parts}
            if not isinstance(axis, int) or not 0 <= axis < len(recipe.shape) or len(kinds) != 1:
                raise ValueError("parts that do not fit")
            recipe = join(parts, axis)
        else:
            raise ValueError(f"unknown step {str(name)[:40]}")
    return recipe


def _scaled_along(recipe: Recipe, step: Sequence[Any], known: Callable[[str], Recipe]) -> Recipe:
    dtype, every, (name, steps), zero = step
    # One level: the parameters of a scale are made of one constant each.
    if any(s[0] in ("scale", "join") for s in (*steps, *(zero[1] if isinstance(zero, list) else ()))):
        raise ValueError("a parameter of a scale that is scaled or joined itself")
    factor = along(known(name), steps, known)
    shape = tuple(-(-n // s) for n, s in zip(recipe.shape, every, strict=True) if isinstance(s, int) and s > 0)
    if factor.shape != shape or not DTYPES[dtype].is_float:
        raise ValueError("a scale does not fit")
    zeros: Recipe | None = None
    if isinstance(zero, int | float):
        zeros = Source(np.broadcast_to(np.float64(zero), shape))
    elif zero is not None:
        zeros = along(known(zero[0]), zero[1], known)
        if zeros.shape != shape:
            raise ValueError("zeros do not fit")
    return Scaled(recipe, factor, zeros, DTYPES[dtype], tuple(every))


def _pad(of: Recipe, axis: int, before: int, after: int) -> Recipe:
    return Padded(of, axis, before, after) if before or after else of


def converted(array: np.ndarray, dtype: DType) -> np.ndarray:
    """The array rounded to `dtype`; finite numbers stay finite in f16."""
    if dtype == F16 and array.dtype.itemsize > 2:
        limit = array.dtype.type(65504)
        array = np.where(np.isfinite(array), np.clip(array, -limit, limit), array)
    with np.errstate(over="ignore"):
        return np.asarray(array).astype(dtype.numpy)


# Boxes


def _slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(a, b) for a, b in box)


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
