"""Names that Ascend's tools give to operators: by them users name types in files, and viewers show nodes."""

from __future__ import annotations

from graph_opt.ir import Node, ops

ASCEND_TYPES: dict[str, tuple[str, ...]] = {
    "Conv": ("Conv2D", "Conv3D", "DepthwiseConv2D"),
    "ConvTranspose": ("Conv2DTranspose", "Conv2DTransposeD", "Conv3DTranspose", "Deconvolution"),
    "MatMul": ("MatMulV2", "BatchMatMulV2", "BatchMatMul"),
    "Gemm": ("MatMulV2", "FullyConnection"),
    "Softmax": ("SoftmaxV2",),
    "LogSoftmax": ("LogSoftmaxV2",),
    "BatchNormalization": ("BNInference", "BatchNorm"),
    "InstanceNormalization": ("InstanceNorm", "InstanceNormV2"),
    "LayerNormalization": ("LayerNorm", "LayerNormV3", "LayerNormV4"),
    "RMSNormalization": ("RmsNorm",),
    "GroupNormalization": ("GroupNorm",),
    "ReduceMean": ("ReduceMean", "ReduceMeanD"),
    "ReduceSum": ("ReduceSum", "ReduceSumD"),
    "ReduceMax": ("ReduceMax", "ReduceMaxD"),
    "ReduceMin": ("ReduceMin", "ReduceMinD"),
    "ReduceProd": ("ReduceProd", "ReduceProdD"),
    "ReduceLogSumExp": ("ReduceLogSumExp",),
    "ReduceSumSquare": ("SquareSumV1",),
    "AveragePool": ("AvgPoolV2", "AvgPool"),
    "GlobalAveragePool": ("GlobalAveragePool", "ReduceMeanD"),
    "MaxPool": ("MaxPool", "MaxPoolV3", "MaxPool3D"),
    "GlobalMaxPool": ("ReduceMax", "ReduceMaxD"),
    "Gather": ("GatherV2", "GatherV2D"),
    "GatherElements": ("GatherElements",),
    "Concat": ("ConcatD", "ConcatV2", "ConcatV2D"),
    "Split": ("SplitV", "SplitVD", "SplitD"),
    "Slice": ("StridedSliceV2", "StridedSliceD", "StridedSlice", "SliceD"),
    "Transpose": ("Transpose", "TransposeD"),
    "Squeeze": ("Squeeze", "SqueezeV3"),
    "Unsqueeze": ("Unsqueeze", "UnsqueezeV3", "ExpandDims"),
    "Flatten": ("FlattenV2",),
    "Expand": ("Expand", "BroadcastTo"),
    "Tile": ("Tile", "TileD"),
    "Pad": ("PadV3", "PadV3D", "PadD"),
    "Resize": ("Resize", "ResizeD", "ResizeBilinearV2", "ResizeNearestNeighborV2"),
    "Upsample": ("Upsample", "ResizeNearestNeighborV2"),
    "ArgMax": ("ArgMaxV2", "ArgMaxD"),
    "ArgMin": ("ArgMin", "ArgMinD"),
    "TopK": ("TopKV2", "TopK", "TopKD"),
    "Div": ("RealDiv", "Div"),
    "Sum": ("AddN",),
    "Clip": ("ClipByValue", "ClipByValueV2", "Relu6"),
    "PRelu": ("PRelu",),
    "LeakyRelu": ("LeakyRelu",),
    "Gelu": ("Gelu", "GeluV2", "FastGelu"),
    "Where": ("Select", "SelectV2"),
    "And": ("LogicalAnd",),
    "Or": ("LogicalOr",),
    "Not": ("LogicalNot",),
    "Max": ("Maximum",),
    "Min": ("Minimum",),
    "CumSum": ("Cumsum", "CumsumD"),
    "ScatterND": ("ScatterNdUpdate", "TensorScatterUpdate"),
    "GatherND": ("GatherNd",),
    "OneHot": ("OneHot", "OneHotD"),
    "NonZero": ("NonZero", "Where"),
    "LSTM": ("DynamicRNN", "CommonLSTM"),
    "GRU": ("DynamicGRUV2", "CommonGRU"),
    "Attention": ("FlashAttentionScore", "PromptFlashAttention"),
    "QuantizeLinear": ("AscendQuant",),
    "DequantizeLinear": ("AscendDequant",),
    "DepthToSpace": ("DepthToSpace",),
    "Reciprocal": ("Reciprocal",),
    "Mod": ("FloorMod", "Mod"),
}
"""Ascend IR types by the operator of ONNX, the usual one first; operators that are missing are called the same."""


def ascend_type(node: Node) -> str:
    """The type under which viewers know a node; of a fused one that of the operator that it is about: the first that is
    not element-wise, else the last."""
    inside = node.subgraphs["body"].nodes if node.op == "Fused" else [node]
    anchor = next((n for n in inside if not _is_elementwise(n)), inside[-1])
    name = anchor.op.rpartition("::")[2]
    known = ASCEND_TYPES.get(name, (name,))
    rank = len(anchor.output.shape or ())
    if name in ("Conv", "ConvTranspose") and rank == 5:
        return "Conv3D" if name == "Conv" else "Conv3DTranspose"
    return "BatchMatMulV2" if name == "MatMul" and rank > 2 else known[0]


def _is_elementwise(node: Node) -> bool:
    declared = ops.get(node.op)
    return declared is not None and declared.kind == "elementwise"


def is_type(op: str, given: str) -> bool:
    """True if a user means the operator `op` ('Domain::Name', or 'Name' of ai.onnx) by `given`, in any case."""
    name = op.rpartition("::")[2]
    return given.lower() in {op.lower(), name.lower(), *(t.lower() for t in ASCEND_TYPES.get(name, ()))}
