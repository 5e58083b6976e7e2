"""Recommended matmul tilings keep the bounds that they state."""

from __future__ import annotations

import pytest

from codegen.targets.matmul_tiling import recommend_tiling

AVX512 = {"vector_bytes": 64, "registers": 32}


@pytest.mark.parametrize("m", [1, 7, 49, 196, 512, 5000])
@pytest.mark.parametrize("k", [1, 64, 576, 4608, 20000])
@pytest.mark.parametrize(("vector_bytes", "registers"), [(64, 32), (32, 16), (16, 16), (16, 32)])
def test_wide_panels_only_where_they_fit_half_of_l2(m: int, k: int, vector_bytes: int, registers: int) -> None:
    tiling = recommend_tiling(m, k, 1000, vector_bytes=vector_bytes, registers=registers)
    assert tiling.panel * 4 in (2 * vector_bytes, 4 * vector_bytes)
    if tiling.panel * 4 == 4 * vector_bytes:
        assert k * tiling.panel * 4 <= 1 << 19
        assert registers == 32 and m > 64
    assert 1 <= tiling.block_rows


def test_known_cases() -> None:
    assert recommend_tiling(512, 512, 512, **AVX512).panel == 64
    assert recommend_tiling(1, 4096, 4096, **AVX512).panel == 32
    assert recommend_tiling(512, 8192, 512, **AVX512).panel == 32
    assert recommend_tiling(196, 2304, 256, "conv", width=14, row_bytes=16384, **AVX512).panel == 32
    big = recommend_tiling(2048, 2048, 2048, **AVX512)
    assert not big.panels_outside and big.block_rows <= 384


def test_convolution_blocks_are_image_rows_within_a_quarter_of_l2() -> None:
    row_bytes = 58 * 64 * 4
    tiling = recommend_tiling(56 * 56, 576, 64, "conv", width=56, row_bytes=row_bytes, **AVX512)
    assert tiling.block_rows * row_bytes <= 1 << 18
    assert tiling.block_rows == 14
    assert not tiling.panels_outside
