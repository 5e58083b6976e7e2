"""The kernel families, a row each: which operators are worth offering to one, and in which element types.

Family F is the module `codegen.kernels.F` with its function `lower_F`. A new family is a row here and that module.
"""

from __future__ import annotations

from typing import NamedTuple

from codegen.kernels.elementwise import ELEMENTWISE

_QUANTISATION = frozenset({"QuantizeLinear", "DequantizeLinear"})
POINTWISE = frozenset(ELEMENTWISE) - {"Identity"} - _QUANTISATION
"""Quantisation is element-wise only with one scale for all, which a set of names cannot say."""

_NONE: frozenset[str] = frozenset()
_HALVES = frozenset({"f32", "f16", "bf16"})
_FLOATS = _HALVES | {"f64"}
_INTEGERS = frozenset({"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"})
_ANY = _FLOATS | _INTEGERS | {"bool"}


class Row(NamedTuple):
    """`dtypes` are element types of the data of the anchor, None: its programs say so. Operators of `before` and
    `after` may join the anchor's kernel. Without `cut` kernels are cut in one way only."""

    name: str
    dtypes: frozenset[str] | None
    anchors: tuple[str, ...] = ()
    before: frozenset[str] = _NONE
    after: frozenset[str] = _NONE
    prefers: str = "plain"
    cut: bool = True


ROWS = (
    Row("matmul", _FLOATS | {"i8", "u8"}, ("MatMul", "MatMulInteger", "com.microsoft::FusedMatMul"), after=POINTWISE),
    Row("grouped_matmul", _FLOATS, ("GroupedMatMul",), after=POINTWISE),
    Row("block_matmul", frozenset({"f32", "i8", "u8"}), ("BlockMatMul",), after=POINTWISE),
    Row("quantize_blocks", _HALVES, ("QuantizeBlocks",), cut=False),
    Row("moe", frozenset({"i64"}), ("MoeRoute",), cut=False),
    Row("box_selection", frozenset({"f32"}), ("SelectBoxes",), cut=False),
    Row("trees", frozenset({"f32", "f64"}), ("Trees",)),
    Row("topk", _FLOATS | _INTEGERS, ("TopK",)),
    Row("conv", _FLOATS | {"i8", "u8"}, ("Conv", "ConvInteger", "ConvTranspose"), after=POINTWISE,
        prefers="channels_last"),
    Row("pool", _FLOATS | {"i8", "u8"},
        ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "GlobalLpPool"),
        prefers="channels_last"),
    Row("lrn", _FLOATS, ("LRN",)),
    Row("reduction", _FLOATS | {"i32", "i64"},
        ("Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "InstanceNormalization",
         "GroupNormalization", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
         "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "ArgMax", "ArgMin"),
        before=POINTWISE, after=POINTWISE),
    Row("attention", _HALVES, ("Attention",)),
    Row("paged_attention", _HALVES, ("PagedAttention",)),
    Row("linear_attention", _HALVES, ("LinearAttention",)),
    Row("lstm", _HALVES, ("LSTM", "QuantisedLstm")),
    Row("gru", _HALVES, ("GRU",)),
    Row("rnn", _HALVES, ("RNN",)),
    Row("movement", _ANY,
        ("Transpose", "Slice", "Concat", "Split", "Pad", "Gather", "GatherElements", "GatherND", "Resize", "Expand",
         "Tile", "Relayout", "CumSum", "Range", "Shape", "Size", "DepthToSpace", "SpaceToDepth")),
    Row("running_product", _FLOATS | _INTEGERS, ("CumProd",)),
    Row("tensor_scatter", _ANY, ("TensorScatter",)),
    Row("scatter_pages", _ANY, ("ScatterPages",)),
    Row("append", _ANY),
    Row("scatter", _ANY, ("ScatterND", "ScatterElements")),
    Row("image", frozenset({"u8"}), ("PrepareImage",)),
    Row("piecewise", _FLOATS | {"u8"}, after=POINTWISE),
    Row("region", _ANY, after=POINTWISE),
)  # fmt: skip
"""By falling claim: an anchor belongs to one family, what nothing absorbs becomes a region."""

CUSTOM = Row("custom", None, cut=False)
"""Operators of the user, which bring their programs."""

FAMILY_ROWS = {row.name: row for row in (*ROWS, CUSTOM)}
