"""LSTM, GRU and RNN layers against onnxruntime: directions, peepholes, initial states, lengths, run-time steps and batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ml_dtypes import bfloat16

from acl_runtime.aicpu import evaluate
from codegen.kernels.gru import lower_gru
from codegen.kernels.lstm import lower_lstm
from codegen.kernels.rnn import lower_rnn
from tests.kernels.lowered import Case, check
from tests.kernels.on_chips import check_on_chips

rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return rng.normal(0, 0.5, shape).astype(np.float32)


def lstm(t: int, b: int, i: int, h: int, direction: str = "forward", outputs: str = "y yh yc", lengths: bool = False,
         peephole: bool = False, states: bool = False, bias: bool = True, symbolic: bool = False) -> Case:  # fmt: skip
    d = 2 if direction == "bidirectional" else 1
    arrays = {"x": normal(t, b, i), "w": normal(d, 4 * h, i), "r": normal(d, 4 * h, h)}
    inputs = ["x", "w", "r", "", "", "", "", ""]
    if bias:
        arrays["bias"], inputs[3] = normal(d, 8 * h), "bias"
    if lengths:
        arrays["lengths"], inputs[4] = rng.integers(1, t + 1, b).astype(np.int32), "lengths"
    if states:
        arrays["h0"], arrays["c0"], inputs[5], inputs[6] = normal(d, b, h), normal(d, b, h), "h0", "c0"
    if peephole:
        arrays["p"], inputs[7] = normal(d, 3 * h), "p"
    while not inputs[-1]:
        inputs.pop()
    shapes = {"x": ("t", "b", i), "y": ("t", d, "b", h), "yh": (d, "b", h), "yc": (d, "b", h), "h0": (d, "b", h),
              "c0": (d, "b", h), "lengths": ("b",)}  # fmt: skip
    made = outputs.split()
    names = [n if n in made else "" for n in ("y", "yh", "yc")]
    while not names[-1]:
        names.pop()
    op = ("LSTM", inputs, [n or f"unused{k}" for k, n in enumerate(names)],
          {"hidden_size": h, "direction": direction})  # fmt: skip
    constants = [n for n in ("w", "r", "bias", "p") if n in arrays]
    return Case("lstm", [op], arrays, made, constants, shapes if symbolic else {}, dims={"t": t, "b": b})


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("t,b,i,h", [(1, 1, 1, 1), (5, 1, 12, 20), (33, 3, 7, 16), (4, 25, 9, 33)])
def test_directions(direction: str, t: int, b: int, i: int, h: int) -> None:
    check(lstm(t, b, i, h, direction), lower_lstm, atol=1e-5)


class Coded(Case):
    """Its result by the AI CPU."""

    def expected(self) -> dict[str, np.ndarray]:
        op, inputs, outputs, attrs = self.ops[0]
        given = [self.arrays.get(name) for name in inputs]
        return dict(zip(outputs, evaluate(op, dict(attrs), given, len(outputs)), strict=True))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("t,b,h", [(1, 1, 4), (5, 1, 20), (9, 3, 16), (4, 25, 36)])
def test_recurrent_weights_in_bytes(direction: str, t: int, b: int, h: int) -> None:
    """A state that is off by a rounding may become the next byte, so results agree to a step of one."""
    d = 2 if direction == "bidirectional" else 1
    codes = rng.integers(-128, 128, (d, h, 4 * h)).astype(np.int8)
    arrays = {
        "x": normal(t, b, d * 4 * h), "r": codes, "s": (np.abs(normal(d, 1, 4 * h)) * 0.005).astype(np.float32),
        "sums": codes.astype(np.int32).sum(1).astype(np.int32), "h0": normal(d, b, h), "c0": normal(d, b, h),
        "p": normal(d, 3 * h),
    }  # fmt: skip
    inputs = ["x", "r", "s", "sums", "", "h0", "c0", "p"]
    op = ("QuantisedLstm", inputs, ["y", "yh", "yc"], {"hidden_size": h, "direction": direction})
    shapes = {"x": ("t", "b", d * 4 * h), "y": ("t", d, "b", h), "yh": (d, "b", h), "yc": (d, "b", h),
              "h0": (d, "b", h), "c0": (d, "b", h)}  # fmt: skip
    symbolic = shapes if direction == "bidirectional" else {}
    check(Coded("lstm", [op], arrays, ["y", "yh", "yc"], ["r", "s", "sums", "p"], symbolic, dims={"t": t, "b": b}),
          lower_lstm, atol=1e-2)  # fmt: skip


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_everything(direction: str) -> None:
    check(lstm(6, 3, 10, 8, direction, peephole=True, states=True), lower_lstm, atol=1e-5)
    check(lstm(6, 3, 10, 8, direction, states=True, bias=False, outputs="yh"), lower_lstm, atol=1e-5)
    check(lstm(6, 5, 10, 8, direction, states=True, lengths=True), lower_lstm, atol=1e-5)


def with_attrs(case: Case, **attrs: object) -> Case:
    op, inputs, outputs, own = case.ops[0]
    return replace(case, ops=[(op, inputs, outputs, {**own, **attrs})])


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_clipped_gates(direction: str) -> None:
    d = 2 if direction == "bidirectional" else 1
    check(with_attrs(lstm(6, 3, 10, 8, direction, peephole=True, states=True), clip=0.3), lower_lstm, atol=1e-5)
    check(with_attrs(lstm(5, 2, 7, 33, direction, lengths=True), clip=0.1), lower_lstm, atol=1e-5)
    for after in (0, 1):
        check(with_attrs(gru(5, 2, 12, 33, direction, after), clip=0.2), lower_gru, atol=1e-5)
    arrays = {"x": normal(5, 2, 7), "w": normal(d, 9, 7), "r": normal(d, 9, 9)}
    op = ("RNN", ["x", "w", "r"], ["y", "yh"], {"hidden_size": 9, "direction": direction, "clip": 0.25})
    check(Case("rnn", [op], arrays, ["y", "yh"], ["w", "r"]), lower_rnn, atol=1e-5)


def test_an_input_gate_that_says_what_to_forget() -> None:
    case = with_attrs(lstm(6, 3, 10, 8, peephole=True, states=True), input_forget=1, clip=0.5)
    check(Coded(**vars(case)), lower_lstm, atol=1e-5)
    check_on_chips(with_attrs(gru(3, 2, 8, 16, "forward", 1), clip=0.2), lower_gru, 1e-5, 1e-5, ["Ascend910B2"])


@pytest.mark.parametrize("t,b", [(1, 1), (40, 2), (7, 17)])
def test_run_time_sizes(t: int, b: int) -> None:
    check(lstm(t, b, 10, 16, "bidirectional", symbolic=True), lower_lstm, atol=1e-5)
    check(lstm(t, b, 10, 16, symbolic=True, states=True, lengths=True), lower_lstm, atol=1e-5)


def gru(
    t: int, b: int, i: int, h: int, direction: str, after: int, lengths: bool = False, symbolic: bool = False
) -> Case:
    d = 2 if direction == "bidirectional" else 1
    arrays = {"x": normal(t, b, i), "w": normal(d, 3 * h, i), "r": normal(d, 3 * h, h), "bias": normal(d, 6 * h),
              "h0": normal(d, b, h)}  # fmt: skip
    if lengths:
        arrays["lengths"] = rng.integers(1, t + 1, b).astype(np.int32)
    op = ("GRU", ["x", "w", "r", "bias", "lengths" if lengths else "", "h0"], ["y", "yh"],
          {"hidden_size": h, "direction": direction, "linear_before_reset": after})  # fmt: skip
    shapes = {"x": ("t", "b", i), "y": ("t", d, "b", h), "yh": (d, "b", h), "h0": (d, "b", h), "lengths": ("b",)}
    return Case("gru", [op], arrays, ["y", "yh"], ["w", "r", "bias"], shapes if symbolic else {}, dims={"t": t, "b": b})


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("activation", ["Tanh", "Relu", "Sigmoid"])
def test_rnn(direction: str, activation: str) -> None:
    d = 2 if direction == "bidirectional" else 1
    attrs = {"hidden_size": 33, "direction": direction, "activations": [activation] * d}
    for t, b, lengths in ((5, 1, False), (9, 3, False), (6, 3, True)):
        arrays = {"x": normal(t, b, 7), "w": normal(d, 33, 7), "r": normal(d, 33, 33) / 6, "bias": normal(d, 66),
                  "h0": normal(d, b, 33)}  # fmt: skip
        if lengths:
            arrays["lengths"] = rng.integers(1, t + 1, b).astype(np.int32)
        op = ("RNN", ["x", "w", "r", "bias", "lengths" if lengths else "", "h0"], ["y", "yh"], attrs)
        case = Case("rnn", [op], arrays, ["y", "yh"], ["w", "r", "bias"])
        check(case, lower_rnn, atol=1e-5)
    check_on_chips(case, lower_rnn, 1e-5, 1e-5, ["Ascend910B2"])


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_gru(direction: str, after: int) -> None:
    check(gru(5, 1, 12, 20, direction, after), lower_gru, atol=1e-5)
    check(gru(9, 3, 7, 33, direction, after, symbolic=True), lower_gru, atol=1e-5)
    check(gru(9, 3, 7, 33, direction, after, lengths=True), lower_gru, atol=1e-5)


def halves(case: Case, dtype: type) -> Case:
    """The case with all floats in a half type; the reference computes in f32 from the same numbers."""
    arrays = {k: a.astype(dtype) if a.dtype == np.float32 else a for k, a in case.arrays.items()}
    return replace(case, arrays=arrays, wide=True)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 4e-3), (bfloat16, 3e-2)])
def test_halves(dtype: type, tolerance: float) -> None:
    given = lstm(9, 3, 10, 33, "bidirectional", states=True, peephole=True)
    check(halves(given, dtype), lower_lstm, tolerance, tolerance)
    given = lstm(6, 5, 10, 8, states=True, lengths=True, symbolic=True)
    check(halves(given, dtype), lower_lstm, tolerance, tolerance)
    for after in (0, 1):
        check(halves(gru(6, 3, 7, 33, "forward", after), dtype), lower_gru, tolerance, tolerance)


def test_halves_on_chips() -> None:
    given = lstm(5, 3, 24, 32, "bidirectional", states=True, peephole=True)
    check_on_chips(halves(given, np.float16), lower_lstm, 4e-3, 4e-3)
    check_on_chips(halves(given, bfloat16), lower_lstm, 3e-2, 3e-2, ["Ascend910B2"])
    for after in (0, 1):
        check_on_chips(halves(gru(5, 3, 24, 32, "forward", after), np.float16), lower_gru, 4e-3, 4e-3)


def test_lengths_on_chips() -> None:
    given = lstm(6, 3, 10, 8, states=True, lengths=True)
    check_on_chips(halves(given, np.float16), lower_lstm, 4e-3, 4e-3)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_on_a_chip(direction: str) -> None:
    check_on_chips(lstm(5, 3, 24, 32, direction, states=True, peephole=True), lower_lstm, 1e-5, 1e-5, ["Ascend910B2"])
    check_on_chips(lstm(70, 2, 24, 32, direction, symbolic=True), lower_lstm, 1e-5, 1e-5, ["Ascend910B2"])
    for after in (0, 1):
        check_on_chips(gru(5, 3, 24, 32, direction, after), lower_gru, 1e-5, 1e-5, ["Ascend910B2"])
