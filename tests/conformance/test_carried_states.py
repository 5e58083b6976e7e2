"""Operators that carry a state from call to call: against onnxruntime, and against the recurrence in numpy where the
standard domain or f16 has no kernel there. Never on the AI CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import atc
from acl_runtime import InferSession
from tensor_types.errors import InvalidModel
from tests.conformance.contrib_model import both, ours, theirs

rng = np.random.default_rng(27)


def f(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def operands(
    rule: str, batch: int, tokens: int, heads: tuple[int, int], sizes: tuple[int, int], by_key: bool, past: bool
) -> list[Any]:
    """Query, key, value, state, decay and rate of a LinearAttention; keys of length 1."""
    count, (depth, width) = heads[1], sizes
    keys = f(batch, tokens, count, depth)
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    decay = -np.abs(f(batch, tokens, count * (depth if by_key else 1))) if rule.startswith("gated") else None
    rate = 1 / (1 + np.exp(-f(batch, tokens, count))) if rule.endswith("delta") else None
    found = [f(batch, tokens, heads[0] * depth), keys.reshape(batch, tokens, -1), f(batch, tokens, count * width),
             f(batch, count, depth, width) if past else None, decay, rate]  # fmt: skip
    while found[-1] is None:
        found.pop()
    return found


CASES = [
    ("linear", 2, 7, (2, 2), (16, 8), False, True),
    ("linear", 1, 70, (4, 2), (16, 16), False, False),
    ("gated", 2, 33, (4, 2), (16, 24), False, True),
    ("gated", 2, 9, (2, 1), (16, 16), True, False),
    ("delta", 1, 100, (2, 2), (32, 16), False, True),
    ("gated_delta", 2, 1, (4, 2), (16, 16), False, True),
    ("gated_delta", 1, 130, (4, 2), (32, 40), False, True),
    ("gated_delta", 2, 20, (4, 2), (32, 32), True, True),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
def test_linear_attention(case: tuple[Any, ...], tmp_path: Path) -> None:
    attrs = {"q_num_heads": case[3][0], "kv_num_heads": case[3][1], "update_rule": case[0]}
    for mine, wanted in zip(*both("LinearAttention", operands(*case), attrs, 2, tmp_path), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def standard(opset: int, op: str, arrays: list[Any], attrs: dict[str, Any], shapes: list[list[Any]]) -> onnx.ModelProto:
    """One node of the standard domain whose tokens are a named size."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
    info = helper.make_tensor_value_info
    inputs = [
        info(n, helper.np_dtype_to_tensor_dtype(a.dtype), s)
        for n, a, s in zip(names, arrays, shapes, strict=True)
        if n
    ]
    kind = helper.np_dtype_to_tensor_dtype(arrays[0].dtype)
    node = helper.make_node(op, names, ["y0", "y1"], **attrs)
    graph = helper.make_graph([node], "g", inputs, [info(n, kind, None) for n in ("y0", "y1")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=12)


def recurrence(arrays: list[Any], heads: int, scale: float) -> list[np.ndarray]:
    """gated_delta token by token in f64, one decay a head."""
    q, k, v, state, decay, rate = (a.astype(np.float64) for a in arrays)
    batch, count, depth, _ = state.shape
    tokens = q.shape[1]
    q, k, v = (x.reshape(batch, tokens, n, -1) for x, n in ((q, heads), (k, count), (v, count)))
    rows = np.empty((batch, tokens, heads, v.shape[-1]))
    for t in range(tokens):
        state = state * np.exp(decay[:, t])[:, :, None, None]
        wrong = v[:, t] - np.einsum("bhkv,bhk->bhv", state, k[:, t])
        state = state + np.einsum("bhk,bhv->bhkv", k[:, t], wrong * rate[:, t, :, None])
        rows[:, t] = scale * np.einsum("bhkv,bhk->bhv", state.repeat(heads // count, 1), q[:, t])
    return [rows.reshape(batch, tokens, -1), state]


@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_linear_attention_of_the_standard_domain_at_two_lengths(dtype: str, tmp_path: Path) -> None:
    shapes = [[2, "T", 128], [2, "T", 64], [2, "T", 48], [2, 2, 32, 24], [2, "T", 2], [2, "T", 2]]
    case = ("gated_delta", 2, 45, (4, 2), (32, 24), False, True)
    attrs = {"q_num_heads": 4, "kv_num_heads": 2, "scale": 0.5}
    given = [a.astype(dtype) for a in operands(*case)]
    onnx.save(standard(27, "LinearAttention", given, attrs, shapes), tmp_path / "m.onnx")
    report = atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    assert not report.aicpu_nodes
    session = InferSession(0, tmp_path / "m.om")
    limit = 1e-5 if dtype == "f4" else 2e-3
    for tokens in (1, 45):
        fed = [a if a.ndim == 4 else np.ascontiguousarray(a[:, :tokens]) for a in given]
        for mine, wanted in zip(session.infer(fed), recurrence(fed, 4, 0.5), strict=True):
            np.testing.assert_allclose(mine.astype(np.float64), wanted, rtol=0, atol=limit * np.abs(wanted).max())


def test_a_decay_that_forgets_all(tmp_path: Path) -> None:
    case = operands("gated_delta", 1, 40, (2, 2), (16, 16), False, True)
    case[4][0, 17] = -np.inf
    shapes = [list(a.shape) for a in case]
    onnx.save(standard(27, "LinearAttention", case, {"q_num_heads": 2, "kv_num_heads": 2}, shapes), tmp_path / "m.onnx")
    atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    for mine, wanted in zip(InferSession(0, tmp_path / "m.om").infer(case), recurrence(case, 2, 0.25), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("tokens", "past", "attrs"), [
    (1, True, {"activation": "silu"}), (9, True, {}), (9, False, {"activation": "swish"}), (2, False, {}),
])  # fmt: skip
def test_causal_convolution(tokens: int, past: bool, attrs: dict[str, Any], tmp_path: Path) -> None:
    arrays = [f(2, 6, tokens), f(6, 1, 4), f(6), f(2, 6, 3) if past else None][: 4 if past else 3]
    for mine, wanted in zip(*both("CausalConvWithState", arrays, attrs, 2, tmp_path), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-5)
    onnx.save(standard(27, "CausalConvWithState", arrays, attrs, [list(a.shape) for a in arrays]), tmp_path / "s.onnx")
    atc.convert(tmp_path / "s.onnx", tmp_path / "s.om")
    for mine, wanted in zip(InferSession(0, tmp_path / "s.om").infer(arrays),
                            theirs("CausalConvWithState", arrays, attrs, 2), strict=True):  # fmt: skip
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-5)


def test_forms_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match="channels_last = 1"):
        ours("CausalConvWithState", [f(2, 6, 5), f(6, 1, 4)], {"channels_last": 1}, 2, tmp_path)
