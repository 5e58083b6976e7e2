"""Recurrent operators: LSTM, GRU, RNN."""

from __future__ import annotations

from graph_opt.ir.ops.registry import FLOAT, FLOATS, INT, STRINGS, Inference, declare
from tensor_types.dims import Dim


def _recurrent(ctx: Inference) -> None:
    """X is [sequence, batch, input], or [batch, sequence, input] with layout 1; R [directions, gates*hidden, hidden]"""
    shape, weight = ctx.shape(0), ctx.shape(2)
    size = ctx.attr("hidden_size")
    hidden: Dim | None = int(size) if size is not None else None if weight is None else weight[2]
    if shape is None or hidden is None:
        ctx.set(0, ctx.dtype(), None)
        for index in range(1, len(ctx.node.outputs)):
            ctx.set(index, ctx.dtype(), None)
        return
    directions = 2 if ctx.attr("direction") == "bidirectional" else 1
    if ctx.attr("layout"):
        full: tuple[Dim, ...] = (shape[0], shape[1], directions, hidden)
        last: tuple[Dim, ...] = (shape[0], directions, hidden)
    else:
        full, last = (shape[0], directions, shape[1], hidden), (directions, shape[1], hidden)
    ctx.set(0, ctx.dtype(), full)
    ctx.set(1, ctx.dtype(), last)
    ctx.set(2, ctx.dtype(), last)


_COMMON = {
    "activation_alpha": FLOATS, "activation_beta": FLOATS, "clip": FLOAT, "direction": "forward", "hidden_size": INT,
    "layout": 0,
}  # fmt: skip
declare(
    "LSTM", "X W R B? sequence_lens? initial_h? initial_c? P?", "cube", _recurrent,
    {**_COMMON, "activations": STRINGS, "input_forget": 0},
)  # fmt: skip
declare(
    "GRU", "X W R B? sequence_lens? initial_h?", "cube", _recurrent,
    {**_COMMON, "activations": STRINGS, "linear_before_reset": 0},
)  # fmt: skip
declare("RNN", "X W R B? sequence_lens? initial_h?", "cube", _recurrent, {**_COMMON, "activations": ("Tanh", "Tanh")})
