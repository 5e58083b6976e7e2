"""Cook-Toom schemes: exact in fractions, as a step of a format, as a recipe, and in the table of constants."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from acl_runtime.stored_constants import CANONICAL, KernelForm, lay_out
from tensor_types import recipes
from tensor_types.cook_toom import MOST_POINTS, cook_toom
from tensor_types.formats import Format, Permute, Split, Transformed, parse_format
from tensor_types.recipes import Source

SIZES = [(m, n - m + 1) for n in range(2, MOST_POINTS + 1, 2) for m in range(1, n + 1)]


@pytest.mark.parametrize(("outputs", "taps"), [(1, 1), *SIZES])
def test_a_scheme_is_the_correlation(outputs: int, taps: int) -> None:
    scheme = cook_toom(outputs, taps)
    x = [Fraction(3 * i * i - 7 * i + 2, 5) for i in range(outputs + taps - 1)]
    w = [Fraction(i * i - 3 * i + 1, 3) for i in range(taps)]

    def times(matrix: tuple[tuple[Fraction, ...], ...], vector: list[Fraction]) -> list[Fraction]:
        return [sum((a * b for a, b in zip(row, vector, strict=True)), Fraction(0)) for row in matrix]

    products = [a * b for a, b in zip(times(scheme.weights, w), times(scheme.inputs, x), strict=True)]
    expected = [sum(x[i + k] * w[k] for k in range(taps)) for i in range(outputs)]
    assert times(scheme.sums, products) == expected


@pytest.mark.parametrize(("outputs", "taps"), [(2, 2), (0, 3), (4, 0), (8, 3)])
def test_other_sizes_have_none(outputs: int, taps: int) -> None:
    with pytest.raises(ValueError, match="points"):
        cook_toom(outputs, taps)


FORM = Format((Transformed(0, 4), Split(3, 8), Permute((3, 0, 1, 2, 4)), Transformed(2, 2)))


def test_as_a_step_of_a_format() -> None:
    rng = np.random.default_rng(0)
    w = rng.normal(size=(3, 3, 5, 12)).astype(np.float32)
    packed = FORM.to_physical(w)
    assert packed.shape == FORM.physical_shape(w.shape) == (2, 6, 4, 5, 8)
    g = [np.array([[float(c) for c in row] for row in cook_toom(m, 3).weights]) for m in (4, 2)]
    points = np.einsum("ap,bq,pqcm->abcm", g[0], g[1], w.astype(np.float64))
    np.testing.assert_allclose(packed[0], points[..., :8], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(packed[1, ..., :4], points[..., 8:], rtol=1e-5, atol=1e-6)
    assert parse_format(str(FORM)) == FORM
    assert not FORM.is_invertible
    with pytest.raises(ValueError, match="no way back"):
        FORM.to_logical(packed, w.shape)
    recipe = recipes.pack(Source(w), FORM)
    np.testing.assert_array_equal(recipe.array(), packed)
    box = ((1, 2), (2, 5), (0, 4), (1, 3), (0, 8))
    np.testing.assert_array_equal(recipe.read(box), packed[tuple(slice(a, b) for a, b in box)])


def test_the_package_keeps_the_taps() -> None:
    """However small it is: the canonical tensor could not be read back."""
    constant = Source(np.ones((4, 4, 1), np.float32))
    form = Format((Transformed(2, 2),))
    row = {"value": 0, "permute": None, "reshape": None, "packing": str(form)}
    table = lay_out({"w": constant}, {"segments": [{"values": [{"name": "w"}], "constants": [row]}]})
    assert table["w"].form == CANONICAL
    assert KernelForm(packing=form).of(constant).shape == (4, 4, 2)
