"""AI CPU operators against onnxruntime, one node at a time."""
# ruff: noqa: E501 (tables of cases read better with one case a line)

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from acl_runtime.aicpu import evaluate, implemented_ops
from atc.exact_products import make_products_exact
from tensor_types.errors import InvalidModel, UnsupportedOperator

RNG = np.random.default_rng(0)


def f(*shape: int, low: float = -3, high: float = 3) -> np.ndarray:
    return RNG.uniform(low, high, shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def draw(low: int, high: int, *shape: int, kind: type = np.int64) -> np.ndarray:
    return RNG.integers(low, high, shape).astype(kind)


def reference(op: str, inputs: list[Any], attrs: dict[str, Any], n_outputs: int, opset: int) -> list[np.ndarray]:
    """What onnxruntime computes, with its optimisations off."""
    names = ["" if a is None else f"i{n}" for n, a in enumerate(inputs)]
    outputs = [f"o{n}" for n in range(n_outputs)]
    attrs = {k: onnx.numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in attrs.items()}
    domain, _, plain = op.rpartition("::")
    node = helper.make_node(plain, names, outputs, domain=domain, **attrs)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), list(a.shape))
            for n, a in zip(names, inputs, strict=True)
            if a is not None
        ],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    make_products_exact(model)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {n: a for n, a in zip(names, inputs, strict=True) if a is not None})


X, Y, POSITIVE, UNIT = f(3, 4, 5), f(4, 1), f(3, 4, low=0.1, high=4), f(3, 4, low=-0.9, high=0.9)
IMAGE = f(2, 4, 9, 8)
A, B = draw(-9, 9, 3, 4), draw(1, 9, 4)

