"""Precision modes and operator lists, all in one place.

A *white* operator runs in the narrow dtype of the mode, a *black* one keeps its own, a *gray* one (any other that a
family computes in the narrow dtype) follows the producers of its operands.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensor_types.dtypes import BF16, F16, DType

CUBE = frozenset({"MatMul", "GroupedMatMul", "com.microsoft::FusedMatMul", "Conv", "ConvTranspose", "Attention"})
"""Products accumulate in f32 whatever their operands are, so narrow operands cost one rounding each."""

WHITE = CUBE

BLACK = frozenset(
    {
        # Sums over many elements, and what divides by them.
        "Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "InstanceNormalization",
        "GroupNormalization", "BatchNormalization", "LpNormalization", "LRN", "ReduceSum", "ReduceMean", "ReduceProd",
        "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "CumSum", "Mean",
        "AveragePool", "GlobalAveragePool", "LpPool", "GlobalLpPool",
        # Relative errors of the operand become larger ones of the result, or leave the range.
        "Exp", "Log", "Pow", "Sqrt", "Reciprocal", "Sin", "Cos", "Tan", "Acos",
        "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Sinh", "Softplus", "Mod", "Range",
        # Whole numbers up to 2048 (f16) or 256 (bf16) only.
        "Floor", "Ceil", "Round",
        "Cast", "CastLike", "QuantizeLinear", "DequantizeLinear",
        # Their weights are narrower than any mode makes them.
        "BlockMatMul", "QuantizeBlocks",
    }
)  # fmt: skip

KEEPS_OPERANDS = frozenset(
    {"TopK", "ArgMax", "ArgMin", "NonMaxSuppression", "Multinomial", "Range", "Sin", "Cos", "Tan", "QuantizeLinear",
     "DynamicQuantizeLinear", "Log"}
)  # fmt: skip
"""A rounded operand changes the outcome: another index, another length, another phase; a logarithm shows what rounding
adds to a sum that nearly cancels. What feeds these up to the last product keeps its dtype."""

RENORMALISES = frozenset({"LayerNormalization", "RMSNormalization", "GroupNormalization", "InstanceNormalization"})
"""Where the search for what feeds a choice ends, besides white operators: behind them lies the whole network."""

UNTOUCHED_INPUTS = {"Attention": (3,), "Conv": (2,), "ConvTranspose": (2,), "Resize": (1, 2)}
"""Inputs that keep their dtype in a narrow operator: masks, biases (they meet the accumulator), coordinates."""

ACCUMULATES = frozenset({"MatMul", "GroupedMatMul", "Conv", "ConvTranspose"})
"""Operators that take narrow operands and can give their f32 accumulators (attribute `result_dtype`)."""


@dataclass(frozen=True)
class Policy:
    """What a mode does to f32 operators. `narrow` None: nothing.

    `gray`: 'keep', 'follow' (the producers) or 'narrow'; the latter also for black operators when `black` is empty.
    """

    narrow: DType | None
    gray: str = "keep"
    black: frozenset[str] = BLACK
    white: frozenset[str] = WHITE


POLICIES: dict[str, Policy] = {
    "must_keep_origin_dtype": Policy(None),
    "force_fp16": Policy(F16, "narrow", frozenset({"Cast", "CastLike"}) | KEEPS_OPERANDS),
    "force_fp32": Policy(F16),
    "cube_fp16in_fp32out": Policy(F16),
    "allow_fp32_to_fp16": Policy(F16),
    "allow_fp32_to_bf16": Policy(BF16),
    "allow_mix_precision": Policy(F16, "follow"),
    "allow_mix_precision_fp16": Policy(F16, "follow"),
    "allow_mix_precision_bf16": Policy(BF16, "follow"),
}
"""The values of `--precision_mode`. Cube operators give f32 wherever an f32 operator reads them, so `force_fp32` (cubes
take f16 and give f32, the others f32) and `allow_fp32_to_fp16` (cubes f16, the others f32) come to the same here."""

VERSION_2: dict[str, str] = {
    "origin": "must_keep_origin_dtype",
    "fp16": "force_fp16",
    "cube_fp16in_fp32out": "cube_fp16in_fp32out",
    "mixed_float16": "allow_mix_precision_fp16",
    "mixed_bfloat16": "allow_mix_precision_bf16",
}
"""The values of `--precision_mode_v2` and the modes that they stand for."""

DEFAULT = "must_keep_origin_dtype"
ATC_DEFAULT = "force_fp16"
