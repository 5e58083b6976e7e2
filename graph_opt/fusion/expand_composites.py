"""Writes operators that are compositions of others, and have no kernel of their own, as those others.

    BiasGelu(a, b)                              -> Gelu(a + b)
    FastGelu(x [, b])                           -> Gelu(x [+ b]) {approximate="tanh"}
    com.microsoft::Gelu(x)                      -> Gelu(x)
    SkipLayerNormalization(x, skip, ...)        -> LayerNormalization(x + skip [+ bias]), the sum a result as well
    SkipSimplifiedLayerNormalization(...)       -> RMSNormalization(x + skip [+ bias]), likewise
    LpNormalization(x)                          -> x / (infinity where the norm of x is 0, else the norm)
    MeanVarianceNormalization(x)                -> d = x - mean(x);  d / (sqrt(mean(d*d)) + 1e-9)
    NonMaxSuppression(boxes, scores, most, ...) -> SelectedBoxes(SelectBoxes(boxes, scores, ...) {most})
    AveragePool(x) {counts pads, rounds up}     -> AveragePool(Pad(x)) {counts no pads, rounds up}

Rules
1. Mean and inverse deviation of the skip norms must be unused.
2. The limit of NonMaxSuppression is a number, and so is that of boxes: the table has a place for each.
3. AveragePool: what a last window has beyond the pads does not count; none of them begins in the pads behind.
4. A row whose norm is 0, or underflows to 0, becomes zeros, as LpNormalization has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from graph_opt.ir import Value
from graph_opt.ir.ops.registry import content_of
from graph_opt.ir.patterns import Declined, Match, OpPattern, Pattern, any_value, attribute, op, optional
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.rules import Rule, RulePass
from tensor_types.dtypes import BF16, F16, F32

_X, _GAMMA, _BETA = any_value("x"), any_value("gamma"), optional(any_value("beta"))
_BIAS = optional(any_value("bias"))
_SKIP_EPSILON = 1e-12
"""The skip norms' own default."""


def _sum(rewriter: Rewriter, match: Match) -> Value:
    """x plus what the match has of skip and bias."""
    total = match["x"]
    for term in (match.get("skip"), match.get("bias")):
        if term is not None:
            total = match.insert(rewriter, "Add", [total, term])
    return total


def _gelu(approximate: str, rewriter: Rewriter, match: Match) -> None:
    match.become(rewriter, "Gelu", [_sum(rewriter, match)], {"approximate": approximate})


def _skip_norm(operator: str, rewriter: Rewriter, match: Match) -> Declined | None:
    root = match.root
    if any(v.uses or rewriter.graph.is_output(v) for v in root.outputs[1:3]):
        return Declined("its mean or deviation is used")
    total = _sum(rewriter, match)
    for result in root.outputs[3:]:
        rewriter.replace(result, total)
    parameters = [match["gamma"], *([match["beta"]] if match.get("beta") else [])]
    attrs = {"axis": -1, "epsilon": root.attrs.get("epsilon", _SKIP_EPSILON)}
    match.become(rewriter, operator, [total, *parameters], attrs)
    return None


def _lp_norm(rewriter: Rewriter, match: Match) -> None:
    x, root, narrow = match["x"], match.root, match["x"].dtype in (F16, BF16)
    axes = rewriter.constant(np.array([attribute(root, "axis")], np.int64), f"{root.name}/axes")
    if narrow:  # a norm of small numbers would have few bits
        x = match.insert(rewriter, "Cast", [x], {"to": F32.onnx})
    length = match.insert(rewriter, f"ReduceL{attribute(root, 'p')}", [x, axes], {"keepdims": 1})
    zero, infinity = (
        rewriter.constant(np.array(value, x.dtype.numpy), f"{root.name}/{name}")
        for value, name in ((0, "zero"), (np.inf, "infinity"))
    )
    is_zero = match.insert(rewriter, "Equal", [length, zero])
    operands = [x, match.insert(rewriter, "Where", [is_zero, infinity, length])]
    if narrow:
        match.become(rewriter, "Cast", [match.insert(rewriter, "Div", operands)], {"to": root.output.dtype.onnx})
    else:
        match.become(rewriter, "Div", operands)


