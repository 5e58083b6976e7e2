"""Operators of com.microsoft that onnxruntime's quantizer and optimizers write into models."""

from __future__ import annotations

from graph_opt.ir.ops.broadcast import broadcast
from graph_opt.ir.ops.cube import conv_like, matmul_shape
from graph_opt.ir.ops.pooling import WINDOW, global_pool, pool
from graph_opt.ir.ops.registry import (
    FLOAT,
    FLOATS,
    INT,
    STRING,
    STRINGS,
    Inference,
    Rule,
    Shape,
    along_axis,
    declare,
    same,
)  # fmt: skip
from tensor_types.dims import Dim
from tensor_types.dtypes import F32

DOMAIN = "com.microsoft::"
EPSILON = 1e-12


def _turned(shape: Shape | None, batch: bool, matrix: bool) -> Shape | None:
    """FusedMatMul's operand: with `batch` the last batch axis and the row axis trade places first, then `matrix`."""
    if shape is None or len(shape) < 2:
        return shape
    if batch:
        shape = (*shape[1:-1], shape[0], shape[-1])
    return (*shape[:-2], shape[-1], shape[-2]) if matrix else shape


def _fused_matmul(ctx: Inference) -> None:
    a = _turned(ctx.shape(0), bool(ctx.attr("transBatchA")), bool(ctx.attr("transA")))
    b = _turned(ctx.shape(1), bool(ctx.attr("transBatchB")), bool(ctx.attr("transB")))
    ctx.set(0, ctx.dtype(), matmul_shape(ctx, a, b))


def _quantized_binary(ctx: Inference) -> None:
    ctx.set(0, ctx.dtype(), broadcast(ctx, ctx.shape(0), ctx.shape(3)))


def _quantized_concat(ctx: Inference) -> None:
    shapes = [ctx.shape(i) for i in range(2, len(ctx.node.inputs), 3)]
    known = [s for s in shapes if s is not None]
    if len(known) < len(shapes):
        return ctx.set(0, ctx.dtype(1), None)
    axis = ctx.axis(len(known[0]))
    total: Dim = sum((s[axis] for s in known), start=0)
    ctx.set(0, ctx.dtype(1), (*known[0][:axis], total, *known[0][axis + 1 :]))


def _skip_norm(ctx: Inference) -> None:
    shape = ctx.shape()
    moments = None if shape is None else (*shape[:-1], 1)
    ctx.set(0, ctx.dtype(), shape)
    ctx.set(1, F32, moments)
    ctx.set(2, F32, moments)
    ctx.set(3, ctx.dtype(), shape)


def _lstm(ctx: Inference) -> None:
    shape, hidden = ctx.shape(), int(ctx.attr("hidden_size"))
    directions = 2 if ctx.attr("direction") == "bidirectional" else 1
    length, batch = (ctx.fresh(axis=0), ctx.fresh(axis=2)) if shape is None else shape[:2]
    ctx.set(0, F32, (length, directions, batch, hidden))
    ctx.set(1, F32, (directions, batch, hidden))
    ctx.set(2, F32, (directions, batch, hidden))


def _crop_and_resize(ctx: Inference) -> None:
    images, boxes, size = ctx.shape(), ctx.shape(1), ctx.content(3)
    count = ctx.fresh(axis=0) if boxes is None else boxes[0]
    channels = ctx.fresh(axis=1) if images is None else images[1]
    ctx.set(0, ctx.dtype(), (count, channels, *(size or (ctx.fresh(axis=2), ctx.fresh(axis=3)))))


def _contrib(names: str, inputs: str, kind: str, rule: Rule, attrs: dict[str, object] | None = None) -> None:
    declare(" ".join(DOMAIN + name for name in names.split()), inputs, kind, rule, attrs)


_contrib(
    "FusedMatMul", "A B", "cube", _fused_matmul,
    {"alpha": 1.0, "transA": 0, "transB": 0, "transBatchA": 0, "transBatchB": 0},
)  # fmt: skip
_contrib(
    "FusedConv", "X W B? Z?", "cube", conv_like(0, 1, 0, 2),
    {**WINDOW, "group": 1, "activation": STRING, "activation_params": FLOATS},
)  # fmt: skip
_contrib("Gelu", "X", "elementwise", same)
_contrib("QuickGelu", "X", "elementwise", same, {"alpha": 1.702})
_contrib("BiasGelu", "A B", "elementwise", same)
_contrib("FastGelu", "X bias?", "elementwise", same)
_binary = "A A_scale A_zero_point? B B_scale B_zero_point? C_scale C_zero_point?"
_contrib("QLinearAdd QLinearMul", _binary, "elementwise", _quantized_binary)
_unary = "X X_scale X_zero_point? Y_scale Y_zero_point?"
_contrib("QLinearSigmoid", _unary, "elementwise", same)
_contrib("QLinearLeakyRelu", _unary, "elementwise", same, {"alpha": 0.01})
_contrib(
    "QLinearSoftmax", "X X_scale x_zero_point? y_scale y_zero_point", "reduction", along_axis,
    {"axis": -1, "opset": INT},
)  # fmt: skip
_contrib("QLinearConcat", "Y_scale Y_zero_point inputs*", "movement", _quantized_concat, {"axis": INT})
_contrib(
    "QLinearGlobalAveragePool", "X x_scale x_zero_point y_scale y_zero_point", "reduction", global_pool,
    {"channels_last": 0},
)  # fmt: skip
_contrib(
    "QLinearAveragePool", "X x_scale x_zero_point? y_scale y_zero_point?", "reduction", pool,
    {**{k: v for k, v in WINDOW.items() if k != "dilations"}, "ceil_mode": 0, "channels_last": 0,
     "count_include_pad": 0},
)  # fmt: skip
_contrib("SkipLayerNormalization", "input skip gamma beta? bias?", "reduction", _skip_norm, {"epsilon": EPSILON})
_contrib("SkipSimplifiedLayerNormalization", "input skip gamma bias?", "reduction", _skip_norm, {"epsilon": EPSILON})
_contrib(
    "DynamicQuantizeLSTM",
    "X W R B? sequence_lens? initial_h? initial_c? P? W_scale W_zero_point R_scale R_zero_point", "cube", _lstm,
    {"activation_alpha": FLOATS, "activation_beta": FLOATS, "activations": STRINGS, "clip": FLOAT,
     "direction": "forward", "hidden_size": INT, "input_forget": 0},
)  # fmt: skip
_contrib(
    "CropAndResize", "X rois batch_indices crop_size", "movement", _crop_and_resize,
    {"mode": "bilinear", "extrapolation_value": 0.0},
)  # fmt: skip
_contrib("Inverse", "X", "aicpu", same)
