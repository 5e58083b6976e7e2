"""Signal processing: Fourier transforms, windows, mel weights, determinants."""

from __future__ import annotations

from graph_opt.ir.ops.registry import Inference, declare
from tensor_types.dims import Dim, floordiv
from tensor_types.dtypes import from_onnx


def _window(ctx: Inference) -> None:
    size = ctx.content(0)
    ctx.set(0, from_onnx(int(ctx.attr("output_datatype"))), (ctx.fresh() if size is None else size[0],))


def _mel(ctx: Inference) -> None:
    bins, length = ctx.content(0), ctx.content(1)
    rows: Dim = ctx.fresh(axis=0) if length is None else floordiv(length[0], 2) + 1
    columns: Dim = ctx.fresh(axis=1) if bins is None else bins[0]
    ctx.set(0, from_onnx(int(ctx.attr("output_datatype"))), (rows, columns))


def _dft(ctx: Inference) -> None:
    shape, axes = ctx.shape(), ctx.ints(2)
    if shape is None or (ctx.has(2) and axes is None):
        return ctx.set(0, ctx.dtype(), None if shape is None else ctx.fresh_shape(len(shape)))
    axis = ctx.normal_axis(-2 if axes is None else axes[0], len(shape))
    out = list(shape)
    length = ctx.content(1)
    if ctx.has(1):
        out[axis] = ctx.fresh(axis=axis) if length is None else length[0]
    onesided, inverse = bool(ctx.attr("onesided")), bool(ctx.attr("inverse"))
    if onesided and inverse:
        out[axis] = out[axis] if ctx.has(1) else (out[axis] - 1) * 2
        out[-1] = 1
    else:
        out[axis] = floordiv(out[axis], 2) + 1 if onesided else out[axis]
        out[-1] = 2
    ctx.set(0, ctx.dtype(), out)


def _stft(ctx: Inference) -> None:
    shape, step, given = ctx.shape(), ctx.content(1), ctx.content(3)
    window = ctx.shape(2) if ctx.has(2) else None
    length: Dim | None = given[0] if given is not None else window[0] if window else None
    if shape is None or length is None or step is None:
        return ctx.set(0, ctx.dtype(), ctx.fresh_shape(4))
    frames = floordiv(shape[1] - length, step[0]) + 1
    bins = floordiv(length, 2) + 1 if ctx.attr("onesided") else length
    ctx.set(0, ctx.dtype(), (shape[0], frames, bins, 2))


def _det(ctx: Inference) -> None:
    shape = ctx.shape()
    ctx.set(0, ctx.dtype(), None if shape is None else shape[:-2])


declare("BlackmanWindow HammingWindow HannWindow", "size", "aicpu", _window, {"output_datatype": 1, "periodic": 1})
declare(
    "MelWeightMatrix", "num_mel_bins dft_length sample_rate lower_edge_hertz upper_edge_hertz", "aicpu", _mel,
    {"output_datatype": 1},
)  # fmt: skip
declare("DFT", "input dft_length? axis?", "aicpu", _dft, {"inverse": 0, "onesided": 0})
declare("STFT", "signal frame_step window? frame_length?", "aicpu", _stft, {"onesided": 1})
declare("Det", "X", "aicpu", _det)
