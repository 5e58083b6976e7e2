"""Quantization: linear quantize, dequantize and the dynamic form."""

from __future__ import annotations

from graph_opt.ir.ops.registry import Inference, declare
from tensor_types.dtypes import F32, U8, from_onnx


def _quantize(ctx: Inference) -> None:
    number = int(ctx.attr("output_dtype"))
    dtype = from_onnx(number) if number else ctx.dtype(2) if ctx.has(2) else U8
    ctx.set(0, dtype, ctx.shape())


def _dequantize(ctx: Inference) -> None:
    number = int(ctx.attr("output_dtype"))
    ctx.set(0, from_onnx(number) if number else ctx.dtype(1), ctx.shape())


def _dynamic(ctx: Inference) -> None:
    ctx.set(0, U8, ctx.shape())
    ctx.set(1, F32, ())
    ctx.set(2, U8, ())


declare(
    "QuantizeLinear", "x y_scale y_zero_point?", "elementwise", _quantize,
    {"axis": 1, "block_size": 0, "output_dtype": 0, "precision": 0, "saturate": 1},
)  # fmt: skip
declare(
    "DequantizeLinear", "x x_scale x_zero_point?", "elementwise", _dequantize,
    {"axis": 1, "block_size": 0, "output_dtype": 0},
)  # fmt: skip
declare("DynamicQuantizeLinear", "x", "reduction", _dynamic)
