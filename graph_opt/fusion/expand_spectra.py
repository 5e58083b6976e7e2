"""Writes Fourier transforms as products with the waves they are made of, which have kernels.

    STFT(signal, step, window)  -> Conv of the signal with windowed waves, stride `step`
    DFT(x)                      -> MatMul of x, real and imaginary parts side by side, with the waves

Rules
1. Lengths, step and window are numbers of the model; of up to 2048 elements, beyond which the waves take more room
   than a fast transform takes time.
2. A signal of STFT is real. DFT: real or complex, one-sided, inverse, padded and cut, along any axis but the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir import Value
from graph_opt.ir.patterns import Declined, Match, any_value, attribute, op, optional
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.rules import Rule, RulePass
from graph_opt.simplify.shape_targets import reshape_target

_LONGEST = 2048


def _number(value: Value | None) -> int | None:
    return None if value is None or value.data is None else int(value.data.reshape(-1)[0])


def _angles(rows: int, columns: int, length: int) -> np.ndarray:
    """2 pi / length times the product of both indices, which is taken modulo the length while it is whole."""
    return 2 * np.pi / length * (np.outer(np.arange(rows), np.arange(columns)) % length)


def _stft(rewriter: Rewriter, match: Match) -> Declined | None:
    signal, window = match["signal"], match.get("window")
    step, result = _number(match["step"]), match.root.output
    if signal.shape is None or result.shape is None or step is None or not signal.dtype.is_float:
        return Declined("its step is known at run time only")
    if len(signal.shape) == 3 and signal.shape[2] != 1 or window is not None and window.data is None:
        return Declined("a complex signal, or a run-time window")
    bins, length = result.shape[2], _number(match.get("length"))
    size = length if length is not None else None if window is None else len(window.data)
    if size is None or not isinstance(bins, int) or not 1 <= size <= _LONGEST or step < 1:
        return Declined(f"frames of a run-time length, or of more than {_LONGEST} elements")
    own = match.root.name or result.name
    shape = np.ones(size) if window is None else window.data.astype(np.float64)
    angles = _angles(bins, size, size)
    waves = np.concatenate([np.cos(angles) * shape, -np.sin(angles) * shape])[:, None]
    weight = rewriter.constant(waves.astype(signal.dtype.numpy), f"{own}/waves", signal.dtype)

    def insert(operator: str, *inputs: Value, **attrs: object) -> Value:
        return match.insert(rewriter, operator, inputs, attrs)  # type: ignore[arg-type]

    def ints(*numbers: int) -> Value:
        return rewriter.constant(np.array(numbers, np.int64), f"{own}/target")

    if len(signal.shape) == 3:
        channel = insert("Transpose", signal, perm=(0, 2, 1))
    else:
        channel = insert("Unsqueeze", signal, ints(1))
    frames = insert("Conv", channel, weight, strides=(step,), kernel_shape=(size,))
    parts = insert("Reshape", frames, ints(0, 2, bins, -1))
    match.become(rewriter, "Transpose", [parts], {"perm": (0, 3, 2, 1)})
    return None


def _dft(rewriter: Rewriter, match: Match) -> Declined | None:
    x, result = match["x"], match.root.output
    if x.shape is None or result.shape is None or not x.dtype.is_float or x.shape[-1] not in (1, 2):
        return Declined("an unknown shape")
    rank, given = len(x.shape), match.get("axis")
    axis = -2 if given is None else _number(given)
    if axis is None or axis % rank == rank - 1:
        return Declined("a run-time axis")
    axis %= rank
    there, here, parts = x.shape[axis], result.shape[axis], x.shape[-1]
    inverse, onesided = bool(attribute(match.root, "inverse")), bool(attribute(match.root, "onesided"))
    length = _number(match.get("length"))
    if match.get("length") is not None and length is None or not isinstance(there, int) or not isinstance(here, int):
        return Declined("its length is known at run time only")
    assert isinstance(parts, int)
    if length is None:
        length = here if inverse and onesided else there
    if not (0 < length <= _LONGEST and 0 < there <= _LONGEST):
        return Declined(f"more than {_LONGEST} elements")
    waves = _real_waves(there, length) if inverse and onesided else _waves(there, here, length, inverse)
    own = match.root.name or result.name
    weight = rewriter.constant(
        waves[:, :parts].reshape(there * parts, -1).astype(x.dtype.numpy), f"{own}/waves", x.dtype
    )
    perm = [k for k in range(rank - 1) if k != axis] + [axis, rank - 1]
    turned = x if axis == rank - 2 else match.insert(rewriter, "Transpose", [x], {"perm": tuple(perm)})
    assert turned.shape is not None
    lead = turned.shape[: rank - 2]
    flat = reshape_target(turned.shape, (*lead, there * parts))
    wide = (*lead, weight.data.shape[1])
    final = reshape_target(wide, (*lead, here, result.shape[-1]))
    if flat is None or final is None:
        return Declined("two extents are known at run time only")

    def reshaped(value: Value, target: tuple[int, ...]) -> list[Value]:
        return [value, rewriter.constant(np.array(target, np.int64), f"{own}/target")]

    product = match.insert(rewriter, "MatMul", [match.insert(rewriter, "Reshape", reshaped(turned, flat)), weight])
    if axis == rank - 2:
        match.become(rewriter, "Reshape", reshaped(product, final))
        return None
    back = match.insert(rewriter, "Reshape", reshaped(product, final))
    match.become(rewriter, "Transpose", [back], {"perm": tuple(int(k) for k in np.argsort(perm))})
    return None


def _waves(there: int, here: int, length: int, inverse: bool) -> np.ndarray:
    """[element, its part, element of the result, its part]; elements beyond the length count nothing."""
    angles = _angles(there, here, length)
    cos, sin = np.cos(angles), np.sin(angles) if inverse else -np.sin(angles)
    waves = np.stack([np.stack([cos, sin], -1), np.stack([-sin, cos], -1)], 1)
    waves[length:] = 0
    return waves / length if inverse else waves


def _real_waves(there: int, length: int) -> np.ndarray:
    """The same from half a spectrum to its real signal: what stands for two counts twice."""
    angles = _angles(there, length, length)
    twice = np.full(there, 2.0)
    twice[0] = 1
    twice[length // 2 + 1 :] = 0
    if length % 2 == 0 and length // 2 < there:
        twice[length // 2] = 1
    waves = np.stack([np.cos(angles), -np.sin(angles)], 1)[..., None]
    return waves * (twice / length)[:, None, None, None]


@dataclass(frozen=True)
class ExpandSpectra(RulePass):
    """See the module."""

    name: ClassVar[str] = "expand-spectra"
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "stft",
            op("STFT", any_value("signal"), any_value("step"), optional(any_value("window")),
               optional(any_value("length"))),
            _stft,
        ),
        Rule("dft", op("DFT", any_value("x"), optional(any_value("length")), optional(any_value("axis"))), _dft),
    )  # fmt: skip
