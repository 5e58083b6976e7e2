"""What a recipe of a constant is: shape, dtype and boxes of bytes that are made when asked for; and arrays as such."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TypeAlias

import numpy as np

from tensor_types.dtypes import DType, from_numpy

Box: TypeAlias = tuple[tuple[int, int], ...]
"""For each axis the first index and the one behind the last."""
SMALL = 1 << 16
"""Bytes up to which a derived constant is kept once it was evaluated."""
_SAMPLES, _RUN = 64, 256
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
        note_array(self)
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
        """SHA-256 of the bytes, in hex: what is remembered of a content holds for no other."""
        state = hashlib.sha256()
        for part in blocks(self):
            state.update(part.reshape(-1).view(np.uint8).data)
        return state.hexdigest()

    @cached_property
    def mark(self) -> str:
        """Eight hex digits by which people tell constants apart: of dtype, shape and the elements of `samples`."""
        state = hashlib.sha256(f"{self.dtype}{list(self.shape)}".encode())
        for part in samples(self):
            state.update(part.reshape(-1).view(np.uint8).data)
        return state.hexdigest()[:8]

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Recipe) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)


_asked: ContextVar[list[Recipe] | None] = ContextVar("asked", default=None)


def note_array(recipe: Recipe) -> None:
    """Tells who is collecting (`arrays_asked_for`) that the content of a constant is asked for."""
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


def samples(recipe: Recipe) -> Iterator[np.ndarray]:
    """The elements of a small tensor; of a big one `_SAMPLES` runs, spread evenly from its first to its last one."""
    if recipe.nbytes <= SMALL:
        yield from blocks(recipe)
        return
    for number in range(_SAMPLES):
        *outer, start = np.unravel_index(number * (recipe.size - 1) // (_SAMPLES - 1), recipe.shape)
        last = recipe.shape[-1]
        run = max(min(int(start), last - _RUN), 0)
        box = (*((int(i), int(i) + 1) for i in outer), (run, min(run + _RUN, last)))
        yield np.asarray(recipe.read(box), order="C")


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
        return np.asarray(self.content[slices(box)])  # of a scalar, numpy gives no array

    def array(self) -> np.ndarray:
        note_array(self)
        return self.content


def slices(box: Box) -> tuple[slice, ...]:
    """A box as numpy's index."""
    return tuple(slice(a, b) for a, b in box)
