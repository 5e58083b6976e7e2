"""What each kernel family can absorb, as data for the fusion and layout passes."""

from __future__ import annotations

from codegen.kernels.epilogue import ELEMENTWISE
from graph_opt.fusion.traits import FamilyTraits

_FLOATS = frozenset({"f32", "f64", "f16", "bf16"})
_INTEGERS = frozenset({"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"})
_ANY = _FLOATS | _INTEGERS | {"bool"}
_PLAIN = frozenset({"plain"})
_BOTH = frozenset({"plain", "channels_last"})
_NONE: frozenset[str] = frozenset()

_QUANTISATION = frozenset({"QuantizeLinear", "DequantizeLinear"})
_POINTWISE = frozenset(ELEMENTWISE) - {"Identity"} - _QUANTISATION
"""Quantisation is element-wise only with one scale for all, which a set of names cannot say."""

TRAITS: tuple[FamilyTraits, ...] = (
    FamilyTraits(
        "matmul", frozenset({"MatMul", "MatMulInteger", "com.microsoft::FusedMatMul"}), _NONE, _POINTWISE, _PLAIN,
        _FLOATS | {"i8", "u8"},
    ),
    FamilyTraits("grouped_matmul", frozenset({"GroupedMatMul"}), _NONE, _POINTWISE, _PLAIN, _FLOATS),
    FamilyTraits("moe", frozenset({"MoeRoute"}), _NONE, _NONE, _PLAIN, frozenset({"i64"})),
    FamilyTraits("topk", frozenset({"TopK"}), _NONE, _NONE, _PLAIN, _FLOATS | _INTEGERS),
    FamilyTraits(
        "conv", frozenset({"Conv", "ConvInteger", "ConvTranspose"}), _NONE, _POINTWISE, _BOTH, _FLOATS | {"i8", "u8"},
        "channels_last",
    ),
    FamilyTraits(
        "pool",
        frozenset({"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "GlobalLpPool"}),
        _NONE, _NONE, _BOTH, _FLOATS, "channels_last",
    ),
    FamilyTraits(
        "reduction",
        frozenset(
            {"Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "InstanceNormalization",
             "GroupNormalization", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
             "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "ArgMax", "ArgMin"}
        ),
        _POINTWISE, _POINTWISE, _BOTH, _FLOATS | {"i32", "i64"},
    ),
    FamilyTraits("attention", frozenset({"Attention"}), _NONE, _NONE, _PLAIN, frozenset({"f32", "f16", "bf16"})),
    FamilyTraits("lstm", frozenset({"LSTM"}), _NONE, _NONE, _PLAIN, frozenset({"f32", "f16", "bf16"})),
    FamilyTraits("gru", frozenset({"GRU"}), _NONE, _NONE, _PLAIN, frozenset({"f32", "f16", "bf16"})),
    FamilyTraits(
        "movement",
        frozenset(
            {"Transpose", "Slice", "Concat", "Split", "Pad", "Gather", "GatherElements", "GatherND", "Resize", "Expand",
             "Tile", "Relayout", "CumSum", "Range", "DepthToSpace", "SpaceToDepth"}
        ),
        _NONE, _NONE, _BOTH, _ANY,
    ),
    FamilyTraits("scatter", frozenset({"ScatterND", "ScatterElements"}), _NONE, _NONE, _PLAIN, _ANY),
    FamilyTraits("piecewise", _NONE, _NONE, _POINTWISE, _PLAIN, _FLOATS),
    FamilyTraits("region", _NONE, _NONE, _POINTWISE, _BOTH, _ANY),
)  # fmt: skip
"""The families by falling claim: an anchor belongs to one family, what nothing absorbs becomes a region."""
