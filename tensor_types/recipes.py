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

from collections.abc import Sequence
from math import prod

import numpy as np

from tensor_types.dtypes import DType
from tensor_types.formats import Bits, Format, Permute, Split, Transformed
from tensor_types.recipe_base import SMALL, Box, Recipe, Source, arrays_asked_for, blocks, samples, slices
from tensor_types.recipe_steps import (
    Cast,
    Computed,
    Joined,
    PackedCodes,
    Padded,
    Points,
    Reshaped,
    Scaled,
    Sliced,
    Transposed,
    UnpackedCodes,
    converted,
)


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
    return Source(of.content[slices(box)]) if isinstance(of, Source) else Sliced(of, box)


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


def repeat(of: Recipe, shape: Sequence[int]) -> Recipe:
    """Broadcast to `shape`, as numpy does."""
    wanted = tuple(shape)
    return of if of.shape == wanted else Computed("repeated", lambda arrays: arrays[0], (of,), wanted, of.dtype)


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


def _pad(of: Recipe, axis: int, before: int, after: int) -> Recipe:
    return Padded(of, axis, before, after) if before or after else of


__all__ = [
    "SMALL", "Box", "Computed", "Recipe", "Source", "arrays_asked_for", "blocks", "cast", "converted", "cut", "join",
    "pack", "permute", "reshape", "samples", "scale", "stack", "unpack",
]  # fmt: skip
