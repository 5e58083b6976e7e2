"""Operators of com.microsoft of vision and classical models that are standard operators in another form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from frontend.normalise.contrib import DOMAIN, whole
from frontend.normalise.pending import PendingNode, form
from graph_opt.ir import Value
from tensor_types.dtypes import F32, I32

_CHANNELS_FIRST, _CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)
_ACTIVATIONS = {"Relu": (), "Tanh": (), "Sigmoid": (), "Softplus": (), "LeakyRelu": ("alpha",), "Elu": ("alpha",),
                "HardSigmoid": ("alpha", "beta")}  # fmt: skip
_GRID_MODES = {"bilinear": "linear", "bicubic": "cubic"}


@form(f"{DOMAIN}Trilu {DOMAIN}Pad {DOMAIN}QuantizeLinear {DOMAIN}DequantizeLinear")
def _same(node: PendingNode) -> None:
    """The standard operator of that name."""
    node.become(node.op.removeprefix(DOMAIN), node.inputs, node.attrs)


@form(f"{DOMAIN}TransposeMatMul")
def _transpose_matmul(node: PendingNode) -> None:
    node.become(f"{DOMAIN}FusedMatMul", node.inputs, node.attrs)


@form(f"{DOMAIN}FusedGemm")
def _fused_gemm(node: PendingNode) -> None:
    """Gemm and the activation behind it."""
    activation = str(node.attrs.get("activation", ""))
    attrs = {k: v for k, v in node.attrs.items() if k in ("alpha", "beta", "transA", "transB")}
    if not activation:
        return node.become("Gemm", node.inputs, attrs)
    if activation not in _ACTIVATIONS:
        raise node.refuse(f"the activation {activation}")
    given = {name: node.attrs[f"activation_{name}"] for name in _ACTIVATIONS[activation]
             if f"activation_{name}" in node.attrs}  # fmt: skip
    node.become(activation, [node.emit("Gemm", node.inputs, attrs)], given)


@form(f"{DOMAIN}GridSample")
def _grid_sample(node: PendingNode) -> None:
    mode = str(node.attrs.get("mode", "bilinear"))
    node.become("GridSample", node.inputs, {**node.attrs, "mode": _GRID_MODES.get(mode, mode)})


@form(f"{DOMAIN}Rfft")
def _rfft(node: PendingNode) -> None:
    """The half of the spectrum along the last axis, pairs behind it."""
    _refuse_other_spectra(node)
    pairs = node.emit("Unsqueeze", [node.value(0), node.ints([-1], "pairs")])
    node.become("DFT", [pairs, None, node.ints(-2, "axis")], {"onesided": 1})


@form(f"{DOMAIN}Irfft")
def _irfft(node: PendingNode) -> None:
    """Of half a spectrum, an even number of samples."""
    _refuse_other_spectra(node)
    attrs = {"inverse": 1, "onesided": 1}
    samples = node.emit("DFT", [node.value(0), None, node.ints(-2, "axis")], attrs)
    node.become("Squeeze", [samples, node.ints([-1], "one")])


def _refuse_other_spectra(node: PendingNode) -> None:
    if node.attrs.get("signal_ndim", 1) != 1 or node.attrs.get("normalized", 0):
        raise node.refuse("a normalised spectrum, or one of several axes,")


@form(f"{DOMAIN}Unique")
def _unique(node: PendingNode) -> None:
    """In order of first occurrence; positions of the first ones are no result."""
    uniques, _, inverse, counts = node.emit_all("Unique", [node.value(0)], {"sorted": 0}, 4)
    node.give(1, inverse)
    node.give(2, counts)
    del node.outputs[1:]
    node.become("Identity", [uniques])


@form(f"{DOMAIN}ExpandDims")
def _expand_dims(node: PendingNode) -> None:
    node.become("Unsqueeze", [node.value(0), _vector(node, whole(node, node.value(1)))])


@form(f"{DOMAIN}Range")
def _range(node: PendingNode) -> None:
    start, limit, delta = (node.input(i) for i in range(3))
    if delta is None:
        delta = node.constant(1, node.value(0).dtype, "delta")
    scalar = node.ints(np.zeros(0, np.int64), "scalar")
    node.become("Range", [node.emit("Reshape", [v, scalar]) for v in (start, limit, delta)])


def _vector(node: PendingNode, value: Value) -> Value:
    return node.emit("Reshape", [value, node.ints([1], "one")])


@form(f"{DOMAIN}BiasSoftmax")
def _bias_softmax(node: PendingNode) -> None:
    rank, axis = node.rank(), int(node.number("axis", 1))
    if axis % rank != rank - 1:
        raise node.refuse("a softmax over several axes")
    node.become("Softmax", [node.emit("Add", [node.value(0), node.value(1)])], {"axis": -1})


@form(f"{DOMAIN}BiasAdd")
def _bias_add(node: PendingNode) -> None:
    node.become("Add", [node.emit("Add", [node.value(0), node.value(1)]), node.value(2)])


@form(f"{DOMAIN}BiasSplitGelu")
def _bias_split_gelu(node: PendingNode) -> None:
    left, right = node.emit_all("Split", [node.emit("Add", [node.value(0), node.value(1)])],
                                {"axis": -1, "num_outputs": 2}, 2)  # fmt: skip
    node.become("Mul", [left, node.emit("Gelu", [right])])


@form(f"{DOMAIN}GemmFastGelu")
def _gemm_fast_gelu(node: PendingNode) -> None:
    product = node.emit("MatMul", [node.value(0), node.value(1)])
    bias = node.input(2)
    total = product if bias is None else node.emit("Add", [product, bias])
    node.become("Gelu", [total], {"approximate": "tanh"})


@form(f"{DOMAIN}CDist")
def _cdist(node: PendingNode) -> None:
    """Distances of the rows of A [m, k] and B [n, k], by |a|² + |b|² - 2ab."""
    a, b = node.value(0), node.value(1)
    last, turned = node.ints([1], "axes"), {"perm": (1, 0)}
    squares = [node.emit("ReduceSumSquare", [v, last]) for v in (a, b)]
    total = node.emit("Add", [squares[0], node.emit("Transpose", [squares[1]], turned)])
    product = node.emit("MatMul", [a, node.emit("Transpose", [b], turned)])
    twice = node.emit("Mul", [product, node.constant(2, a.dtype, "two")])
    distance = node.emit("Max", [node.emit("Sub", [total, twice]), node.constant(0, a.dtype, "zero")])
    metric = str(node.attrs.get("metric", "sqeuclidean"))
    if metric not in ("sqeuclidean", "euclidean"):
        raise node.refuse(f"the metric {metric}")
    node.become("Sqrt" if metric == "euclidean" else "Identity", [distance])


@form(f"{DOMAIN}GroupNorm {DOMAIN}SkipGroupNorm")
def _group_norm(node: PendingNode) -> None:
    """GroupNormalization, by default of channels last; the sum with `skip` and `bias` is a result as well."""
    x, gamma, beta = (node.value(i) for i in range(3))
    last = bool(node.number("channels_last", 1))
    channels = (1, 1, 1, -1) if last else (1, -1, 1, 1)
    if (skip := node.input(3)) is not None:
        shape = (0, 1, 1, -1) if last else (0, -1, 1, 1)
        if node.rank(3) == 2:
            skip = node.emit("Reshape", [skip, node.ints(shape, "shape")])
        x = node.emit("Add", [x, skip])
    if (bias := node.input(4)) is not None:
        x = node.emit("Add", [x, node.emit("Reshape", [bias, node.ints(channels, "shape")])])
    node.give(1, x)
    del node.outputs[1:]
    y = node.emit("Transpose", [x], {"perm": _CHANNELS_FIRST}) if last else x
    wide = gamma.dtype if gamma.dtype != y.dtype else None
    y = y if wide is None else node.emit("Cast", [y], {"to": wide.onnx})
    attrs = {"num_groups": int(node.number("groups")), "epsilon": float(node.number("epsilon", 1e-5))}
    y = node.emit("GroupNormalization", [y, gamma, beta], attrs)
    y = y if wide is None else node.emit("Cast", [y], {"to": x.dtype.onnx})
    if int(node.number("activation", 0)):
        y = node.emit("Swish", [y])
    node.become("Transpose" if last else "Identity", [y], {"perm": _CHANNELS_LAST} if last else {})


@form(f"{DOMAIN}NhwcMaxPool")
def _nhwc_max_pool(node: PendingNode) -> None:
    _with_channels_first(node, "MaxPool", node.inputs)


@form(f"{DOMAIN}QLinearConv")
def _qlinear_conv(node: PendingNode) -> None:
    """The standard one; with `channels_last` for x and y."""
    if not int(node.number("channels_last", 0)):
        return node.become("QLinearConv", node.inputs, node.attrs)
    return _with_channels_first(node, "QLinearConv", node.inputs)


def _with_channels_first(node: PendingNode, op: str, inputs: Sequence[Value | None]) -> None:
    """The operator over x and y of channels last."""
    rank = node.rank()
    first, last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    attrs = {k: v for k, v in node.attrs.items() if k != "channels_last"}
    made = node.emit(op, [node.emit("Transpose", [node.value(0)], {"perm": first}), *inputs[1:]], attrs)
    node.become("Transpose", [made], {"perm": last})


@form(f"{DOMAIN}QLinearWhere")
def _qlinear_where(node: PendingNode) -> None:
    condition, *rest = node.inputs
    chosen = node.emit("Where", [condition, *(node.emit("DequantizeLinear", rest[i : i + 3]) for i in (0, 3))])
    node.become("QuantizeLinear", [chosen, *rest[6:8]])


@form(f"{DOMAIN}QLinearReduceMean")
def _qlinear_reduce_mean(node: PendingNode) -> None:
    axes = node.attrs.get("axes")
    listed = [] if axes is None else [node.ints(axes, "axes")]
    mean = node.emit("ReduceMean", [node.emit("DequantizeLinear", node.inputs[:3]), *listed],
                     {"keepdims": int(node.number("keepdims", 1))})  # fmt: skip
    node.become("QuantizeLinear", [mean, *node.inputs[3:5]])


@form(f"{DOMAIN}QGemm")
def _qgemm(node: PendingNode) -> None:
    """An integer product, C in its unit, then the scale of the result, or f32."""
    a, a_scale, a_zero, b, b_scale, b_zero = (node.input(i) for i in range(6))
    c, y_scale, y_zero = (node.input(i) for i in range(6, 9))
    if a is None or b is None or a_scale is None or b_scale is None:
        raise node.error("an input is missing")
    a, b = (node.emit("Transpose", [v], {"perm": (1, 0)}) if int(node.number(name, 0)) else v
            for v, name in ((a, "transA"), (b, "transB")))  # fmt: skip
    total = node.emit("MatMulInteger", [a, b, a_zero, b_zero])
    if c is not None:
        total = node.emit("Add", [total, c if c.dtype == I32 else node.emit("Cast", [c], {"to": I32.onnx})])
    scale = node.emit("Mul", [a_scale, b_scale])
    alpha = float(node.number("alpha", 1.0))
    if alpha != 1.0:
        scale = node.emit("Mul", [scale, node.constant(alpha, F32, "alpha")])
    result = node.emit("Mul", [node.emit("Cast", [total], {"to": F32.onnx}), scale])
    if y_scale is None:
        return node.become("Identity", [result])
    return node.become("QuantizeLinear", [result, y_scale, y_zero])


@form(f"{DOMAIN}IsAllFinite")
def _is_all_finite(node: PendingNode) -> None:
    """One bool over all inputs: whether no element is infinite and none is NaN."""
    bad: Value | None = None
    for value in filter(None, node.inputs):
        checks = [] if int(node.number("isinf_only", 0)) else ["IsNaN"]
        checks += [] if int(node.number("isnan_only", 0)) else ["IsInf"]
        for check in checks:
            flags = node.emit("Cast", [node.emit(check, [value])], {"to": I32.onnx})
            most = node.emit("ReduceMax", [flags], {"keepdims": 0})
            bad = most if bad is None else node.emit("Max", [bad, most])
    if bad is None:
        raise node.error("it looks at nothing")
    node.become("Equal", [bad, node.constant(0, I32, "zero")])