def _mean_variance(rewriter: Rewriter, match: Match) -> None:
    x, root = match["x"], match.root
    axes = rewriter.constant(np.array(attribute(root, "axes"), np.int64), f"{root.name}/axes")
    small = rewriter.constant(np.asarray(1e-9, x.dtype.numpy), f"{root.name}/small")

    def mean(value: Value) -> Value:
        return match.insert(rewriter, "ReduceMean", [value, axes], {"keepdims": 1})

    centred = match.insert(rewriter, "Sub", [x, mean(x)])
    variance = mean(match.insert(rewriter, "Mul", [centred, centred]))
    deviation = match.insert(rewriter, "Sqrt", [variance])
    match.become(rewriter, "Div", [centred, match.insert(rewriter, "Add", [deviation, small])])


def _select_boxes(rewriter: Rewriter, match: Match) -> Declined | None:
    root, limit = match.root, match.get("most")
    content = (0,) if limit is None else content_of(limit)
    if not content or not isinstance(content[0], int) or not isinstance((match["boxes"].shape or (None,) * 3)[1], int):
        return Declined("only the run knows how many boxes there are, or how many are wanted")
    attrs = {"most": max(content[0], 0), "center": root.attrs.get("center_point_box", 0)}
    operands = [match["boxes"], match["scores"], match.get("overlap"), match.get("least")]
    match.become(rewriter, "SelectedBoxes", [match.insert(rewriter, "SelectBoxes", operands, attrs)])
    return None


def _average_pool(rewriter: Rewriter, match: Match) -> Declined | None:
    x, root = match["x"], match.root
    pads = [int(p) for p in root.attrs.get("pads") or ()]  # type: ignore[attr-defined, union-attr]
    if not (attribute(root, "ceil_mode") and attribute(root, "count_include_pad") and any(pads)):
        return Declined("a kernel counts as it does")
    if x.shape is None or attribute(root, "auto_pad") != "NOTSET" or min(pads) < 0:
        return Declined("its pads")
    rank = len(pads) // 2
    strides, dilations = ([int(s) for s in root.attrs.get(k) or (1,) * rank] for k in ("strides", "dilations"))  # type: ignore[attr-defined, union-attr]
    kernel = [int(k) for k in root.attrs["kernel_shape"]]  # type: ignore[union-attr]
    for axis, (size, out) in enumerate(zip(x.shape[2:], (root.output.shape or ())[2:], strict=True)):
        if not isinstance(size, int):
            return Declined("only the run knows where its last windows begin")
        whole = size + pads[axis] + pads[rank + axis]
        reach, step = (kernel[axis] - 1) * dilations[axis] + 1, strides[axis]
        if out != min(-(-(whole - reach) // step), (whole - 1) // step) + 1:
            return Declined("a last window would begin in the pads")
    padding = rewriter.constant(np.array([0, 0, *pads[:rank], 0, 0, *pads[rank:]]), f"{root.name}/pads")
    zero = rewriter.constant(np.zeros((), x.dtype.numpy), f"{root.name}/zero", x.dtype)
    attrs = {k: v for k, v in root.attrs.items() if k not in ("pads", "count_include_pad")}
    match.become(rewriter, "AveragePool", [match.insert(rewriter, "Pad", [x, padding, zero])], attrs)
    return None


def _contrib(name: str, *inputs: Pattern) -> OpPattern:
    return op(f"com.microsoft::{name}", *inputs)


@dataclass(frozen=True)
class ExpandComposites(RulePass):
    """See the module."""

    name: ClassVar[str] = "expand-composites"
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("gelu", _contrib("Gelu", _X), partial(_gelu, "none")),
        Rule("bias-gelu", _contrib("BiasGelu", _X, _BIAS), partial(_gelu, "none")),
        Rule("fast-gelu", _contrib("FastGelu", _X, _BIAS), partial(_gelu, "tanh")),
        Rule(
            "skip-layer-norm",
            _contrib("SkipLayerNormalization", _X, any_value("skip"), _GAMMA, _BETA, _BIAS),
            partial(_skip_norm, "LayerNormalization"),
        ),
        Rule(
            "skip-rms-norm",
            _contrib("SkipSimplifiedLayerNormalization", _X, any_value("skip"), _GAMMA, _BIAS),
            partial(_skip_norm, "RMSNormalization"),
        ),
        Rule(
            "select-boxes",
            op("NonMaxSuppression", any_value("boxes"), any_value("scores"), optional(any_value("most")),
               optional(any_value("overlap")), optional(any_value("least"))),
            _select_boxes,
        ),
        Rule("average-pool", op("AveragePool", _X), _average_pool),
        Rule("lp-norm", op("LpNormalization", _X), _lp_norm),
        Rule("mean-variance-norm", op("MeanVarianceNormalization", _X), _mean_variance),
    )
