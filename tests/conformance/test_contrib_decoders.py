"""What onnxruntime's exporters of language models write, through the product against onnxruntime.

Rows of a cache behind a sequence's own length hold nothing of use and are not compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import atc
from acl_runtime import InferSession
from tensor_types.errors import InvalidModel
from tests.conformance.contrib_model import both, model, ours, theirs

rng = np.random.default_rng(11)


def f(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape).astype(np.uint8)


def i32(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def whole(number: int) -> np.ndarray:
    return np.array(number, np.int32)


Case = tuple[str, str, list[Any], dict[str, Any], int]
ANGLE = f(16, 4)
ANGLES = [np.cos(ANGLE), np.sin(ANGLE)]
WIDE_ANGLE = f(16, 8)
WIDE_ANGLES = [np.cos(WIDE_ANGLE), np.sin(WIDE_ANGLE)]
PLACES = np.array([[3, 4, 5], [0, 2, 7]], np.int64)
HEADS = {"num_heads": 4, "kv_num_heads": 2}
ROTARY = {**HEADS, "do_rotary": 1}


def step(size: int = 16, past: int = 5, count: int = 1) -> list[Any]:
    """Operands and cache of a later call for two sequences."""
    return [
        f(2, count, 4 * size),
        f(2, count, 2 * size),
        f(2, count, 2 * size),
        f(2, 2, past, size),
        f(2, 2, past, size),
    ]


def prompt(size: int = 8, count: int = 6) -> list[Any]:
    return [f(2, count, 4 * size), f(2, count, 2 * size), f(2, count, 2 * size), None, None]


GQA = "GroupQueryAttention"
LATER = [i32(5, 3), whole(6)]
FIRST = [i32(5, 5), whole(6)]
PADDED = [i32(5, 2), whole(6)]
GROUPED: list[Case] = [
    ("first", GQA, [*prompt(), *FIRST], HEADS, 3),
    ("packed", GQA, [f(2, 6, 128), None, None, None, None, *FIRST, *WIDE_ANGLES], ROTARY, 3),
    ("padded_prompt", GQA, [*prompt(16), *PADDED, *WIDE_ANGLES], ROTARY, 3),
    ("later", GQA, [*step(), *LATER, *WIDE_ANGLES], {**ROTARY, "rotary_interleaved": 1}, 3),
    ("packed_later", GQA, [f(2, 1, 128), None, None, *step()[3:], *LATER, *WIDE_ANGLES], ROTARY, 3),
    ("partial_rotary", GQA, [*step(32), *LATER, *WIDE_ANGLES], ROTARY, 3),
    ("buffer", GQA, [*step(past=9), *LATER, *WIDE_ANGLES], ROTARY, 3),
    ("buffer_first", GQA, [*prompt(16)[:3], f(2, 2, 9, 16), f(2, 2, 9, 16), *FIRST, *WIDE_ANGLES], ROTARY, 3),
    ("empty_past", GQA, [*prompt(16)[:3], f(2, 2, 0, 16), f(2, 2, 0, 16), *FIRST, *WIDE_ANGLES], ROTARY, 3),
    ("positions", GQA, [*step(), *LATER, *WIDE_ANGLES, np.array([[7], [2]], np.int64)], ROTARY, 3),
    ("window", GQA, [*prompt(), *FIRST], {**HEADS, "local_window_size": 3, "softcap": 2.0}, 3),
    ("window_later", GQA, [*step(), *LATER], {**HEADS, "local_window_size": 3}, 3),
    ("smooth", GQA, [*prompt(), *FIRST], {**HEADS, "smooth_softmax": 1, "scale": 0.4}, 3),
    ("smooth_later", GQA, [*step(), *LATER], {**HEADS, "smooth_softmax": 1}, 3),
    ("sink", GQA, [*prompt(), *FIRST, None, None, None, None, f(4)], HEADS, 3),
    ("sink_later", GQA, [*step(), *LATER, None, None, None, None, f(4)], {**HEADS, "local_window_size": 3}, 3),
    ("bias", GQA, [*prompt(), *FIRST, None, None, None, f(2, 4, 6, 6)], HEADS, 3),
    ("bias_later", GQA, [*step(), *LATER, None, None, None, f(1, 4, 1, 6)], HEADS, 3),
    ("bias_buffer", GQA, [*step(past=9), *LATER, None, None, None, f(2, 1, 1, 6)], HEADS, 3),
]  # fmt: skip
MHA, ATTENTION = "MultiHeadAttention", "Attention"
Q, K, V = f(2, 3, 32), f(2, 5, 32), f(2, 5, 48)
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
X, W, B = f(2, 4, 12), f(12, 96), f(96)
FOUR = {"num_heads": 4}
OTHERS: list[Case] = [
    ("plain", MHA, [Q, K, V], FOUR, 1), ("bias", MHA, [Q, K, V, f(112)], FOUR, 1),
    ("mask", MHA, [Q, K, V, None, MASK], FOUR, 1),
    ("mask_filter", MHA, [Q, K, V, None, MASK, f(2, 4, 3, 5)], {**FOUR, "mask_filter_value": -7.0, "scale": 0.3}, 1),
    ("mask3", MHA, [Q, K, V, None, rng.integers(0, 2, (2, 3, 5)).astype(np.int32)], FOUR, 1),
    ("added", MHA, [Q, K, V, None, None, f(1, 1, 3, 5)], FOUR, 1),
    ("crossed", MHA, [Q, f(2, 4, 5, 8), f(2, 4, 5, 8)], FOUR, 1),
    ("past", MHA, [Q, f(2, 3, 32), f(2, 3, 32), None, None, None, f(2, 4, 5, 8), f(2, 4, 5, 8)], {**FOUR, "unidirectional": 1}, 3),
    ("present", MHA, [Q, f(2, 3, 32), f(2, 3, 32)], {**FOUR, "unidirectional": 1}, 3),
    ("plain", ATTENTION, [X, W, B], FOUR, 1), ("causal", ATTENTION, [X, W, B], {**FOUR, "unidirectional": 1}, 2),
    ("mask", ATTENTION, [X, W, B, np.array([[1, 1, 0, 0], [1, 1, 1, 1]], np.int32)], FOUR, 1),
    ("lengths", ATTENTION, [X, W, B, i32(2, 4)], FOUR, 1),
    ("past", ATTENTION, [X, W, B, None, f(2, 2, 4, 3, 8)], {**FOUR, "unidirectional": 1}, 2),
    ("added", ATTENTION, [X, W, B, None, None, f(2, 4, 4, 4)], FOUR, 1),
    ("sizes", ATTENTION, [X, f(12, 80), f(80)], {**FOUR, "qkv_hidden_sizes": [32, 32, 16]}, 1),
    ("step", "DecoderMaskedMultiHeadAttention",
     [f(2, 1, 32), f(2, 1, 32), f(2, 1, 32), None, None, f(2, 4, 7, 8), f(2, 4, 7, 8), i32(3)],
     {**FOUR, "past_present_share_buffer": 1}, 3),
    ("flat", "RotaryEmbedding", [f(2, 3, 32), PLACES, *ANGLES], {}, 1),
    ("heads", "RotaryEmbedding", [f(2, 4, 3, 8), PLACES, *ANGLES], {"interleaved": 1}, 1),
    ("offset", "RotaryEmbedding", [f(2, 3, 32), np.array([2], np.int64), *ANGLES], {}, 1),
    ("partial", "RotaryEmbedding", [f(2, 3, 64), PLACES, *ANGLES], {"rotary_embedding_dim": 8, "num_heads": 4}, 1),
    ("all", "EmbedLayerNormalization",
     [rng.integers(0, 20, (2, 5)).astype(np.int32), rng.integers(0, 2, (2, 5)).astype(np.int32), f(20, 8), f(9, 8), f(2, 8), f(8), f(8), MASK],
     {}, 2),
]  # fmt: skip
TOKENS, ROUTER = f(5, 8), f(5, 4)
UP, DOWN, GATED = f(4, 12, 8), f(4, 8, 12), f(4, 24, 8)
TWO = {"k": 2}
SWIGLU = {
    **TWO,
    "activation_type": "swiglu",
    "normalize_routing_weights": 1,
    "activation_alpha": 1.702,
    "activation_beta": 1.0,
}
EXPERTS: list[Case] = [
    ("relu", "MoE", [TOKENS, ROUTER, UP, f(4, 12), DOWN, f(4, 8)], TWO, 1),
    ("one_gelu", "MoE", [f(2, 5, 8), f(10, 4), UP, None, DOWN], {"activation_type": "gelu"}, 1),
    ("silu", "MoE", [TOKENS, ROUTER, UP, None, DOWN], {**TWO, "activation_type": "silu", "normalize_routing_weights": 1}, 1),
    ("in_turns", "MoE", [TOKENS, ROUTER, GATED, f(4, 24), DOWN, f(4, 8)], {**SWIGLU, "swiglu_fusion": 1, "swiglu_limit": 1.5}, 1),
    ("no_limit", "MoE", [TOKENS, ROUTER, GATED, None, DOWN], {**SWIGLU, "swiglu_fusion": 1}, 1),
]  # fmt: skip
CODES = [u8(4, 32, 16), np.abs(f(4, 32)) * 0.05, f(4, 32), u8(4, 32, 16), np.abs(f(4, 32)) * 0.05, f(4, 32)]
BLOCKS = [u8(4, 32, 32), np.abs(f(4, 32, 2)) * 0.01, None, u8(4, 32, 32), np.abs(f(4, 32, 2)) * 0.01, None]
QUANTISED = {**TWO, "activation_type": "silu", "normalize_routing_weights": 1}
EXPERTS += [
    ("rows4", "QMoE", [f(5, 32), ROUTER, *CODES], {**QUANTISED, "expert_weight_bits": 4}, 1),
    ("blocks8", "QMoE", [f(5, 32), ROUTER, *BLOCKS], {**QUANTISED, "expert_weight_bits": 8, "block_size": 16}, 1),
    ("zeros", "QMoE", [f(5, 32), ROUTER, *BLOCKS, None, None, None, u8(4, 32, 2), u8(4, 32, 2)],
     {**QUANTISED, "expert_weight_bits": 8, "block_size": 16}, 1),
]  # fmt: skip
INDICES = np.array([[3, 0, 6], [1, 1, 5]], np.int64)


def bits_case(name: str, bits: int, block: int, depth: int, *, zeros: str = "", groups: bool = False,
              bias: bool = False) -> Case:  # fmt: skip
    blocks, n = -(-depth // block), 6
    packed = -(-blocks * bits // 8)
    points = {"": None, "codes": u8(n * packed), "numbers": np.abs(f(n * blocks)) * 3}[zeros]
    columns = np.array([i // block for i in range(depth)], np.int32)
    return (name, "MatMulNBits",
            [f(3, depth), u8(n, blocks, block * bits // 8), np.abs(f(n * blocks)) * 0.2, points,
             rng.permutation(columns) if groups else None, f(n) if bias else None],
            {"K": depth, "N": n, "bits": bits, "block_size": block}, 1)  # fmt: skip


BITS = [
    bits_case("plain", 4, 32, 64), bits_case("tail", 4, 32, 80, zeros="codes", bias=True),
    bits_case("block16", 4, 16, 48), bits_case("block128", 4, 128, 160, zeros="codes"),
    bits_case("numbers", 4, 32, 96, zeros="numbers"), bits_case("groups", 4, 32, 64, groups=True),
    bits_case("eight", 8, 32, 64), bits_case("eight_zeros", 8, 64, 128, zeros="codes", bias=True),
    bits_case("two", 2, 32, 64, zeros="codes"), bits_case("two_plain", 2, 64, 128),
    ("rows", "GatherBlockQuantized", [u8(7, 32), INDICES, np.abs(f(7, 4))], {"block_size": 16, "quantize_axis": 1}, 1),
    ("rows_zeros", "GatherBlockQuantized", [u8(7, 24), INDICES, np.abs(f(7, 3)), u8(7, 2)],
     {"block_size": 16, "quantize_axis": 1}, 1),
    ("rows8", "GatherBlockQuantized", [u8(7, 32), INDICES, np.abs(f(7, 2))],
     {"block_size": 16, "quantize_axis": 1, "bits": 8}, 1),
]  # fmt: skip


COVERED = {"packed_later", "buffer_first", "smooth", "sink", "bias", "bias_buffer", "mask3", "mask_filter", "sizes",
           "causal", "heads", "block128", "eight_zeros", "two_plain", "rows8", "no_limit", "silu", "rows4"}  # fmt: skip
"""Cases whose steps others have one by one: they run in the long suite."""


def parameters(cases: list[Case]) -> list[Any]:
    return [pytest.param(c, id=f"{c[1]}-{c[0]}", marks=[pytest.mark.long] if c[0] in COVERED else []) for c in cases]


@pytest.mark.parametrize("case", parameters(GROUPED))
def test_group_query_attention(case: Case, tmp_path: Path) -> None:
    _name, op, arrays, attrs, n_outputs = case
    wanted, found = both(op, arrays, attrs, n_outputs, tmp_path)
    ends = arrays[5] + 1
    for want, got in zip(wanted, found, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        for b, end in enumerate(ends):
            rows = (b, slice(None), slice(end)) if got.ndim == 4 else (b, slice(end))
            np.testing.assert_allclose(got[rows], want[rows], rtol=1e-4, atol=2e-5)


def test_presents_whose_extent_is_data_are_written_natively(tmp_path: Path) -> None:
    """Nothing says what the total length, a scalar input, has to do with the named past, which is empty at first."""
    proto = model(GQA, [*step(8), *LATER], HEADS, 3)
    extents = {"x0": "b s 32", "x1": "b s 16", "x2": "b s 16", "x3": "b 2 p 8", "x4": "b 2 p 8", "x5": "b", "x6": ""}
    for entry in proto.graph.input:
        shape = [int(e) if e.isdigit() else e for e in extents[entry.name].split()]
        entry.CopyFrom(helper.make_tensor_value_info(entry.name, entry.type.tensor_type.elem_type, shape))
    onnx.save(proto, tmp_path / "m.onnx")
    result = atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    assert {node["op"] for node in result.aicpu_nodes} <= {"ConstantOfShape"}
    for count, past in ((5, 0), (1, 5)):
        feeds = [*step(8, past, count), np.full(2, past + count - 1, np.int32), whole(past + count)]
        named = {f"x{i}": array for i, array in enumerate(feeds)}
        wanted = ort.InferenceSession(proto.SerializeToString()).run(None, named)
        for want, got in zip(wanted, InferSession(0, tmp_path / "m.om").infer(named), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("case", parameters([*OTHERS, *EXPERTS, *BITS]))
def test_operator(case: Case, tmp_path: Path) -> None:
    _name, op, arrays, attrs, n_outputs = case
    wanted, found = both(op, arrays, attrs, n_outputs, tmp_path)
    for index, (want, got) in enumerate(zip(wanted, found, strict=True)):
        assert got.dtype == want.dtype and got.shape == want.shape
        if op.startswith("Decoder") and index:
            want, got = want[:, :, :4], got[:, :, :4]  # rows in use
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("outputs", [1, 2])
def test_simplified_layer_normalization(outputs: int, tmp_path: Path) -> None:
    attrs = {"epsilon": 1e-3, "axis": -1}
    for want, got in zip(
        *both("SimplifiedLayerNormalization", [f(2, 3, 8), f(8)], attrs, outputs, tmp_path, ""), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["all", "keys"])
def test_packed_operands(kind: str, tmp_path: Path) -> None:
    """onnxruntime has no kernel for packed operands: it computes the same of its parts."""
    query, parts = f(2, 3, 4, 8), f(2, 3, 4, 3, 8)
    if kind == "all":
        packed, apart = [parts], [parts[:, :, :, i].reshape(2, 3, 32) for i in range(3)]
    else:
        packed = [query.reshape(2, 3, 32), parts[:, :, :, 1:]]
        apart = [packed[0], *(parts[:, :, :, i].reshape(2, 3, 32) for i in (1, 2))]
    (want,), (found,) = theirs(MHA, apart, FOUR, 1), ours(MHA, packed, FOUR, 1, tmp_path)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=2e-5)


def test_zero_points_by_group(tmp_path: Path) -> None:
    """onnxruntime takes the middle for zero points beside g_idx; the operator's text does not."""
    _name, op, arrays, attrs, _ = bits_case("groups", 4, 32, 64, zeros="codes", groups=True)
    low_first = [np.stack([a & 15, a >> 4], -1).reshape(6, -1).astype(np.float64) for a in (arrays[1], arrays[3])]
    factors = arrays[2].reshape(6, 2)[:, arrays[4]]
    want = arrays[0] @ ((low_first[0] - low_first[1][:, arrays[4]]) * factors).T
    (found,) = ours(op, arrays, attrs, 1, tmp_path)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(("attrs", "words"), [
    ({"k_quant_type": "PER_TENSOR"}, "a quantised cache"), ({"qk_output": 1}, "the scores"),
    ({"kv_num_heads": 3}, "4 heads"), ({"sliding_window_cache": 1}, "a cache that slides"),
])  # fmt: skip
def test_what_is_not_computed_is_refused(attrs: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match=words):
        ours(GQA, [*step(), *LATER], {**HEADS, **attrs}, 3, tmp_path)


