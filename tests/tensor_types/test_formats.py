"""Formats are invertible maps; FRACTAL_NZ, NC1HWC0 and packed panels place elements as defined."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_types.dims import dim, evaluate
from tensor_types.dtypes import DTYPES
from tensor_types.formats import (
    FRACTAL_NZ,
    NC1HWC0,
    PLAIN,
    Format,
    Pad,
    Permute,
    Split,
    channels_last,
    code_panels,
    panels,
    parse_format,
)


@st.composite
def formats(draw: st.DrawFn) -> tuple[Format, tuple[int, ...]]:
    shape = tuple(draw(st.lists(st.integers(0, 5), min_size=1, max_size=4)))
    rank, steps = len(shape), []
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["perm", "split", "pad"]))
        if kind == "perm":
            steps.append(Permute(tuple(draw(st.permutations(range(rank))))))
        elif kind == "split":
            steps.append(Split(draw(st.integers(0, rank - 1)), draw(st.integers(1, 4))))
            rank += 1
        else:
            steps.append(Pad(draw(st.integers(0, rank - 1)), draw(st.integers(0, 2)), draw(st.integers(0, 2))))
    return Format(tuple(steps)), shape


@given(formats())
@settings(max_examples=300, deadline=None)
def test_physical_order_round_trips(case: tuple[Format, tuple[int, ...]]) -> None:
    layout, shape = case
    array = np.arange(1, int(np.prod(shape)) + 1, dtype=np.int32).reshape(shape)
    physical = layout.to_physical(array)
    assert physical.shape == layout.physical_shape(shape)
    assert physical.flags.c_contiguous
    # Every element once, zeros elsewhere.
    np.testing.assert_array_equal(np.sort(physical[physical != 0]), array.ravel())
    np.testing.assert_array_equal(layout.to_logical(physical, shape), array)


@given(formats())
@settings(max_examples=200, deadline=None)
def test_text_and_symbolic_shapes(case: tuple[Format, tuple[int, ...]]) -> None:
    layout, shape = case
    assert parse_format(str(layout)) == layout
    symbolic = layout.physical_shape([dim(f"d{i}") for i in range(len(shape))])
    env = {f"d{i}": n for i, n in enumerate(shape)}
    assert tuple(evaluate(d, env) for d in symbolic) == layout.physical_shape(shape)


def test_fractal_nz_places_elements() -> None:
    a = np.arange(1, 36 * 21 + 1).reshape(36, 21)
    z = FRACTAL_NZ(16).to_physical(a)
    assert z.shape == (2, 3, 16, 16)
    for i, j in [(0, 0), (15, 15), (16, 3), (35, 20), (7, 16)]:
        assert z[j // 16, i // 16, i % 16, j % 16] == a[i, j]
    assert z[1, 0, 0, 5] == 0


def test_nc1hwc0_places_channels() -> None:
    a = np.arange(1, 2 * 20 * 3 * 4 + 1).reshape(2, 20, 3, 4)
    z = NC1HWC0(16).to_physical(a)
    assert z.shape == (2, 2, 3, 4, 16)
    assert z[1, 1, 2, 3, 3] == a[1, 19, 2, 3]


def test_channels_last_and_panels() -> None:
    a = np.arange(24).reshape(1, 2, 3, 4)
    np.testing.assert_array_equal(channels_last(4).to_physical(a), a.transpose(0, 2, 3, 1))
    assert channels_last(4).permutation == (0, 2, 3, 1)
    b = np.arange(1, 5 * 10 + 1).reshape(5, 10)
    p = panels(8).to_physical(b)
    assert p.shape == (2, 5, 8)
    np.testing.assert_array_equal(p[1, :, :2], b[:, 8:])
    assert not p[1, :, 2:].any()


def test_a_wrong_physical_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="does not belong"):
        FRACTAL_NZ(16).to_logical(np.zeros((2, 3, 16, 8)), (36, 21))


def test_a_scalar_stays_one() -> None:
    scalar = np.array(2.5, np.float32)
    assert PLAIN.to_physical(scalar).shape == ()
    assert PLAIN.to_logical(PLAIN.to_physical(scalar), ()) == scalar


def test_no_steps_is_plain() -> None:
    assert parse_format("") == parse_format("plain") == PLAIN


@pytest.mark.parametrize(
    "text", ["perm(0,2)", "perm(0,0)", "split(1)", "split(0,0)", "pad(0,1)", "nchw", "perm()", "perm(,)"]
)
def test_malformed_text_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_format(text)


@pytest.mark.parametrize("dtype", ["u4", "i4", "u2", "i2", "u8"])
def test_words_of_codes(dtype: str) -> None:
    """A word holds consecutive k of a column, code j at bit 8*(j % 4) + bits*(j // 4)."""
    bits = min(DTYPES[dtype].bits, 4)
    least = -(1 << (bits - 1)) if dtype[0] == "i" else 0
    codes = np.random.default_rng(0).integers(least, least + (1 << bits), (64, 20)).astype(DTYPES[dtype].numpy)
    layout, each = code_panels(16, bits), 32 // bits
    assert parse_format(str(layout)) == layout
    physical = layout.to_physical(codes)
    assert physical.shape == layout.physical_shape(codes.shape)
    words = physical.view(np.uint8).reshape(2, 64 // each, 16, 4).copy().view(np.uint32)[..., 0]
    for k, n in ((0, 0), (5, 3), (63, 19), (18, 17)):
        word, j = words[n // 16, k // each, n % 16], k % each
        code = int(word) >> (8 * (j % 4) + bits * (j // 4)) & ((1 << bits) - 1)
        assert code == int(codes[k, n]) & ((1 << bits) - 1)
    assert not words[1, :, 4:].any()
    np.testing.assert_array_equal(layout.to_logical(physical, codes.shape), codes)


def test_bytes_of_codes_are_whole() -> None:
    with pytest.raises(ValueError, match="is not one of a tensor"):
        parse_format("bits(4)").physical_shape((3, 5))
    for text in ("bits(3)", "bits(4,4)"):
        with pytest.raises(ValueError, match="not a format step"):
            parse_format(text)
