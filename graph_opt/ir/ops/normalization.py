"""Normalizations: over a batch, layer, instance, group or window."""

from __future__ import annotations

from graph_opt.ir.ops.registry import INT, Inference, along_axis, declare, same
from tensor_types.dims import Dim
from tensor_types.dtypes import from_onnx

EPSILON = 1e-5


def _of_channels(ctx: Inference, *operands: int) -> None:
    """One number for each channel."""
    shape = ctx.shape()
    if shape is not None:
        for index in operands:
            ctx.expect(index, shape[1:2] or (1,))


def _channels(ctx: Inference) -> None:
    _of_channels(ctx, 1, 2)
    same(ctx)


def _batch(ctx: Inference) -> None:
    _of_channels(ctx, 1, 2, 3, 4)
    ctx.set(0, ctx.dtype(), ctx.shape())
    ctx.set(1, ctx.dtype(3), ctx.shape(3))
    ctx.set(2, ctx.dtype(4), ctx.shape(4))


def _layer(ctx: Inference) -> None:
    shape = ctx.shape()
    ctx.set(0, ctx.dtype(), shape)
    moments: list[Dim] | None = None
    if shape is not None:
        axis = ctx.axis(len(shape))
        moments = [*shape[:axis], *([1] * (len(shape) - axis))]
        for index in (1, 2):
            ctx.expect(index, shape, broadcast=True)
    stash = from_onnx(int(ctx.attr("stash_type")))
    ctx.set(1, stash, moments)
    ctx.set(2, stash, moments)


declare(
    "BatchNormalization", "X scale B input_mean input_var", "reduction", _batch,
    {"epsilon": EPSILON, "momentum": 0.9, "training_mode": 0},
)  # fmt: skip
declare("LayerNormalization", "X Scale B?", "reduction", _layer, {"axis": -1, "epsilon": EPSILON, "stash_type": 1})
declare("RMSNormalization", "X scale", "reduction", along_axis, {"axis": -1, "epsilon": EPSILON, "stash_type": 1})
declare("InstanceNormalization", "input scale B", "reduction", _channels, {"epsilon": EPSILON})
declare(
    "GroupNormalization", "X scale bias", "reduction", _channels,
    {"epsilon": EPSILON, "num_groups": INT, "stash_type": 1},
)  # fmt: skip
declare("LpNormalization", "input", "reduction", along_axis, {"axis": -1, "p": 2})
declare("MeanVarianceNormalization", "X", "reduction", same, {"axes": (0, 2, 3)})
declare("LRN", "X", "reduction", same, {"alpha": 1e-4, "beta": 0.75, "bias": 1.0, "size": INT})
