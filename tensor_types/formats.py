"""Formats: invertible maps from the logical index of a tensor to its physical index.

A `Format` is a sequence of steps applied to the logical shape: `Permute`, `Split` (an axis into blocks, padded with
zeros up to a whole block), `Pad` (a halo of zeros around an axis) and, as the last one, `Bits` (several codes in a
byte). Relayout, weight packing and comparison derive from it; NCHW, NHWC, NC1HWC0, FRACTAL_NZ and packed matmul panels
are instances.

    >>> FRACTAL_NZ(16).physical_shape((100, 40))
    (3, 7, 16, 16)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TypeAlias

import numpy as np

from tensor_types.cook_toom import cook_toom
from tensor_types.dims import Dim, ceildiv
from tensor_types.dtypes import F32, from_numpy


@dataclass(frozen=True)
class Permute:
    """Physical axis i is axis `perm[i]` of what came before."""

    perm: tuple[int, ...]

    def __str__(self) -> str:
        return f"perm({','.join(map(str, self.perm))})"


@dataclass(frozen=True)
class Split:
    """Axis `axis` of extent d becomes two axes (ceil(d/factor), factor); the padding holds zeros."""

    axis: int
    factor: int

    def __str__(self) -> str:
        return f"split({self.axis},{self.factor})"


@dataclass(frozen=True)
class Pad:
    """Axis `axis` gets `before` and `after` further elements, which hold zeros."""

    axis: int
    before: int
    after: int

    def __str__(self) -> str:
        return f"pad({self.axis},{self.before},{self.after})"


@dataclass(frozen=True)
class Transformed:
    """Axis `axis`, which holds the taps of a window, becomes the points of the scheme of `outputs` outputs
    (`tensor_types.cook_toom`). Elements are rounded, those of 16 bits to f32: the one step that has no way back."""

    axis: int
    outputs: int

    def __str__(self) -> str:
        return f"points({self.axis},{self.outputs})"


@dataclass(frozen=True)
class Bits:
    """The innermost axis, of elements of a byte each, becomes bytes of 8/bits codes, the first in the lowest bits.

    Of an element its low `bits` are kept; unsigned ones are read back as they were. The extent is a multiple of 8/bits.
    """

    bits: int

    def __str__(self) -> str:
        return f"bits({self.bits})"

    @property
    def together(self) -> int:
        """Codes of a byte."""
        return 8 // self.bits

    def packed(self, array: np.ndarray) -> np.ndarray:
        """Bytes of codes, in the dtype of the codes."""
        codes = np.asarray(array, order="C").view(np.uint8) & ((1 << self.bits) - 1)
        groups = codes.reshape(*codes.shape[:-1], -1, self.together)
        made = np.zeros(groups.shape[:-1], np.uint8)
        for place in range(self.together):
            made |= groups[..., place] << (self.bits * place)
        return made.view(array.dtype)

    def unpacked(self, array: np.ndarray) -> np.ndarray:
        """The codes of bytes, of a signed dtype with their sign."""
        data = np.asarray(array, order="C").view(np.uint8)
        places = np.arange(0, 8, self.bits, dtype=np.uint8)
        codes = (data[..., None] >> places & ((1 << self.bits) - 1)).reshape(*data.shape[:-1], -1)
        if from_numpy(array.dtype).kind == "int":
            middle = 1 << (self.bits - 1)
            codes = (codes ^ middle).astype(np.int8) - np.int8(middle)
            return codes.astype(array.dtype)
        return codes.view(array.dtype)


Step: TypeAlias = Permute | Split | Pad | Transformed | Bits


@dataclass(frozen=True)
class Format:
    """The map as steps; the empty one is plain row-major order."""

    steps: tuple[Step, ...] = ()

    @property
    def is_plain(self) -> bool:
        return not self.steps

    @property
    def is_invertible(self) -> bool:
        """True if the logical tensor can be read back to the bit."""
        return not any(isinstance(step, Transformed) for step in self.steps)

    @property
    def permutation(self) -> tuple[int, ...] | None:
        """The permutation when the format is a single one, else None."""
        return self.steps[0].perm if len(self.steps) == 1 and isinstance(self.steps[0], Permute) else None

    def physical_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """The physical extents of a tensor of the logical `shape`. ValueError if a step is for another rank."""
        dims = list(shape)
        for step in self.steps:
            if isinstance(step, Bits):
                fits = bool(dims) and (not isinstance(dims[-1], int) or dims[-1] % step.together == 0)
            else:
                fits = len(step.perm) == len(dims) if isinstance(step, Permute) else step.axis < len(dims)
            if not fits:
                raise ValueError(f"format {self} is not one of a tensor of rank {len(shape)}")
            if isinstance(step, Bits):
                dims[-1] = ceildiv(dims[-1], step.together)
            elif isinstance(step, Permute):
                dims = [dims[p] for p in step.perm]
            elif isinstance(step, Split):
                dims[step.axis : step.axis + 1] = [ceildiv(dims[step.axis], step.factor), step.factor]
            elif isinstance(step, Transformed):
                taps = dims[step.axis]
                if not isinstance(taps, int):
                    raise ValueError(f"format {self} transforms an axis of a run-time size")
                dims[step.axis] = cook_toom(step.outputs, taps).points
            else:
                dims[step.axis] = dims[step.axis] + (step.before + step.after)
        return tuple(dims)

    def to_physical(self, array: np.ndarray) -> np.ndarray:
        """A contiguous array in physical order; padding holds zeros."""
        for step in self.steps:
            if isinstance(step, Bits):
                array = step.packed(array)
            elif isinstance(step, Permute):
                array = array.transpose(step.perm)
            elif isinstance(step, Split):
                size = array.shape[step.axis]
                blocks = -(-size // step.factor)
                array = _padded(array, step.axis, 0, blocks * step.factor - size)
                shape = array.shape
                array = array.reshape(shape[: step.axis] + (blocks, step.factor) + shape[step.axis + 1 :])
            elif isinstance(step, Transformed):
                array = to_points(array, step.axis, step.outputs)
            else:
                array = _padded(array, step.axis, step.before, step.after)
        return np.asarray(array, order="C")  # unlike ascontiguousarray it keeps a scalar one

    def to_logical(self, array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """The logical tensor of `shape` from its physical array; ValueError if the shapes do not belong together."""
        if not self.is_invertible:
            raise ValueError(f"format {self} has no way back")
        shapes = [tuple(shape)]
        for i in range(len(self.steps)):
            shapes.append(Format(self.steps[: i + 1]).physical_shape(shape))  # type: ignore[arg-type]
        if tuple(array.shape) != shapes[-1]:
            raise ValueError(f"physical shape {array.shape} does not belong to {tuple(shape)} in format {self}")
        for step, before in zip(reversed(self.steps), reversed(shapes[:-1]), strict=True):
            if isinstance(step, Bits):
                array = step.unpacked(array)
            elif isinstance(step, Permute):
                array = array.transpose(np.argsort(step.perm))
            elif isinstance(step, Split):
                size = array.shape[step.axis] * array.shape[step.axis + 1]
                array = array.reshape(array.shape[: step.axis] + (size,) + array.shape[step.axis + 2 :])
                array = array[(slice(None),) * step.axis + (slice(0, before[step.axis]),)]
            elif isinstance(step, Pad):
                end = step.before + before[step.axis]
                array = array[(slice(None),) * step.axis + (slice(step.before, end),)]
        return array

    def __str__(self) -> str:
        return " ".join(map(str, self.steps)) if self.steps else "plain"


def to_points(array: np.ndarray, axis: int, outputs: int) -> np.ndarray:
    """The taps along an axis as the points of a scheme, in the array's dtype, of 16 bits in f32.

    ValueError if there is no such scheme.
    """
    if array.dtype.itemsize < F32.bytes:
        array = array.astype(F32.numpy)
    taps, trail = array.shape[axis], array.shape[axis + 1 :]
    scheme = cook_toom(outputs, taps)
    matrix = np.array([[float(c) for c in row] for row in scheme.weights], array.dtype)
    made: np.ndarray = np.matmul(matrix, array.reshape(-1, taps, prod(trail)))
    return made.reshape(*array.shape[:axis], scheme.points, *trail)


def _padded(array: np.ndarray, axis: int, before: int, after: int) -> np.ndarray:
    if not before and not after:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (before, after)
    return np.pad(array, widths)


@lru_cache(maxsize=256)
def parse_format(text: str) -> Format:
    """Reads str(format) back; ValueError on anything else."""
    if text == "plain":
        return PLAIN
    steps: list[Step] = []
    for word in text.split():
        match = re.fullmatch(r"(perm|split|pad|points|bits)\(([\d,]+)\)", word)
        if not match:
            raise ValueError(f"not a format step: {word!r}")
        numbers = tuple(int(n) for n in match[2].split(","))
        if match[1] == "perm":
            if sorted(numbers) != list(range(len(numbers))):
                raise ValueError(f"not a permutation: {word!r}")
            steps.append(Permute(numbers))
        elif match[1] == "split" and len(numbers) == 2 and numbers[1] > 0:
            steps.append(Split(*numbers))
        elif match[1] == "pad" and len(numbers) == 3:
            steps.append(Pad(*numbers))
        elif match[1] == "points" and len(numbers) == 2 and numbers[1] > 0:
            steps.append(Transformed(*numbers))
        elif match[1] == "bits" and numbers in ((2,), (4,)):
            steps.append(Bits(*numbers))
        else:
            raise ValueError(f"not a format step: {word!r}")
    return Format(tuple(steps))


PLAIN = Format()


def channels_last(rank: int) -> Format:
    """NHWC order (NWC, NDHWC) for a logical N, C, spatial... tensor of `rank` axes."""
    return Format((Permute((0, *range(2, rank), 1)),))


def NC1HWC0(c0: int) -> Format:  # noqa: N802 (the field's name)
    """Ascend's 5HD: logical NCHW as N, ceil(C/c0), H, W, c0."""
    return Format((Split(1, c0), Permute((0, 1, 3, 4, 2))))


