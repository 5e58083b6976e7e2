"""LSTM, GRU and RNN, forward, reverse and bidirectional, with sequence lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from acl_runtime.aicpu.elementwise import widened
from acl_runtime.aicpu.quantize import quantize
from acl_runtime.aicpu.registry import Array, Attrs, Inputs, evaluate, get, implementation

_DEFAULTS = {"LeakyRelu": (0.01, 0.0), "Elu": (1.0, 0.0), "HardSigmoid": (0.2, 0.5), "ThresholdedRelu": (1.0, 0.0)}


def _activation(name: str, alpha: float | None, beta: float | None) -> Callable[[Array], Array]:
    title = {n.lower(): n for n in ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Elu",
                                    "Softsign", "Softplus", "Affine", "ScaledTanh")}[name.lower()]  # fmt: skip
    default = _DEFAULTS.get(title, (1.0, 0.0))
    a, b = default[0] if alpha is None else alpha, default[1] if beta is None else beta
    if title == "Affine":
        return lambda x: a * x + b
    if title == "ScaledTanh":
        return lambda x: a * np.tanh(b * x)
    return lambda x: np.asarray(evaluate(title, {"alpha": a, "beta": b}, [x])[0])


def _run(
    inputs: Inputs,
    attrs: Attrs,
    gates: int,
    defaults: list[str],
    step: Any,
    weights: tuple[Sequence[Array], Sequence[Array]] | None = None,
) -> tuple[Array, ...]:
    """Runs the recurrence in f32 or f64. `step(x_gates, h, c, r, rb, f, extra)` gives the new (h, c).

    `weights` are the matrices of W and R per direction; None takes them from the inputs.
    """
    kind = np.asarray(inputs[0]).dtype
    x = widened(np.asarray(inputs[0]))
    w, r = weights or tuple(list(widened(np.asarray(v))) for v in inputs[1:3])
    batch_first = bool(attrs.get("layout", 0))
    if batch_first:
        x = x.swapaxes(0, 1)
    length, batch, _features = x.shape
    hidden, directions = r[0].shape[1], len(w)
    bias, lengths = get(inputs, 3), get(inputs, 4)
    starts = [get(inputs, 5), get(inputs, 6) if gates == 4 else None]
    peephole = get(inputs, 7) if gates == 4 else None
    names = attrs.get("activations") or defaults * directions
    alphas, betas = list(attrs.get("activation_alpha") or []), list(attrs.get("activation_beta") or [])
    functions = [
        _activation(n, alphas[i] if i < len(alphas) else None, betas[i] if i < len(betas) else None)
        for i, n in enumerate(names)
    ]
    ends = np.full(batch, length) if lengths is None else np.asarray(lengths).astype(np.int64)
    y = np.zeros((length, directions, batch, hidden), x.dtype)
    last_h, last_c = (np.zeros((directions, batch, hidden), x.dtype) for _ in range(2))
    clip = attrs.get("clip")
    for d in range(directions):
        state = [
            np.zeros((batch, hidden), x.dtype) if s is None
            else np.array(widened(np.asarray(s)).swapaxes(0, 1)[d] if batch_first else widened(np.asarray(s))[d])
            for s in starts
        ]  # fmt: skip
        both = np.zeros(2 * gates * hidden, x.dtype) if bias is None else widened(np.asarray(bias))[d]
        wb, rb = both[: gates * hidden], both[gates * hidden :]
        made = x @ w[d].T + wb
        backwards = attrs.get("direction", "forward") == "reverse" or d == 1
        used = functions[d * len(defaults) : (d + 1) * len(defaults)]
        extra = None if peephole is None else widened(np.asarray(peephole))[d]
        for t in range(length):
            # Walking backwards starts at the last element of each sequence, not at the padding.
            at = ends - 1 - t if backwards else np.full(batch, t)
            active = t < ends
            rows = made[np.maximum(at, 0), np.arange(batch)]
            h, c = step(rows, *state, r[d], rb, used, extra, clip)
            state = [np.where(active[:, None], new, old) for new, old in zip((h, c), state, strict=True)]
            y[at[active], d, active] = h[active]
        last_h[d], last_c[d] = state
    if batch_first:
        y, last_h, last_c = y.transpose(2, 0, 1, 3), last_h.swapaxes(0, 1), last_c.swapaxes(0, 1)
    return y.astype(kind), last_h.astype(kind), last_c.astype(kind)


def _clipped(x: Array, limit: float | None) -> Array:
    return x if limit is None else np.clip(x, -limit, limit)


def _lstm_step(x: Array, h: Array, c: Array, r: Array, rb: Array, f: Any, p: Array | None, clip: Any) -> Any:
    i, o, forget, new = np.split(x + h @ r.T + rb, 4, axis=1)
    pi, po, pf = (0, 0, 0) if p is None else np.split(p, 3)
    i, forget = f[0](_clipped(i + pi * c, clip)), f[0](_clipped(forget + pf * c, clip))
    cell = forget * c + i * f[1](_clipped(new, clip))
    return f[0](_clipped(o + po * cell, clip)) * f[2](cell), cell


def _rnn_step(x: Array, h: Array, c: Array, r: Array, rb: Array, f: Any, p: Array | None, clip: Any) -> Any:
    return f[0](_clipped(x + h @ r.T + rb, clip)), c


@implementation("LSTM")
def _lstm(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, ...]:
    def step(*arguments: Any) -> Any:
        if not attrs.get("input_forget", 0):
            return _lstm_step(*arguments)
        x, h, c, r, rb, f, p, clip = arguments
        i, o, _forget, new = np.split(x + h @ r.T + rb, 4, axis=1)
        pi, po, _pf = (0, 0, 0) if p is None else np.split(p, 3)
        i = f[0](_clipped(i + pi * c, clip))
        cell = (1 - i) * c + i * f[1](_clipped(new, clip))
        return f[0](_clipped(o + po * cell, clip)) * f[2](cell), cell

    return _run(inputs, attrs, 4, ["Sigmoid", "Tanh", "Tanh"], step)


class _QuantizedMatrix:
    """The transpose of an 8-bit matrix [K, N] as a right operand: what it multiplies is quantised to u8 as a whole."""

    __array_ufunc__ = None  # so that numpy leaves `array @ matrix` to this class

    def __init__(self, values: Array, scale: Array, zero: Array, by_rows: bool = False) -> None:
        self.shape = values.shape[::-1]
        self.by_rows = by_rows
        """Each row of what it multiplies is quantised by itself."""
        self.scale = np.asarray(scale, np.float32)
        self.values = values.astype(np.float64) - np.asarray(zero).astype(np.float64)

    @property
    def T(self) -> _QuantizedMatrix:  # noqa: N802 (numpy's name)
        return self

    def __rmatmul__(self, a: Array) -> Array:
        if self.by_rows and len(a) > 1:
            return np.concatenate([self.__rmatmul__(row) for row in np.split(a, len(a))])
        low, high = np.float32(min(0, a.min(initial=0))), np.float32(max(0, a.max(initial=0)))
        scale = np.float32((high - low) / np.float32(255)) or np.float32(1)
        zero = np.uint8(np.clip(np.rint(-low / scale), 0, 255))
        whole = quantize(a, scale, zero, np.dtype(np.uint8)).astype(np.float64) - float(zero)
        return (whole @ self.values).astype(np.float32) * (scale * self.scale)


@implementation("com.microsoft::DynamicQuantizeLSTM")
def _dynamic_quantize_lstm(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, ...]:
    """LSTM whose W [D, K, 4H] and R [D, H, 4H] are 8-bit; inputs 8 to 11 are their scales and zero points."""
    weights = []
    for values, scale, zero in ((inputs[1], *inputs[8:10]), (inputs[2], *inputs[10:12])):
        matrices = zip(np.asarray(values), np.asarray(scale), np.asarray(zero), strict=True)
        weights.append([_QuantizedMatrix(v, s, z) for v, s, z in matrices])
    return _run(inputs, attrs, 4, ["Sigmoid", "Tanh", "Tanh"], _lstm_step, (weights[0], weights[1]))


@implementation("QuantisedLstm")
def _quantised_lstm(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, ...]:
    """The gates of a direction are columns of the first input; they are picked by a product with ones."""
    gates, codes, scales = (np.asarray(v) for v in inputs[:3])
    directions, _hidden, columns = codes.shape
    picks = list(np.eye(directions * columns, dtype=np.float32).reshape(directions, columns, -1))
    matrices = [_QuantizedMatrix(c, s, np.zeros(1), by_rows=True) for c, s in zip(codes, scales, strict=True)]
    rest = [get(inputs, i) for i in range(4, 8)]
    return _run([gates, None, None, None, *rest], attrs, 4, ["Sigmoid", "Tanh", "Tanh"], _lstm_step, (picks, matrices))


@implementation("GRU")
def _gru(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, ...]:
    linear = attrs.get("linear_before_reset", 0)

    def step(x: Array, h: Array, c: Array, r: Array, rb: Array, f: Any, p: Any, clip: Any) -> Any:
        xz, xr, xh = np.split(x, 3, axis=1)
        rz, rr, rh = np.split(r, 3)
        bz, br, bh = np.split(rb, 3)
        z, reset = f[0](_clipped(xz + h @ rz.T + bz, clip)), f[0](_clipped(xr + h @ rr.T + br, clip))
        inner = reset * (h @ rh.T + bh) if linear else (reset * h) @ rh.T + bh
        return (1 - z) * f[1](_clipped(xh + inner, clip)) + z * h, c

    return _run(inputs, attrs, 3, ["Sigmoid", "Tanh"], step)[:2]


@implementation("RNN")
def _rnn(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, ...]:
    return _run(inputs, attrs, 1, ["Tanh"], _rnn_step)[:2]
