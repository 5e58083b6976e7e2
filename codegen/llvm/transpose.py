"""Transposes of square blocks in vector registers."""

from __future__ import annotations

from codegen.llvm.vector_code import Vec, VectorCode


def transposed(code: VectorCode, rows: list[Vec]) -> list[Vec]:
    """The columns of a square block of n vectors with n lanes, n a power of two; log2(n) rounds of two-input shuffles.

    Each round exchanges the off-diagonal quarters of 2x2 arrangements of sub-blocks, smallest sub-blocks first.
    """
    n = len(rows)
    size = 1
    while size < n:
        result = list(rows)
        low = [lane if not lane & size else n + lane - size for lane in range(n)]
        high = [lane + size if not lane & size else n + lane for lane in range(n)]
        for i in range(n):
            if not i & size:
                result[i] = code.shuffle(rows[i], rows[i + size], low)
                result[i + size] = code.shuffle(rows[i], rows[i + size], high)
        rows = result
        size *= 2
    return rows
