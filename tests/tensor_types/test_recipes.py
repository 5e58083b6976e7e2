"""Recipes give, whole and in blocks, what numpy gives for the same steps."""

from __future__ import annotations

import json
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_types.dtypes import BF16, F16, F32, I8
from tensor_types.formats import FRACTAL_NZ, Format, Pad, panels
from tensor_types.recipe_paths import along, path_from
from tensor_types.recipes import (
    SMALL,
    Computed,
    Recipe,
    Source,
    blocks,
    cast,
    converted,
    cut,
    join,
    pack,
    permute,
    reshape,
    samples,
    scale,
    stack,
)


def read_in_blocks(recipe: Recipe, limit: int) -> np.ndarray:
    """What a writer would put into a file, as an array."""
    parts = list(blocks(recipe, limit))
    assert all(p.flags.c_contiguous and p.dtype == recipe.dtype.numpy for p in parts)
    flat = np.concatenate([p.reshape(-1) for p in parts]) if parts else np.empty(0, recipe.dtype.numpy)
    return flat.reshape(recipe.shape)


@st.composite
def chains(draw: st.DrawFn) -> tuple[Recipe, np.ndarray]:
    """A recipe of random steps, and the array that numpy makes by the same steps. No step is taken as a view."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    recipe: Recipe = Computed("kept lazy", lambda operands: operands[0], (Source(array),), shape, F32)
    for _ in range(draw(st.integers(0, 5))):
        rank = array.ndim
        kind = draw(st.sampled_from(["permute", "reshape", "cut", "join", "pad", "split", "scale"]))
        axis = draw(st.integers(0, rank - 1))
        if kind == "permute":
            order = draw(st.permutations(range(rank)))
            recipe, array = permute(recipe, order), array.transpose(order)
        elif kind == "reshape":
            new = draw(st.sampled_from(_shapes(array.size)))
            recipe, array = reshape(recipe, new), array.reshape(new)
        elif kind == "cut":
            box = tuple(
                tuple(sorted(draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True))))
                for n in array.shape
            )
            recipe, array = cut(recipe, box), array[tuple(slice(a, b) for a, b in box)]
        elif kind == "join":
            recipe, array = join([recipe, recipe], axis), np.concatenate([array, array], axis)
        elif kind == "pad":
            form = Format((Pad(axis, 1, 2),))
            recipe, array = pack(recipe, form), form.to_physical(array)
        elif kind == "split" and rank > 1:
            form = panels(3, rank)
            recipe, array = pack(recipe, form), form.to_physical(array)
        else:
            factors = np.arange(1, array.shape[axis] + 1, dtype=np.float32)
            factors = factors.reshape([-1 if a == axis else 1 for a in range(rank)])
            recipe, array = scale(recipe, Source(factors), F32), (array * factors.astype(np.float64)).astype(np.float32)
        if array.ndim > 6 or array.size > 5000:
            break
    return recipe, array


def _shapes(size: int) -> list[tuple[int, ...]]:
    pairs = [(d, size // d) for d in range(1, size + 1) if size % d == 0]
    return [(size,), *pairs, *((a, 1, b) for a, b in pairs)]


@given(chain=chains(), limit=st.sampled_from([1, 2, 7, 64, 1 << 20]))
@settings(max_examples=300, deadline=None)
def test_blocks_end_to_end_are_the_tensor(chain: tuple[Recipe, np.ndarray], limit: int) -> None:
    recipe, expected = chain
    assert recipe.shape == expected.shape
    assert np.array_equal(recipe.array(), expected)
    assert np.array_equal(read_in_blocks(recipe, limit), expected)


def test_a_scalar_and_a_tensor_without_elements() -> None:
    assert read_in_blocks(cast(Source(np.float32(2.5)), BF16), 8).tolist() == 2.5
    empty = pack(cast(Source(np.zeros((0, 3), np.float32)), F16), panels(2))
    assert empty.array().shape == (2, 0, 2) and list(blocks(empty)) == []


def test_views_cost_nothing_and_keep_their_source() -> None:
    array = np.zeros((512, 256), np.float32)
    for made in (permute(Source(array), (1, 0)), reshape(Source(array), (256, 512)), cut(Source(array), ((0, 9), (1, 3)))):
        assert isinstance(made, Source) and np.shares_memory(made.array(), array)
    turned = reshape(permute(Source(array), (1, 0)), (512, 256))  # no view is that
    assert not isinstance(turned, Source) and np.array_equal(turned.array(), array.T.reshape(512, 256))


def test_f16_keeps_finite_numbers_finite() -> None:
    numbers = np.array([1e6, -1e6, np.inf, -np.inf, np.nan, 1e-9], np.float32)
    expected = np.array([65504, -65504, np.inf, -np.inf, np.nan, 0], np.float16)
    assert np.array_equal(cast(Source(numbers), F16).array(), expected, equal_nan=True)
    assert np.array_equal(converted(numbers.astype(np.float64), F16), expected, equal_nan=True)
    wide = cast(Source(numbers), BF16).array()
    assert np.array_equal(wide, numbers.astype(ml_dtypes.bfloat16), equal_nan=True)


@pytest.mark.parametrize("axis", [0, 1])
def test_factors_of_blocks(axis: int) -> None:
    """One factor and zero point for each 4 codes along an axis; the last block is not whole."""
    codes = np.arange(-60, 60, dtype=np.int8).reshape(12, 10)
    count = -(-codes.shape[axis] // 4)
    shape = (count, 10) if axis == 0 else (12, count)
    factors, zeros = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape), np.full(shape, 3, np.int8)
    recipe = scale(Source(codes), Source(factors), F32, Source(zeros), 4)
    spread = factors.repeat(4, axis)[:12, :10]
    expected = (codes.astype(np.float32) - 3) * spread
    assert np.array_equal(read_in_blocks(recipe, 7), expected)
    with pytest.raises(ValueError, match="do not fit"):
        scale(Source(codes), Source(factors), F32, block=3)


def test_equal_recipes() -> None:
    array = np.arange(1 << 16, dtype=np.float32).reshape(256, 256)
    assert array.nbytes > SMALL
    make: list[Callable[[np.ndarray], Recipe]] = [
        Source,
        lambda a: permute(Source(a), (1, 0)),
        lambda a: cast(Source(a), F16),
        lambda a: cast(Source(a), BF16),
        lambda a: stack([cast(Source(a), F16), cast(Source(a), F16)]),
        lambda a: pack(cast(Source(a), F16), FRACTAL_NZ(16)),
        lambda a: scale(Source(a), Source(np.ones((256, 1), np.float32)), F32),
        lambda a: scale(Source(a), Source(np.ones((1, 256), np.float32)), F32),
    ]
    first, second = [m(array) for m in make], [m(array[:]) for m in make]
    for i, one in enumerate(first):
        assert [one == other for other in second] == [i == j for j in range(len(make))]
        assert hash(one) == hash(second[i]) and one.mark == second[i].mark
    assert Source(array) != Source(array.copy())  # equal bytes elsewhere: not looked at
    assert Source(np.int8([1, 2])) == Source(np.int8([1, 2])) != Source(np.uint8([1, 2]))
    assert Source(np.int8([1, 2])).dtype == I8


def test_a_path_leads_to_scaled_and_joined_constants() -> None:
    """What a chip's instance makes of codes that the package holds once."""
    rng = np.random.default_rng(0)
    codes = [Source(rng.integers(0, 16, (8, 4)).astype(np.uint8)) for _ in range(2)]
    factors = [Source(rng.random((2, 4)).astype(np.float32)) for _ in range(2)]
    zeros = [Source(np.full((2, 4), 8, np.uint8)), Source(rng.integers(0, 9, (2, 4)).astype(np.uint8))]
    wide = [scale(permute(c, (0, 1)), f, F32, z, 4) for c, f, z in zip(codes, factors, zeros, strict=True)]
    made = cast(stack(wide), F16)
    known = {**{c: f"c{i}" for i, c in enumerate((*codes, *factors))}, zeros[1]: "z"}
    path = path_from(made, known)
    assert path is not None
    by_name = {name: recipe for recipe, name in known.items()}
    name, steps = json.loads(json.dumps(path))
    again = along(by_name[name], steps, by_name.__getitem__)
    np.testing.assert_array_equal(again.array(), made.array())
    (_, shaped), (_, scaled) = next(s for s in steps if s[0] == "reshape"), next(s for s in steps if s[0] == "scale")
    assert shaped and scaled
    nested = [["scale", ["f32", [4, 1], ["c2", [["scale", scaled]]], None]]]
    for wrong in (nested, [["scale", ["f32", [3, 1], ["c2", []], None]]], [["join", [2, [["c1", []]]]]],
                  [["join", [0, [["c1", [["join", [0, []]]]]]]]], [["join", [0, [["c1", []]]]]] * 2,
                  [["join", [0, [["c1", []]] * 64]]]):  # fmt: skip
        with pytest.raises(ValueError):
            along(by_name["c0"], wrong, by_name.__getitem__)


def test_a_mark_tells_constants_apart_and_reads_little() -> None:
    array = np.arange(1 << 20, dtype=np.float32).reshape(512, 2048)
    marks = {cast(Source(array), d).mark for d in (F16, BF16)} | {Source(array).mark, Source(array.T).mark}
    changed = array.copy()
    changed[-1, -1] += 1
    assert len(marks | {Source(changed).mark}) == 5 and Source(array.copy()).mark in marks
    assert sum(part.size for part in samples(Source(array))) <= 1 << 14
    assert Source(array[:, :1]).mark != Source(changed[:, 1:2]).mark  # rows of one element
