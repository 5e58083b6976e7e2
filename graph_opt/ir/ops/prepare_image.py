"""PrepareImage, which only the compiler makes: an image as a camera or decoder gives it becomes a model's tensor."""

from __future__ import annotations

from graph_opt.ir.core import Requirement
from graph_opt.ir.ops.registry import INT, INTS, STRING, Inference, declare
from tensor_types.dims import Dim
from tensor_types.dtypes import F16, F32, U8
from tensor_types.images import COUNT, PLANES, YUV, luma_rows


def _prepare(ctx: Inference) -> None:
    """Without `parameters` the attributes say everything: the image is [n, h, w, c], or [n, 3*h//2, w] for YUV420SP;
    `planes` are the channels in the order of use; `crop` is top, left, height, width; `matrix`, `input_bias` and
    `output_bias` convert colours, rounded to 0 .. 255; each channel becomes (x - mean - least) * factor; `padding` is
    top, bottom, left, right, filled with `padding_value`.

    With `parameters` [n, 64] of f32 (`tensor_types.images`) the image is a row of bytes that holds n images,
    and `size` the height and width of the result. The result has `channels` in `order` (NCHW, NHWC) and dtype `to`."""
    image, channels = ctx.shape(0), int(ctx.attr("channels"))
    result = next((t for t in (F32, F16) if t.onnx == ctx.attr("to")), None)
    if result is None or ctx.dtype(0) != U8 or ctx.attr("order") not in ("NCHW", "NHWC"):
        raise ctx.error("makes a tensor of f32 or f16, in NCHW or NHWC, of an image of u8")
    if not 1 <= channels <= PLANES:
        raise ctx.error(f"{channels} channels")
    sizes: tuple[Dim, Dim]
    if ctx.has(1):
        rows = ctx.shape(1)
        if image is None or len(image) != 1 or rows is None or ctx.dtype(1) != F32 or len(ctx.attr("size") or ()) != 2:
            raise ctx.error("takes a row of bytes with parameters of f32, and `size`")
        batch: Dim = rows[0] if rows else 0
        ctx.expect(1, (batch, COUNT))
        sizes = tuple(ctx.attr("size"))
    else:
        is_yuv = ctx.attr("format") == YUV
        if image is None or len(image) != (3 if is_yuv else 4):
            raise ctx.error(f"takes no image of {image} in {ctx.attr('format')}")
        batch = image[0]
        crop, (top, bottom, left, right) = ctx.attr("crop"), ctx.attr("padding")
        height, width = luma_rows(image[1]) if is_yuv else image[1], image[2]
        for size in (height, width):
            if is_yuv and not isinstance(size, int):  # one number of U and V for each square of four pixels
                ctx.graph.requirements.setdefault(Requirement(size, 2, "multiple"), ctx.node.name)
        inner = crop[2:] if crop else (height, width)
        sizes = (inner[0] + top + bottom, inner[1] + left + right)
    shape = (batch, channels, *sizes) if ctx.attr("order") == "NCHW" else (batch, *sizes, channels)
    ctx.set(0, result, shape)


declare(
    "PrepareImage", "image parameters?", "movement", _prepare,
    {"format": "RGB888_U8", "channels": INT, "order": STRING, "to": INT, "planes": (0, 1, 2), "crop": INTS,
     "matrix": INTS, "input_bias": (0, 0, 0), "output_bias": (0, 0, 0), "mean": (0.0,) * 4, "least": (0.0,) * 4,
     "factor": (1.0,) * 4, "padding": (0, 0, 0, 0), "padding_value": 0.0, "size": INTS},
)  # fmt: skip
