"""Images as cameras and decoders give them: formats, and how what a program says of them lies in memory.

A format has its planes in the order of their names: Y, U, V; R, G, B; X, R, G, B. YUV420SP_U8 holds all Y, then pairs
of U and V, one for each square of four pixels; the others hold the planes' bytes side by side.

Parameters at run time are a row of f32 for each image. It says where bytes are, so that a kernel knows no format:
element (y, x) of the image's plane p is the byte

    high * 4096 + low + (y >> shift) * row + (x >> shift) * column

for the five numbers of the plane. Sizes and offsets are whole numbers below 2^24, which f32 holds.
"""

from __future__ import annotations

from tensor_types.dims import Dim, dim, names

CHANNELS = {"YUV420SP_U8": 3, "XRGB8888_U8": 4, "RGB888_U8": 3, "YUV400_U8": 1}
"""Planes by format."""
NUMBERS = {"YUV420SP_U8": 1, "XRGB8888_U8": 2, "RGB888_U8": 3, "YUV400_U8": 4}
"""aclAippInputFormat by format."""
YUV = "YUV420SP_U8"


def plane_order(format_: str, swap_rb: bool, swap_ax: bool) -> tuple[int, ...]:
    """The planes in the order of use: R and B, or U and V, exchanged; the first of four behind the others."""
    order = list(range(CHANNELS[format_]))
    if swap_rb and len(order) > 1:
        first = 1 if format_ == YUV else -3
        order[first], order[-1] = order[-1], order[first]
    if swap_ax and len(order) == 4:
        order = order[1:] + order[:1]
    return tuple(order)


def image_bytes(format_: str, height: int, width: int) -> int:
    """Bytes of one image."""
    return height * width * 3 // 2 if format_ == YUV else height * width * CHANNELS[format_]


def luma_rows(rows: Dim) -> Dim:
    """The height of a YUV420SP image whose bytes are so many rows: half as many rows of U and V follow those of Y."""
    for name in names(rows):
        if (height := dim(name)) * 3 // 2 == rows:
            return height
    return rows * 2 // 3


PLANES = 4
FORMAT = 0
"""Number of the image's format; 0 says that nothing was set."""
TOP, LEFT, HEIGHT, WIDTH = 1, 2, 3, 4
"""The part of the image that is used."""
PADDING_TOP, PADDING_LEFT = 5, 6
"""Where it stands in the result; around it are zeros."""
PLANE = 8
"""Of plane p from PLANE + 5 * p on: high, low, row, column, shift."""
HIGH, LOW, ROW, COLUMN, SHIFT = range(5)
CONVERTS, MATRIX, INPUT_BIAS, OUTPUT_BIAS = 28, 29, 38, 41
"""Whether colours are converted: to floor((factors * (x - input bias) + output bias) / 256) within 0 .. 255, with 3 x 3
factors by rows."""
MEAN, LEAST, FACTOR = 44, 48, 52
"""Each channel becomes (x - mean - least) * factor."""
COUNT = 64
"""Numbers of a row; those behind the last are 0."""
