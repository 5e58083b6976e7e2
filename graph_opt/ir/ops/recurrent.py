"""Recurrent operators: LSTM, GRU, RNN."""

from __future__ import annotations

from graph_opt.ir.ops.registry import FLOAT, FLOATS, INT, STRINGS, Inference, declare
from tensor_types.dims import Dim
from tensor_types.dtypes import F32, I8

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _recurrent(ctx: Inference) -> None:
    """X is [sequence, batch, input], or [batch, sequence, input] with layout 1; R [directions, gates*hidden, hidden]"""
    shape, weight = ctx.shape(0), ctx.shape(2)
    batch_first = bool(ctx.attr("layout"))
    size = ctx.attr("hidden_size")
    hidden: Dim = int(size) if size is not None else ctx.fresh(axis=3) if weight is None else weight[2]
    if shape is not None and len(shape) != 3:
        raise ctx.error(f"X has rank {len(shape)}, not 3")
    directions = 2 if ctx.attr("direction") == "bidirectional" else 1
    if shape is None:
        initial = ctx.shape(5) if ctx.has(5) else None
        length: Dim = ctx.fresh(axis=1 if batch_first else 0)
        batch: Dim = ctx.fresh(axis=0 if batch_first else 2) if initial is None else initial[not batch_first]
    else:
        batch, length = (shape[0], shape[1]) if batch_first else (shape[1], shape[0])
    gates = _GATES.get(ctx.node.op, 1)
    rows = gates * hidden
    if shape is not None:
        ctx.expect(1, (directions, rows, shape[2]))
    for index, extents in ((2, (directions, rows, hidden)), (3, (directions, 2 * rows)), (7, (directions, 3 * hidden))):
        ctx.expect(index, extents)
    state = (batch, directions, hidden) if batch_first else (directions, batch, hidden)
    for index in (5, 6):
        ctx.expect(index, state)
    full = (batch, length, directions, hidden) if batch_first else (length, directions, batch, hidden)
    ctx.set(0, ctx.dtype(), full)
    ctx.set(1, ctx.dtype(), state)
    ctx.set(2, ctx.dtype(), state)


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


def _quantised_lstm(ctx: Inference) -> None:
    """gates [sequence, batch, directions*4*hidden] are x @ W and all biases of an LSTM, R its recurrent weight as codes
    [directions, hidden, 4*hidden] times R_scale [directions, 1, 4*hidden], with the sums of its columns. States are
    quantised step by step, each sequence by itself, as DynamicQuantizeLinear does."""
    gates, weight = ctx.shape(0), ctx.shape(1)
    ranks = [None if s is None else len(s) for s in (gates, weight)]
    if (ctx.dtype(0), ctx.dtype(1)) != (F32, I8) or ranks != [3, 3] or gates is None or weight is None:
        raise ctx.error("takes gates of f32 [sequence, batch, gates] and codes of i8 [directions, hidden, 4*hidden]")
    directions, hidden, rows = weight
    ctx.agreed((gates[2], directions * rows))
    for index, extents in ((2, (directions, 1, rows)), (3, (directions, rows)), (7, (directions, 3 * hidden))):
        ctx.expect(index, extents)
    ctx.set(0, F32, (gates[0], directions, gates[1], hidden))
    for state in (1, 2):
        ctx.set(state, F32, (directions, gates[1], hidden))


declare(
    "QuantisedLstm", "gates R R_scale R_sums sequence_lens? initial_h? initial_c? P?", "cube", _quantised_lstm,
    {**_COMMON, "activations": STRINGS, "input_forget": 0},
)  # fmt: skip
declare("RNN", "X W R B? sequence_lens? initial_h?", "cube", _recurrent, {**_COMMON, "activations": ("Tanh", "Tanh")})