Case = tuple[str, list[Any], dict[str, Any]]
UNARY: list[Case] = [
    (op, [f(3, 4)], {})
    for op in (
        "Abs Neg Ceil Floor Round Exp Sin Cos Tan Atan Sinh Cosh Tanh Asinh Sign Reciprocal Erf Sigmoid Softplus Relu "
        "Softsign HardSwish Mish LeakyRelu Elu Celu Selu ThresholdedRelu HardSigmoid Gelu Shrink IsNaN IsInf Identity "
        "Shape Size Softmax LogSoftmax Hardmax"
    ).split()
] + [(op, [UNIT], {}) for op in "Asin Acos Atanh".split()]
ELEMENTWISE: list[Case] = [
    ("Sqrt", [POSITIVE], {}), ("Log", [POSITIVE], {}), ("Acosh", [POSITIVE + 1], {}),
    ("Gelu", [f(3, 4)], {"approximate": "tanh"}), ("LeakyRelu", [f(3, 4)], {"alpha": 0.3}),
    ("IsInf", [np.array([np.inf, -np.inf, 1, np.nan], np.float32)], {"detect_negative": 0}),
    *((op, [X, Y], {}) for op in "Add Sub Mul Div Max Min Sum Mean PRelu Greater Less Equal GreaterOrEqual".split()),
    ("Pow", [POSITIVE, f(4)], {}), ("Pow", [A, np.abs(B) % 4], {}), ("Div", [A, B], {}), ("Div", [A, -B], {}),
    ("Mod", [A, B], {}), ("Mod", [A, -B], {}), ("Mod", [X, Y], {"fmod": 1}), ("Mod", [A, B], {"fmod": 1}),
    ("BitShift", [draw(0, 99, 5, kind=np.uint32), draw(0, 9, 5, kind=np.uint32)], {"direction": "LEFT"}),
    ("BitwiseAnd", [A, B], {}), ("BitwiseXor", [A, B], {}), ("BitwiseNot", [A], {}),
    ("And", [A > 0, B > 4], {}), ("Xor", [A > 0, B > 4], {}), ("Not", [A > 0], {}),
    ("Clip", [X, np.float32(-1), np.float32(1)], {}), ("Clip", [X, None, np.float32(1)], {}),
    ("Clip", [A, np.int64(-3), np.int64(3)], {}), ("Where", [X > 0, X, Y], {}),
    ("Max", [f(3), f(3), f(3)], {}),
    ("Cast", [X * 100], {"to": TensorProto.INT32}), ("Cast", [X], {"to": TensorProto.BOOL}),
    ("Cast", [X], {"to": TensorProto.FLOAT16}), ("Cast", [A], {"to": TensorProto.UINT8}),
    ("Cast", [A > 0], {"to": TensorProto.FLOAT}), ("Cast", [np.float16(X)], {"to": TensorProto.DOUBLE}),

    ("Cast", [np.array(["1.5", "-2", "7"], object)], {"to": TensorProto.FLOAT}),
    ("Add", [np.float16(X), np.float16(Y)], {}), ("CastLike", [X, A], {}),
]  # fmt: skip
SHAPES: list[Case] = [
    ("Reshape", [X, ints(0, -1, 2)], {}), ("Flatten", [X], {"axis": 2}), ("Flatten", [X], {"axis": -3}),
    ("Squeeze", [f(1, 3, 1), ints(0)], {}), ("Squeeze", [f(1, 3, 1)], {}), ("Unsqueeze", [X, ints(0, -1)], {}),
    ("Transpose", [X], {"perm": [2, 0, 1]}), ("Transpose", [X], {}), ("Concat", [X, X], {"axis": -1}),
    ("Slice", [X, ints(1, -1), ints(3, -9), ints(1, 2), ints(1, -2)], {}), ("Slice", [X, ints(1), ints(2)], {}),
    ("Slice", [X, ints(0, 3), ints(10**12, 0), ints(2, 1), ints(2, -1)], {}),
    ("Pad", [X, ints(1, 0, 2, 0, 1, 0)], {}), ("Pad", [X, ints(1, -1, 2, 0, 1, -2), np.float32(7)], {}),
    ("Pad", [X, ints(1, 0, 2, 0, 1, 0)], {"mode": "reflect"}), ("Pad", [X, ints(1, 2), None, ints(1)], {"mode": "edge"}),
    ("Pad", [X, ints(1, 2), None, ints(-1)], {"mode": "wrap"}),
    ("Expand", [Y, ints(2, 1, 3)], {}), ("Tile", [X, ints(2, 1, 3)], {}),
    ("ConstantOfShape", [ints(2, 3)], {"value": np.array([7], np.int64)}), ("ConstantOfShape", [ints(2)], {}),
    ("Range", [np.int64(10), np.int64(0), np.int64(-3)], {}), ("Range", [np.float32(0), np.float32(1), np.float32(0.3)], {}),
    ("Gather", [X, draw(-4, 4, 2, 3)], {"axis": 1}), ("Gather", [X, np.array(1)], {}),
    ("GatherElements", [X, draw(-5, 5, 3, 4, 2)], {"axis": 2}), ("GatherElements", [X, draw(-3, 3, 2, 4, 5)], {}),
    ("GatherND", [X, draw(-3, 3, 6, 2)], {}), ("GatherND", [X, draw(-3, 3, 3, 2, 1)], {"batch_dims": 1}),
    ("ScatterND", [X, ints(2, 0).reshape(2, 1), f(2, 4, 5)], {}),
    ("ScatterND", [X, ints(2, 2).reshape(2, 1), f(2, 4, 5)], {"reduction": "add"}),
    ("ScatterElements", [X, ints(1, 3).reshape(1, 2, 1), f(1, 2, 1)], {"axis": 1}),
    ("ScatterElements", [X, ints(1, 1).reshape(1, 2, 1), f(1, 2, 1)], {"axis": 1, "reduction": "mul"}),
    ("NonZero", [np.where(X > 0, X, 0)], {}), ("Compress", [X, np.array([True, False, True])], {"axis": 1}),
    ("Compress", [X, np.array([True, False, True])], {}),
    ("OneHot", [draw(-4, 4, 2, 3), np.int64(4), f(2)], {}), ("OneHot", [draw(0, 6, 2, 3), np.int64(4), f(2)], {"axis": 1}),
    ("EyeLike", [X[0]], {"k": 1}), ("Trilu", [X], {}), ("Trilu", [X, np.int64(1)], {"upper": 0}),
    ("ReverseSequence", [X, ints(3, 1, 2, 0)], {}), ("DepthToSpace", [f(1, 8, 2, 3)], {"blocksize": 2}),
    ("DepthToSpace", [f(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}), ("SpaceToDepth", [f(1, 2, 4, 6)], {"blocksize": 2}),
]  # fmt: skip
REDUCTIONS: list[Case] = [
    *((op, [POSITIVE, ints(1)], {"keepdims": k}) for k in (0, 1) for op in (
        "ReduceSum ReduceMean ReduceProd ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum "
        "ReduceLogSumExp").split()),
    ("ReduceMean", [X], {}), ("ReduceSum", [A, ints(0, 1)], {}), ("ReduceSum", [X, ints()], {"noop_with_empty_axes": 1}),
    ("ReduceMax", [X, ints(-1, 0)], {"keepdims": 0}),
    ("ArgMax", [draw(0, 3, 4, 6)], {"axis": 1}), ("ArgMin", [draw(0, 3, 4, 6)], {"axis": 1, "select_last_index": 1}),
    ("ArgMax", [X], {"keepdims": 0}), ("Softmax", [X], {"axis": 1}), ("LogSoftmax", [X * 30], {"axis": 0}),
    ("CumSum", [X, np.int64(1)], {}), ("CumSum", [X, np.int64(-1)], {"exclusive": 1, "reverse": 1}),
    ("LayerNormalization", [X, f(5), f(5)], {}), ("LayerNormalization", [X, f(4, 5)], {"axis": 1, "epsilon": 1e-2}),
    ("BatchNormalization", [IMAGE, f(4), f(4), f(4), f(4, low=0.5, high=2)], {}),
    ("InstanceNormalization", [IMAGE, f(4), f(4)], {}), ("GroupNormalization", [IMAGE, f(4), f(4)], {"num_groups": 2}),
    ("LpNormalization", [X], {"axis": 1}), ("LRN", [IMAGE], {"size": 3}), ("MeanVarianceNormalization", [IMAGE], {}),
]  # fmt: skip
PRODUCTS: list[Case] = [
    ("MatMul", [f(2, 1, 3, 4), f(5, 4, 6)], {}), ("MatMul", [f(4), f(4, 2)], {}),
    ("Gemm", [f(4, 3), f(5, 4), f(5)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}), ("Gemm", [f(2, 3), f(3, 4)], {}),
    ("Einsum", [f(2, 3, 4), f(2, 4, 5)], {"equation": "bij,bjk->bki"}), ("Det", [f(3, 4, 4)], {}),
    ("Conv", [IMAGE, f(6, 4, 3, 3), f(6)], {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2]}),
    ("Conv", [IMAGE, f(8, 1, 3, 2)], {"group": 4, "auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ("Conv", [f(2, 3, 10), f(4, 3, 3)], {"auto_pad": "SAME_UPPER"}), ("Conv", [f(1, 2, 4, 5, 6), f(3, 2, 2, 2, 2)], {}),
    ("ConvTranspose", [IMAGE, f(4, 3, 3, 2), f(3)], {"strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 0]}),
    ("ConvTranspose", [IMAGE, f(4, 3, 3, 3)], {"group": 2, "dilations": [2, 1]}),
    ("ConvTranspose", [IMAGE, f(4, 3, 3, 3)], {"strides": [2, 2], "output_shape": [18, 16]}),
    ("MaxPool", [IMAGE], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    ("MaxPool", [IMAGE], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "dilations": [2, 3], "auto_pad": "VALID"}),
    ("MaxPool", [draw(0, 99, 1, 2, 6, 6, kind=np.uint8)], {"kernel_shape": [2, 2]}),
    ("AveragePool", [IMAGE], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    ("AveragePool", [IMAGE], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1}),
    ("AveragePool", [IMAGE], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ("LpPool", [IMAGE], {"kernel_shape": [2, 2], "p": 3}), ("GlobalAveragePool", [IMAGE], {}),
    ("GlobalMaxPool", [IMAGE], {}), ("GlobalLpPool", [IMAGE], {}),
    ("Col2Im", [f(1, 12, 4), ints(3, 3), ints(2, 2)], {}),
]  # fmt: skip
U8, I8 = draw(0, 255, 3, 4, kind=np.uint8), draw(-128, 127, 4, 5, kind=np.int8)
QUANTISED: list[Case] = [
    ("QuantizeLinear", [X, np.float32(0.02), np.uint8(120)], {}), ("QuantizeLinear", [X, f(4, low=0.01, high=0.1), draw(-5, 5, 4, kind=np.int8)], {}),
    ("QuantizeLinear", [X, f(5, low=0.001, high=0.1)], {"axis": 2, "output_dtype": TensorProto.INT16}),
    ("DequantizeLinear", [U8, np.float32(0.1), np.uint8(7)], {}), ("DequantizeLinear", [I8, f(4), draw(-5, 5, 4, kind=np.int8)], {"axis": 0}),
    ("DequantizeLinear", [draw(-9**9, 9**9, 5, kind=np.int32), np.float32(1e-3)], {}),
    ("DequantizeLinear", [I8, f(2, 5), draw(-5, 5, 2, 5, kind=np.int8)], {"axis": 0, "block_size": 2}),
    ("MatMulInteger", [U8, I8, np.uint8(9), draw(-9, 9, 5, kind=np.int8)], {}), ("MatMulInteger", [U8, I8], {}),
    ("ConvInteger", [draw(0, 255, 1, 2, 5, 5, kind=np.uint8), draw(0, 255, 3, 2, 3, 3, kind=np.uint8), np.uint8(5), np.uint8(7)], {"pads": [1, 1, 1, 1]}),
    ("QLinearMatMul", [U8, np.float32(0.1), np.uint8(9), I8, np.float32(0.2), np.int8(3), np.float32(90.7), np.uint8(128)], {}),
    ("QLinearConv", [draw(0, 255, 1, 2, 5, 5, kind=np.uint8), np.float32(0.1), np.uint8(9), draw(-99, 99, 3, 2, 3, 3, kind=np.int8), f(3, low=0.1, high=0.3),
                     np.zeros(3, np.int8), np.float32(71.3), np.uint8(99), draw(-999, 999, 3, kind=np.int32)], {"strides": [2, 2]}),
]  # fmt: skip
RESIZE: list[Case] = [
    ("Resize", [f(1, 2, 4, 5), None, np.array([1, 1, 2, 1.7], np.float32)], {"mode": m, "coordinate_transformation_mode": c})
    for m in ("nearest", "linear", "cubic") for c in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
] + [
    ("Resize", [f(1, 2, 4, 5), None, None, ints(1, 2, 3, 3)], {"mode": "nearest", "nearest_mode": n})
    for n in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
] + [
    ("Resize", [f(1, 1, 8, 8), None, np.array([1, 1, 0.6, 0.4], np.float32)], {"mode": "linear", "antialias": 1}),
    ("Resize", [f(1, 1, 8, 8), None, np.array([1, 1, 0.6, 0.4], np.float32)], {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5}),
    ("Resize", [f(1, 1, 4, 4), np.array([0, 0, 0.1, 0.2, 1, 1, 0.7, 1.1], np.float32), None, ints(1, 1, 3, 5)],
     {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}),
]  # fmt: skip


def recurrent(op: str, gates: int, attrs: dict[str, Any], states: bool = True, lengths: bool = False) -> Case:
    directions = 2 if attrs.get("direction") == "bidirectional" else 1
    inputs: list[Any] = [
        f(4, 3, 5),
        f(directions, gates * 6, 5) / 3,
        f(directions, gates * 6, 6) / 3,
        f(directions, 2 * gates * 6),
    ]
    inputs.append(np.array([4, 2, 3], np.int32) if lengths else None)
    if states:
        inputs += [f(directions, 3, 6)] * (2 if op == "LSTM" else 1)
    return op, inputs, {"hidden_size": 6, **attrs}


RECURRENT: list[Case] = [
    recurrent("LSTM", 4, {}), recurrent("LSTM", 4, {"direction": "bidirectional"}, lengths=True),
    recurrent("LSTM", 4, {"direction": "reverse", "clip": 0.7}, states=False, lengths=True),
    recurrent("GRU", 3, {}), recurrent("GRU", 3, {"linear_before_reset": 1, "direction": "bidirectional"}, lengths=True),
    recurrent("RNN", 1, {"activations": ["Relu"]}), recurrent("RNN", 1, {"direction": "reverse"}, lengths=True),
]  # fmt: skip
ROIS = np.array([[0.5, 1, 6, 7], [2, 0, 3, 2.5]], np.float32)
TURNED = np.array([[6, 1, 5.5, 7], [2, 0, 3, 2.5], [1, 6, 5, 5.2], [3, 3, 3, 3]], np.float32)
"""Regions whose ends lie before their beginnings (a little: further ones overflow in onnxruntime), one of no extent."""
GRID = f(2, 3, 5, 2, low=-1.3, high=1.3)
BOXES = np.concatenate([f(2, 9, 2, low=0, high=5), f(2, 9, 2, low=5, high=9)], -1)
SAMPLING: list[Case] = [
    *(("RoiAlign", [IMAGE, ROIS, ints(1, 0)], {"output_height": 3, "output_width": 2, "sampling_ratio": 2, **a}) for a in (
        {}, {"mode": "max"}, {"coordinate_transformation_mode": "output_half_pixel", "spatial_scale": 0.5})),
    *(("RoiAlign", [IMAGE, TURNED, ints(1, 0, 1, 0)], {"output_height": 2, "output_width": 2, "mode": m, "coordinate_transformation_mode": c})
      for m, c in (("avg", "half_pixel"), ("avg", "output_half_pixel"), ("max", "half_pixel"))),
    *(("GridSample", [IMAGE, GRID], {"mode": m, "padding_mode": p, "align_corners": c})
      for m in ("linear", "nearest", "cubic") for p in ("zeros", "border", "reflection") for c in (0, 1)),
    ("AffineGrid", [f(2, 2, 3), ints(2, 3, 4, 5)], {"align_corners": 1}), ("AffineGrid", [f(2, 3, 4), ints(2, 3, 4, 5, 6)], {}),
    ("CenterCropPad", [X, ints(5, 2)], {"axes": [0, 2]}),
    ("NonMaxSuppression", [BOXES, f(2, 3, 9, low=0, high=1), ints(4), np.float32([0.5]), np.float32([0.2])], {}),
    ("NonMaxSuppression", [BOXES, f(2, 3, 9, low=0, high=1), ints(9), np.float32([0.1])], {"center_point_box": 1}),
    ("DFT", [f(2, 10, 1), None, np.int64(1)], {}), ("DFT", [f(2, 10, 2), np.int64(8), np.int64(1)], {"inverse": 1}),
    ("DFT", [f(2, 10, 1), None, np.int64(-2)], {"onesided": 1}),
    ("STFT", [f(2, 30, 1), np.int64(4), f(8), np.int64(8)], {}), ("STFT", [f(1, 30, 1), np.int64(5), None, np.int64(10)], {"onesided": 0}),
    ("HannWindow", [np.int64(9)], {}), ("HammingWindow", [np.int64(8)], {"periodic": 0}), ("BlackmanWindow", [np.int64(7)], {}),
    ("MelWeightMatrix", [np.int64(8), np.int64(64), np.int64(8000), np.float32(20), np.float32(4000)], {}),
]  # fmt: skip
W8, R8 = draw(-127, 127, 2, 5, 24, kind=np.int8), draw(-127, 127, 2, 6, 24, kind=np.int8)
QUANTISED_LSTM: Case = (
    "com.microsoft::DynamicQuantizeLSTM",
    [f(4, 1, 5), W8, R8, f(2, 48), None, f(2, 1, 6), f(2, 1, 6), None,
     np.float32([0.005, 0.004]), np.zeros(2, np.int8), np.float32([0.003, 0.005]), np.zeros(2, np.int8)],
    {"hidden_size": 6, "direction": "bidirectional"},
)  # fmt: skip
STRINGS: list[Case] = [
    ("StringConcat", [np.array(["a", "b"], object), np.array(["c"], object)], {}),
    ("RegexFullMatch", [np.array(["ab1", "b"], object)], {"pattern": r"[a-z]+\d"}),
]  # fmt: skip
SEVERAL: list[tuple[Case, int]] = [
    (("TopK", [draw(0, 5, 3, 7).astype(np.float32), ints(4)], {}), 2), (("TopK", [X, ints(2)], {"axis": 1, "largest": 0}), 2),
    (("Split", [X, ints(1, 3)], {"axis": 1}), 2), (("Split", [X], {"axis": 2, "num_outputs": 3}), 3),
    (QUANTISED_LSTM, 3), (("DynamicQuantizeLinear", [X], {}), 3), (("DynamicQuantizeLinear", [np.abs(X)], {}), 3),
    (("Unique", [ints(3, 1, 3, 2, 1)], {}), 4), (("Unique", [ints(3, 1, 3, 2, 1)], {"sorted": 0}), 4),
    (("Unique", [draw(0, 2, 5, 2)], {"axis": 0}), 4), (("StringSplit", [np.array(["a b", "c"], object)], {}), 2),
    (("MaxPool", [IMAGE], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}), 2),
    *((case, 3 if case[0] == "LSTM" else 2) for case in RECURRENT),
]  # fmt: skip
SINGLE = [*UNARY, *ELEMENTWISE, *SHAPES, *REDUCTIONS, *PRODUCTS, *QUANTISED, *RESIZE, *SAMPLING, *STRINGS]
CASES = [(*case, 1) for case in SINGLE] + [(*case, n) for case, n in SEVERAL]


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "n_outputs"), CASES, ids=[f"{n}-{c[0]}" for n, c in enumerate(CASES)]
)
def test_operator(op: str, inputs: list[Any], attrs: dict[str, Any], n_outputs: int) -> None:
    try:
        wanted = reference(op, [None if a is None else np.asarray(a) for a in inputs], attrs, n_outputs, 21)
    except Exception as error:  # onnxruntime has no kernel for every operator, or not yet for this opset
        if "NOT_IMPLEMENTED" in str(error) or "Could not find an implementation" in str(error):
            pytest.skip("onnxruntime has no kernel for it")
        raise
    kept = [None if a is None else np.array(a) for a in inputs]
    got = evaluate(op, attrs, inputs, n_outputs)
    for before, after in zip(kept, inputs, strict=True):
        assert before is None or np.array_equal(before, after, equal_nan=before.dtype.kind == "f"), (
            "an input was written"
        )
    assert len(got) == n_outputs
    for mine, theirs in zip(got, wanted, strict=True):
        mine = np.asarray(mine)
        if theirs.dtype.kind in "OUS":
            assert mine.tolist() == theirs.tolist()
            continue
        assert mine.shape == theirs.shape
        if mine.dtype.kind not in "biuf":  # onnxruntime shows small floats as bytes
            mine, theirs = mine.view(np.uint8), theirs.view(np.uint8)
        assert mine.dtype == theirs.dtype
        if mine.dtype.kind == "f":
            tolerance = 2e-3 if mine.dtype == np.float16 else 2e-5
            np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(mine, theirs)


def test_most_operators_are_compared() -> None:
    compared = {case[0] for case in CASES}
    assert len(compared & set(implemented_ops())) > 120


# What onnxruntime does not have here, against formulas


@pytest.mark.parametrize("image", [-1, 2])
def test_a_region_of_no_image_is_refused(image: int) -> None:
    with pytest.raises(InvalidModel, match="there are 2"):
        evaluate("RoiAlign", {}, [IMAGE[:2], ROIS, ints(0, image)], 1)


def test_casts_to_eight_bit_floats_saturate() -> None:
    values = np.array([1.06, -700, np.nan, 500], np.float32)
    for to, largest in ((TensorProto.FLOAT8E4M3FN, 448), (TensorProto.FLOAT8E5M2, 57344)):
        (y,) = evaluate("Cast", {"to": to}, [values * np.float32(largest / 448)])
        back = y.astype(np.float32)
        assert back[1] == -largest and np.isnan(back[2]) and back[3] == largest
    assert evaluate("Cast", {"to": TensorProto.FLOAT8E4M3FN}, [values])[0][0] == 1.0


def test_string_normalizer_drops_stop_words() -> None:
    words = np.array(["Ab", "x", "The"], object)
    attrs = {"case_change_action": "LOWER", "stopwords": ["the"]}
    assert evaluate("StringNormalizer", attrs, [words])[0].tolist() == ["ab", "x"]
    assert evaluate("StringNormalizer", {**attrs, "is_case_sensitive": 1}, [words])[0].tolist() == ["ab", "x", "the"]


def test_attention_against_the_definition() -> None:
    q, k, v = f(2, 4, 3, 8), f(2, 2, 5, 8), f(2, 2, 5, 8)
    past_k, past_v = f(2, 2, 6, 8), f(2, 2, 6, 8)
    y, present_k, present_v = evaluate("Attention", {"is_causal": 1}, [q, k, v, None, past_k, past_v], 3)
    keys, values = np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)
    np.testing.assert_array_equal(present_k, keys)
    np.testing.assert_array_equal(present_v, values)
    for b in range(2):
        for h in range(4):
            for row in range(3):
                seen = row + 6 + 1  # the past and the rows up to this one
                s = keys[b, h // 2, :seen].astype(np.float64) @ q[b, h, row] / np.sqrt(8)
                p = np.exp(s - s.max()) / np.exp(s - s.max()).sum()
                np.testing.assert_allclose(y[b, h, row], p @ values[b, h // 2, :seen], rtol=1e-5, atol=1e-6)


def test_attention_mask_softcap_and_flat_layout() -> None:
    q, k, v = f(1, 3, 8), f(1, 5, 8), f(1, 5, 8)
    mask = np.array([[1, 1, 0, 1, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]], bool)
    attrs = {"q_num_heads": 2, "kv_num_heads": 2, "softcap": 2.0, "scale": 0.3}
    (y,) = evaluate("Attention", attrs, [q, k, v, mask])
    for h in range(2):
        part = slice(4 * h, 4 * h + 4)
        s = np.tanh(q[0, :, part].astype(np.float64) @ k[0, :, part].T * 0.3 / 2) * 2
        p = np.where(mask, np.exp(s), 0)
        p = p / np.maximum(p.sum(1, keepdims=True), 1e-30)
        np.testing.assert_allclose(y[0, :, part], p @ v[0, :, part], rtol=1e-5, atol=1e-6)


def test_rotary_embedding_rotates_pairs() -> None:
    angle = f(7, 2)
    x, positions = f(1, 2, 3, 4), np.array([[4, 0, 6]])
    for interleaved in (0, 1):
        (y,) = evaluate("RotaryEmbedding", {"interleaved": interleaved}, [x, np.cos(angle), np.sin(angle), positions])
        for s, position in enumerate(positions[0]):
            for pair in range(2):
                a, b = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + 2)
                turned = (x[0, :, s, a] + 1j * x[0, :, s, b]) * np.exp(1j * angle[position, pair])
                np.testing.assert_allclose(y[0, :, s, a] + 1j * y[0, :, s, b], turned, rtol=1e-5, atol=1e-6)


def test_rms_normalization_swish_and_running_product() -> None:
    x, w = f(3, 8), f(8)
    (y,) = evaluate("RMSNormalization", {"epsilon": 1e-3}, [x, w])
    np.testing.assert_allclose(y, x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-3) * w, rtol=1e-5)
    np.testing.assert_allclose(
        evaluate("Swish", {"alpha": 0.5}, [x])[0], x / (1 + np.exp(-0.5 * x.astype(np.float64))), rtol=1e-5
    )
    np.testing.assert_allclose(evaluate("CumProd", {}, [x, np.int64(1)])[0], np.cumprod(x, 1), rtol=1e-5)


def test_sequences_and_optionals() -> None:
    a, b = f(2), f(3)
    (sequence,) = evaluate("SequenceConstruct", {}, [a, b])
    (longer,) = evaluate("SequenceInsert", {}, [sequence, a, np.int64(-1)])
    assert [len(s) for s in longer] == [2, 2, 3] and len(sequence) == 2
    assert evaluate("SequenceAt", {}, [longer, np.int64(-1)])[0] is b
    assert int(evaluate("SequenceLength", {}, [evaluate("SequenceErase", {}, [longer])[0]])[0]) == 2
    np.testing.assert_array_equal(evaluate("ConcatFromSequence", {"axis": 0}, [sequence])[0], np.concatenate([a, b]))
    parts = evaluate("SplitToSequence", {"axis": 1}, [X, np.int64(3)])[0]
    assert [p.shape[1] for p in parts] == [3, 1]
    assert not evaluate("OptionalHasElement", {}, [evaluate("Optional", {}, [])[0]])[0]
    with pytest.raises(InvalidModel, match="position 5"):
        evaluate("SequenceAt", {}, [sequence, np.int64(5)])


def test_control_flow_runs_bodies() -> None:
    """Loop: sum of 0..n-1 with the partial sums scanned; If picks a branch and sees outer values."""
    node = {"op": "Add", "attrs": {}, "inputs": ["total", "number"], "outputs": ["next"]}
    same = {"op": "Identity", "attrs": {}, "inputs": ["condition"], "outputs": ["goes_on"]}
    body = {"inputs": ["number", "condition", "total"], "outputs": ["goes_on", "next", "next"], "nodes": [same, node]}
    total, partial = evaluate("Loop", {"body": body}, [np.int64(5), None, np.int64(0)], 2)
    assert total == 10 and partial.tolist() == [0, 1, 3, 6, 10]
    negate = {"inputs": [], "outputs": ["y"], "nodes": [{"op": "Neg", "inputs": ["x"], "outputs": ["y"]}]}
    three = {
        "inputs": [],
        "outputs": ["c"],
        "nodes": [],
        "constants": {"c": {"dtype": "f32", "shape": [1], "values": [3]}},
    }
    attrs = {"then_branch": negate, "else_branch": three, "captured": ["x"]}
    for flag, wanted in ((True, [-1.0]), (False, [3.0])):
        assert evaluate("If", attrs, [np.array(flag), np.ones(1, np.float32)])[0].tolist() == wanted
    step = {
        "inputs": ["s", "x"],
        "outputs": ["t", "t"],
        "nodes": [{"op": "Add", "inputs": ["s", "x"], "outputs": ["t"]}],
    }
    end, rows = evaluate(
        "Scan", {"body": step, "num_scan_inputs": 1}, [np.zeros(2, np.float32), np.ones((3, 2), np.float32)], 2
    )
    assert end.tolist() == [3, 3] and rows.tolist() == [[1, 1], [2, 2], [3, 3]]
    fused = {"inputs": ["x"], "outputs": ["y"], "nodes": [{"op": "Neg", "inputs": ["x"], "outputs": ["y"]}]}
    assert evaluate("Fused", {"body": fused}, [np.ones(1)])[0].tolist() == [-1]


def test_tensor_scatter_writes_a_cache() -> None:
    past, update = f(2, 1, 6, 3), f(2, 1, 2, 3)
    (y,) = evaluate("TensorScatter", {}, [past, update, ints(1, 4)])
    np.testing.assert_array_equal(y[0, 0, 1:3], update[0, 0])
    np.testing.assert_array_equal(y[1, 0, 4:6], update[1, 0])
    np.testing.assert_array_equal(y[0, 0, 3:], past[0, 0, 3:])
    (y,) = evaluate("TensorScatter", {"mode": "circular"}, [past, update, ints(5, 0)])
    np.testing.assert_array_equal(y[0, 0, [5, 0]], update[0, 0])


def test_bad_indices_and_unknown_operators() -> None:
    for op, inputs in (
        ("Gather", [X, ints(3)]),
        ("GatherND", [X, ints(-4).reshape(1, 1)]),
        ("ScatterND", [X, ints(9).reshape(1, 1), X[:1]]),
    ):
        with pytest.raises(InvalidModel, match="out of range"):
            evaluate(op, {}, inputs)
    with pytest.raises(UnsupportedOperator, match="NoSuchOp"):
        evaluate("NoSuchOp", {}, [])


def test_means_of_nothing_are_nan_and_say_nothing() -> None:
    empty = np.zeros((2, 3, 0), np.float32)
    ones = np.ones(3, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for op, inputs, attrs in (
            ("ReduceMean", [empty, np.array([2])], {}), ("ReduceMean", [empty, np.array([1])], {}),
            ("GlobalAveragePool", [empty], {}), ("InstanceNormalization", [empty, ones, ones], {}),
            ("MeanVarianceNormalization", [empty], {"axes": [0, 2]}), ("LayerNormalization", [empty, ones[:0]], {}),
            ("BatchNormalization", [empty, ones, ones, ones, ones], {"training_mode": 1}),
        ):  # fmt: skip
            for result in evaluate(op, attrs, inputs, 3 if op == "BatchNormalization" else 1):
                assert np.isnan(result).all(), op
    assert evaluate("ReduceMean", {}, [empty, np.array([1])], 1)[0].shape == (2, 1, 0)
