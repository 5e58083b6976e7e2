"""How a program should block a matmul for the host: panel width of packed b, rows of a block, order of the two loops.

Measured with one thread on a core with 48 KB L1, 1 MB L2 and AVX-512 (260 GFLOP/s peak in f32), b packed in panels
[n/NR][k][NR] and activations channels-last, in GFLOP/s:

| problem                                | panel 64 | 48  | 32  | onnxruntime |
|----------------------------------------|----------|-----|-----|-------------|
| GEMM 512 x 512 x 512 (m, n, k)         | 257      | 257 | 253 | 240         |
| GEMM 1024 x 1024 x 1024                | 257      | 256 | 251 | 240         |
| GEMM 128 x 768 x 768                   | 255      | 254 | 252 | 230         |
| GEMM 128 x 3072 x 768                  | 249      | 253 | 249 | 212         |
| GEMM 512 x 512 x 8192, block of 384    | 182      | 231 | 237 | 219         |
| GEMV 1 x 4096 x 4096 (GB/s)            | 63       | -   | 60  | 47          |
| convolution 3x3 64 at 56x56            | 253      | 246 | 253 | 249         |
| convolution 3x3 128 at 28x28           | 250      | 250 | 251 | 244         |
| convolution 3x3 256 at 14x14           | 240      | 239 | 242 | 233         |
| convolution 3x3 512 at 7x7             | 201      | -   | 218 | 180         |
| convolution 7x7 stride 2, 3 at 224x224 | 258      | -   | 258 | 209         |
| convolution 1x1 256 to 64 at 56x56     | 261      | -   | 256 | 219         |
| convolution 1x1 1024 to 256 at 14x14   | 247      | 245 | 250 | 226         |
| convolution 1x1 512 to 2048 at 7x7     | 224      | 226 | 237 | 197         |

Channels-last equals channels blocked by 16 within 1 % on 3x3 kernels and is 0 to 15 % faster on 1x1 kernels, where it
is a plain GEMM over all pixels. Convolution figures include the padded copy of the input rows.

What the table says: a panel larger than half of L2 is read from L3 for every register tile and loses a third, so long
reductions take narrow panels; few rows of m read b from memory and take narrow panels as well; otherwise wide panels
are 1 to 3 % better. The loop over panels is the outer one while a fits a few L2 caches; above, blocks of about 384 rows
of a go outside.
"""

from __future__ import annotations

from dataclasses import dataclass

_WIDE, _NARROW = 4, 2
_FEW_ROWS = 64
_BLOCK_ROWS = 384
_ROW_STEP = 12
"""Blocks of a multiple of this many rows are cut into full register tiles of every shape."""


@dataclass(frozen=True)
class Blocking:
    """`panel`: columns NR of a packed panel of b. `block_rows`: rows of m (for convolution: rows of the output image).

    `panels_outside` is True when the loop over panels encloses the loop over row blocks.
    """

    panel: int
    block_rows: int
    panels_outside: bool


def recommend_tiling(
    m: int, k: int, n: int, kind: str = "gemm", *, vector_bytes: int, registers: int, l2_bytes: int = 1 << 20,
    element_bytes: int = 4, width: int = 1, row_bytes: int = 0,
) -> Blocking:  # fmt: skip
    """Blocks for dst[m, n] = a[m, k] * b[k, n].

    `kind` is 'gemm' (also GEMV, 1x1 convolution with unit stride and attention products) or 'conv'. Of a convolution, m
    counts output pixels, k kernel positions times input channels, `width` is the width of the output image and
    `row_bytes` the bytes of padded input that one output row adds to a block. For a dynamic m pass its usual value.
    """
    lanes = vector_bytes // element_bytes
    vectors = _NARROW
    wide_fits = k * _WIDE * vector_bytes <= l2_bytes // 2
    if registers >= 32 and m > _FEW_ROWS and wide_fits and n > _NARROW * lanes:
        vectors = _WIDE
    panel = vectors * lanes
    if kind == "conv":
        rows = -(-m // width)
        most = max(1, l2_bytes // 4 // max(1, row_bytes))
        parts = -(-rows // most)
        return Blocking(panel, -(-rows // parts), panels_outside=False)
    if m * k * element_bytes <= 4 * l2_bytes:
        return Blocking(panel, max(1, m), panels_outside=True)
    parts = -(-m // _BLOCK_ROWS)
    block = -(-m // parts)
    return Blocking(panel, -(-block // _ROW_STEP) * _ROW_STEP, panels_outside=False)
