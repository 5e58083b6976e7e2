"""An input that takes images as a camera or a decoder gives them, in place of the tensor that the model wants.

1. The input becomes u8: [n, h, w, c] for interleaved formats, [n, 3*h//2, w] for YUV420SP (all Y, then pairs of U, V).
2. Channels are named and swapped, the image is cropped, colours are converted and rounded to 0 .. 255, then normalised
   as (x - mean - min) * reciprocal of the variance, then padded, in this order.
3. All of it but the padding is one Fused node of the family piecewise: cuts, joins and arithmetic between them, one
   pass over memory. The padding is a Pad behind it: in one kernel every edge would multiply the pieces.
4. The result has the model's dtype and layout.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graph_opt.interface.dtypes import replace_input
from graph_opt.interface.image_preparation import IMAGE_FORMATS, ImagePreparation
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from tensor_types.dims import Dim
from tensor_types.dtypes import F32, U8


def image_shape(spec: ImagePreparation, batch: Dim, height: Dim, width: Dim) -> tuple[Dim, ...]:
    """The shape of the u8 input."""
    if spec.format == "YUV420SP_U8":
        return (batch, height * 3 // 2, width)
    return (batch, height, width, IMAGE_FORMATS[spec.format])


def prepare_image(graph: Graph, value: Value, spec: ImagePreparation, layout: str) -> Value:
    """Lets the graph take the image for the input `value`, a float tensor in `layout` (NCHW or NHWC); gives the input.

    Sizes must fit: the image, cropped and padded, has the model's height and width. KeyError for an unknown format.
    """
    assert value.shape is not None
    batch = value.shape[0]
    height, width, channels = (value.shape[layout.index(axis)] for axis in "HWC")
    top, bottom, left, right = spec.padding
    source = spec.source or (height - top - bottom, width - left - right)
    dtype = value.dtype
    given = replace_input(graph, value, U8, image_shape(spec, batch, *source))
    assert isinstance(channels, int)
    builder = _Builder(graph, given)
    planes = builder.planes(spec, *source)[: channels if spec.matrix is None else None]
    if spec.crop is not None:
        y, x, rows, columns = spec.crop
        planes = [builder.cut(builder.cut(p, 1, y, y + rows), 2, x, x + columns) for p in planes]
    floats = [builder.op("Cast", p, to=F32.onnx) for p in planes]
    if spec.matrix is not None:
        floats = builder.convert(floats, spec)
    result = builder.join([builder.normalise(p, spec, i) for i, p in enumerate(floats[:channels])], 3)
    if layout == "NCHW":
        result = builder.op("Transpose", result, perm=[0, 3, 1, 2])
    if dtype != F32:
        result = builder.op("Cast", result, to=dtype.onnx)
    inside = list(builder.nodes)
    if any(spec.padding):
        axes = [layout.index(axis) for axis in "HW"]
        ends = builder.ints(*(n for pair in ((top, left), (bottom, right)) for n in pair))
        fill = builder.rewriter.constant(np.array(spec.padding_value, dtype.numpy), f"{given.name}/aipp")
        result = builder.op("Pad", result, ends, fill, builder.ints(*axes))
    rewriter = Rewriter(graph)
    rewriter.replace(value, result, "same")
    graph.values.pop(value.name)
    rewriter.fuse(inside, "piecewise", name=f"{given.name}/aipp")
    return given


class _Builder:
    """Nodes in front of all others, which become one."""

    def __init__(self, graph: Graph, given: Value) -> None:
        self.rewriter, self.given = Rewriter(graph), given
        self.first = graph.nodes[0] if graph.nodes else None
        self.nodes: list[Node] = []
        self.constants: dict[tuple[type, tuple[float, ...]], Value] = {}

    def op(self, op: str, *inputs: Value, **attrs: object) -> Value:
        name = f"{self.given.name}/aipp"
        node = self.rewriter.insert(op, inputs, attrs, before=self.first, guards=(), outputs=[name], name=name)  # type: ignore[arg-type]
        self.nodes.append(node)
        return node.output

    def ints(self, *numbers: int) -> Value:
        return self._constant(np.array(numbers, np.int64))

    def number(self, number: float) -> Value:
        return self._constant(np.array(number, np.float32))

    def _constant(self, data: np.ndarray) -> Value:
        key = (data.dtype.type, tuple(data.reshape(-1).tolist()))
        if key not in self.constants:
            self.constants[key] = self.rewriter.constant(data, f"{self.given.name}/aipp")
        return self.constants[key]

    def cut(self, value: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
        return self.op("Slice", value, self.ints(start), self.ints(end), self.ints(axis), self.ints(step))

    def join(self, values: Sequence[Value], axis: int) -> Value:
        return values[0] if len(values) == 1 else self.op("Concat", *values, axis=axis)

    def planes(self, spec: ImagePreparation, height: Dim, width: Dim) -> list[Value]:
        """The channels [n, h, w, 1], in the order in which they are used."""
        if spec.format == "YUV420SP_U8":
            assert isinstance(height, int) and isinstance(width, int)
            luma = self.op("Unsqueeze", self.cut(self.given, 1, 0, height), self.ints(3))
            chroma = self.cut(self.given, 1, height, height * 3 // 2)
            u, v = (self.twice(self.cut(chroma, 2, i, width, 2), height, width) for i in (0, 1))
            return [luma, v, u] if spec.swap_rb else [luma, u, v]
        count = IMAGE_FORMATS[spec.format]
        order = list(range(count))
        if spec.swap_rb and count > 1:
            order[-3], order[-1] = order[-1], order[-3]
        if spec.swap_ax and count == 4:
            order = order[1:] + order[:1]
        return [self.cut(self.given, 3, i, i + 1) for i in order]

    def twice(self, plane: Value, height: int, width: int) -> Value:
        """[n, h/2, w/2] as [n, h, w, 1]: every number stands for a square of four."""
        for size, other in ((width, height // 2), (height, width)):
            pair = self.op("Unsqueeze", plane, self.ints(3))
            merged = self.op("Reshape", self.op("Concat", pair, pair, axis=3), self.ints(0, other, size))
            plane = self.op("Transpose", merged, perm=[0, 2, 1])
        return self.op("Unsqueeze", plane, self.ints(3))

    def convert(self, planes: Sequence[Value], spec: ImagePreparation) -> list[Value]:
        """Colours by the matrix, rounded to whole numbers of 0 .. 255."""
        assert spec.matrix is not None
        centred = [self.op("Sub", p, self.number(b)) if b else p for p, b in zip(planes, spec.input_bias, strict=False)]
        low, high = self.number(0), self.number(255)
        made = []
        for row, bias in zip(spec.matrix, spec.output_bias, strict=True):
            terms = [self.op("Mul", p, self.number(f)) for f, p in zip(row, centred, strict=False) if f]
            total = terms[0] if terms else self.op("Mul", centred[0], self.number(0))
            for term in terms[1:]:
                total = self.op("Add", total, term)
            # Whole numbers below 2^24 until here: the sum is exact.
            scaled = self.op("Mul", self.op("Add", total, self.number(128 + 256 * bias)), self.number(1 / 256))
            scaled = self.op("Floor", scaled)
            made.append(self.op("Min", self.op("Max", scaled, low), high))
        return made

    def normalise(self, plane: Value, spec: ImagePreparation, channel: int) -> Value:
        for offset in (spec.mean[channel], spec.least[channel]):
            if offset:
                plane = self.op("Sub", plane, self.number(offset))
        return self.op("Mul", plane, self.number(spec.factor[channel]))