@pytest.mark.parametrize("name", ["later", "window_later", "sink_later"])
def test_group_query_attention_of_halves(name: str, tmp_path: Path) -> None:
    """Operands of f16 against onnxruntime's f32 of the same numbers."""
    _name, op, arrays, attrs, n_outputs = next(c for c in GROUPED if c[0] == name)
    halves = [a.astype(np.float16) if a is not None and a.dtype == np.float32 else a for a in arrays]
    wide = [a.astype(np.float32) if a is not None and a.dtype == np.float16 else a for a in halves]
    found = ours(op, halves, attrs, n_outputs, tmp_path)
    for want, got in zip(theirs(op, wide, attrs, n_outputs)[:1], found, strict=False):
        assert got.dtype == np.float16
        np.testing.assert_allclose(got.astype(np.float32), want, rtol=5e-3, atol=5e-3)


def test_gates_of_experts_in_the_two_orders(tmp_path: Path) -> None:
    """onnxruntime computes gate and linear part in turns; behind each other they are columns in another order."""
    behind = np.concatenate([GATED[:, 0::2], GATED[:, 1::2]], axis=1)
    (want,) = theirs("MoE", [TOKENS, ROUTER, GATED, None, DOWN], {**SWIGLU, "swiglu_fusion": 1}, 1)
    (found,) = ours("MoE", [TOKENS, ROUTER, behind, None, DOWN], {**SWIGLU, "swiglu_fusion": 2}, 1, tmp_path)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=2e-5)


def test_experts_with_a_third_matrix(tmp_path: Path) -> None:
    third = f(4, 12, 8)
    (found,) = ours("MoE", [TOKENS, ROUTER, UP, None, DOWN, None, third],
                    {**TWO, "activation_type": "silu", "normalize_routing_weights": 1}, 1, tmp_path)  # fmt: skip
    for token, scores, got in zip(TOKENS, ROUTER, found, strict=True):
        best = np.argsort(-scores)[:2]
        share = np.exp(scores[best] - scores[best].max())
        inner = [UP[e] @ token for e in best]
        parts = [DOWN[e] @ (h / (1 + np.exp(-h)) * (third[e] @ token)) for e, h in zip(best, inner, strict=True)]
        np.testing.assert_allclose(got, np.average(parts, axis=0, weights=share), rtol=1e-4, atol=2e-5)
