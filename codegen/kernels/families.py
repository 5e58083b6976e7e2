"""The kernel families as the passes see them: what is worth asking of each, and the one answer to what it takes."""

from __future__ import annotations

from collections.abc import Iterable

from codegen.kernels.custom import custom_operators
from codegen.kernels.elementwise import ELEMENTWISE
from codegen.kernels.registry import claims
from codegen.targets.target import Target
from graph_opt.fusion.families import Family, Kernels

_QUANTISATION = frozenset({"QuantizeLinear", "DequantizeLinear"})
_POINTWISE = frozenset(ELEMENTWISE) - {"Identity"} - _QUANTISATION
"""Quantisation is element-wise only with one scale for all, which a set of names cannot say."""


def _family(
    name: str, anchors: Iterable[str] = (), *, before: frozenset[str] = frozenset(),
    after: frozenset[str] = frozenset(), prefers: str = "plain", retypes: bool = True,
) -> Family:  # fmt: skip
    return Family(name, frozenset(anchors), claims, before, after, prefers, retypes)


_FAMILIES = (
    _family("matmul", ["MatMul", "MatMulInteger", "com.microsoft::FusedMatMul"], after=_POINTWISE),
    _family("grouped_matmul", ["GroupedMatMul"], after=_POINTWISE),
    _family("moe", ["MoeRoute"]),
    _family("topk", ["TopK"]),
    _family("conv", ["Conv", "ConvInteger", "ConvTranspose"], after=_POINTWISE, prefers="channels_last"),
    _family(
        "pool", ["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "GlobalLpPool"],
        prefers="channels_last",
    ),
    _family(
        "reduction",
        ["Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "InstanceNormalization",
         "GroupNormalization", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
         "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "ArgMax", "ArgMin"],
        before=_POINTWISE, after=_POINTWISE,
    ),
    _family("attention", ["Attention"]),
    _family("lstm", ["LSTM"]),
    _family("gru", ["GRU"]),
    _family(
        "movement",
        ["Transpose", "Slice", "Concat", "Split", "Pad", "Gather", "GatherElements", "GatherND", "Resize", "Expand",
         "Tile", "Relayout", "CumSum", "Range", "DepthToSpace", "SpaceToDepth"],
    ),
    _family("tensor_scatter", ["TensorScatter"]),
    _family("scatter", ["ScatterND", "ScatterElements"]),
    _family("piecewise", after=_POINTWISE),
    _family("region", after=_POINTWISE),
)  # fmt: skip
"""By falling claim: an anchor belongs to one family, what nothing absorbs becomes a region."""


def families() -> tuple[Family, ...]:
    """The families of openatc and, behind them, that of the operators registered with a tile program."""
    return (*_FAMILIES, _family("custom", custom_operators(), retypes=False))


def kernels(targets: Iterable[Target]) -> Kernels:
    """The families, asked for all of these targets at once: those that one graph is lowered for."""
    return Kernels(families(), tuple({t.name: t for t in targets}.values()))