def FRACTAL_NZ(n0: int, m0: int = 16) -> Format:  # noqa: N802 (the field's name)
    """Ascend's NZ of a matrix [M, N]: ceil(N/n0), ceil(M/m0), m0, n0."""
    return Format((Split(1, n0), Split(0, m0), Permute((2, 0, 1, 3))))


def panels(nr: int, rank: int = 2, group: int = 1) -> Format:
    """Packed right operand of a matmul [..., K, N]: [..., ceil(N/nr), K, nr]; leading axes stay.

    With a `group` so many consecutive k lie together: [..., ceil(N/nr), ceil(K/group), nr, group].
    """
    lead, k = tuple(range(rank - 2)), rank - 2
    if group == 1:
        return Format((Split(k + 1, nr), Permute((*lead, k + 1, k, k + 2))))
    return Format((Split(k, group), Split(k + 2, nr), Permute((*lead, k + 2, k, k + 3, k + 1))))


def code_panels(nr: int, bits: int) -> Format:
    """Codes [K, N] of a right operand in the words of a product, u32[ceil(N/nr), K*bits/32, nr] as bytes.

    A word holds 32/bits consecutive k of a column, code j at bit 8*(j % 4) + bits*(j // 4).
    """
    high = 8 // bits  # codes of a byte: they are four k apart
    split = (Split(0, 4), Split(0, high), Split(3, nr))  # K/word, high, 4, N/nr, nr
    return Format((*split, Permute((3, 0, 4, 2, 1)), Bits(bits)))
