"""Recipes as the steps from a constant that is known by name, in JSON values: how a package tells them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tensor_types.dtypes import DTYPES
from tensor_types.recipe_base import Recipe, Source
from tensor_types.recipe_steps import Cast, Joined, Reshaped, Scaled, Sliced, Transposed
from tensor_types.recipes import cast, cut, join, permute, reshape

_MOST_PARTS = 64
"""Constants that a path joins, once."""


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
            nested = any(s[0] == "join" for path in paths if path is not None for s in path[1])
            if None in paths or nested or len(paths) >= _MOST_PARTS or any(s[0] == "join" for s in steps):
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
    joined = False  # once: a short text must not make of a small constant what no memory holds
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
            if joined or len(paths) >= _MOST_PARTS or any(s[0] == "join" for _, inner in paths for s in inner):
                raise ValueError("too many parts, or a part that is joined itself")
            joined = True
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
