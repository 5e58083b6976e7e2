"""An input that takes images as a camera or a decoder gives them, in place of the tensor that the model wants.

1. The input becomes u8: [n, h, w, c] for interleaved formats, [n, 3*h//2, w] for YUV420SP (all Y, then pairs of U, V).
2. Channels are named and swapped, the image is cropped, colours are converted and rounded to 0 .. 255, then normalised
   as (x - mean - min) * reciprocal of the variance, then padded, in this order.
3. Where a program gives all this at run time, the input is a row of bytes that holds the images of a batch, and a new
   input behind all others takes the parameters, [n, 64] of f32 (`tensor_types.images`).
4. It is one node PrepareImage, whose result has the model's dtype and layout.
"""

from __future__ import annotations

from typing import Any

from graph_opt.interface.dtypes import replace_input
from graph_opt.interface.image_preparation import ImagePreparation
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from tensor_types.dims import Dim
from tensor_types.dtypes import F16, F32, U8
from tensor_types.images import CHANNELS, COUNT, YUV, plane_order


def image_shape(spec: ImagePreparation, batch: Dim, height: Dim, width: Dim) -> tuple[Dim, ...]:
    """The shape of the u8 input."""
    if spec.format == YUV:
        return (batch, height * 3 // 2, width)
    return (batch, height, width, CHANNELS[spec.format])


def prepare_image(graph: Graph, value: Value, spec: ImagePreparation, layout: str) -> Value:
    """Lets the graph take the image for the input `value`, a float tensor in `layout` (NCHW or NHWC); gives the input.

    Sizes must fit: the image, cropped and padded, has the model's height and width. KeyError for an unknown format.
    """
    assert value.shape is not None
    batch = value.shape[0]
    height, width = (value.shape[layout.index(axis)] for axis in "HW")
    top, bottom, left, right = spec.padding
    source = spec.source or (height - top - bottom, width - left - right)
    given = replace_input(graph, value, U8, image_shape(spec, batch, *source))
    attrs: dict[str, Any] = {
        "format": spec.format, "planes": plane_order(spec.format, spec.swap_rb, spec.swap_ax),
        "input_bias": spec.input_bias, "output_bias": spec.output_bias, "mean": spec.mean, "least": spec.least,
        "factor": spec.factor, "padding": spec.padding, "padding_value": spec.padding_value,
    }  # fmt: skip
    if spec.crop is not None:
        attrs["crop"] = spec.crop
    if spec.matrix is not None:
        attrs["matrix"] = tuple(number for row in spec.matrix for number in row)
    _insert(graph, value, [given], attrs, layout)
    return given


def prepare_at_run_time(graph: Graph, value: Value, max_bytes: int, parameters: str, layout: str) -> Value:
    """Lets the graph take a row of `max_bytes` bytes for the input `value`, and what they mean in a new input of the
    name `parameters`; gives this one. The height and width of `value` must be numbers."""
    assert value.shape is not None
    size = tuple(value.shape[layout.index(axis)] for axis in "HW")
    settings = graph.add_value(parameters, F32, (value.shape[0], COUNT))
    given = replace_input(graph, value, U8, (max_bytes,))
    graph.inputs = [*graph.inputs, settings]
    _insert(graph, value, [given, settings], {"size": size}, layout)
    return settings


def _insert(graph: Graph, value: Value, inputs: list[Value], attrs: dict[str, Any], layout: str) -> None:
    """The node in front of all others, and its result in the place of the input that was."""
    assert value.shape is not None
    rewriter = Rewriter(graph)
    name, dtype = f"{inputs[0].name}/aipp", value.dtype if value.dtype in (F32, F16) else F32
    first = graph.nodes[0] if graph.nodes else None

    def node(op: str, operands: list[Value], attrs: dict[str, Any]) -> Node:
        return rewriter.insert(op, operands, attrs, before=first, guards=(), outputs=[name], name=name)

    channels = value.shape[layout.index("C")]
    made = node("PrepareImage", inputs, {**attrs, "channels": channels, "order": layout, "to": dtype.onnx}).output
    if dtype != value.dtype:
        made = node("Cast", [made], {"to": value.dtype.onnx}).output
    rewriter.replace(value, made, "same")
    graph.values.pop(value.name)
