"""Gives integer convolutions a form that the targets have a kernel for, wherever the families name one.

1. Zero points are folded where the families multiply what is left: that of the weight goes into its bytes, that of the
   input into one number for each channel, the sum of the weight. The sum stands for every window, so what lies outside
   of the input has to count as the zero point: `pad_value`, which has to be known.
2. Unsigned codes of the input are read as codes less 128 where the cube multiplies signed bytes alone; `pad_value`
   moves along, and 128 times the sums is added.
3. Where a kernel takes them, a zero point of the weight stays with it, one of the input that the run decides is what
   lies outside (`zero_outside`), and channels are filled up to whole quads with codes that stand for 0.
4. What bytes cannot do becomes a float convolution of whole numbers, which is exact: the greatest sum that bytes can
   make is known, and where it stays below 2**24 the convolution runs in f32, else in f64. In either dtype every product
   and every partial sum is then a whole number that the dtype holds, so the order of the additions does not matter.
5. A weight known only at run time, and what has no kernel in any of these forms, is left to lowering, which says why.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_opt.fusion.families import Kernels
from graph_opt.ir.arithmetic import Arithmetic
from graph_opt.ir.core import AttrValue, Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from graph_opt.quantisation.arithmetic import is_single, is_zero
from graph_opt.quantisation.fold_zero_points import centred, stored
from graph_opt.quantisation.signed_codes import MIDDLE, Signed, signed
from tensor_types.dtypes import F16, F32, F64, I8, I32, U8, DType, from_numpy

_GREATEST_BYTE = 255
_QUAD = 4
"""Channels that kernels multiply at a time."""
_LEAST_CHANNELS = 2
"""A single channel filled up to a quad takes as many steps as one of f32."""


@dataclass(frozen=True)
class LegaliseIntegerConvolutions:
    """See the module."""

    kernels: Kernels
    name: str = "legalise-integer-convolutions"

    def apply(self, graph: Graph) -> bool:
        rewriter, made = Rewriter(graph), Signed()
        return any([self._legalised(rewriter, n, made) for n in list(graph.nodes) if n.op == "ConvInteger"])

    def _legalised(self, rewriter: Rewriter, node: Node, made: Signed) -> bool:
        x, w, x_zero, w_zero = (*node.inputs, None, None)[:4]
        if x is None or w is None or w.data is None or x.shape is None or node.output.shape is None:
            return False
        if not is_single(x_zero) or (w_zero is not None and w_zero.data is None) or node.attrs.get("zero_outside"):
            return False
        codes = centred(w.data, w_zero, 0)
        weight, rest = stored(w.data, codes)
        if not rest.any() and not (_has_pads(node) and x_zero is not None and x_zero.data is None):
            dtype = from_numpy(weight.dtype)
            if self._has_byte_kernel(rewriter.graph, node, x.dtype, dtype):
                return (x_zero is not None or w_zero is not None) and _fold(rewriter, node, codes, weight, None)
            if x.dtype == U8 and self._has_byte_kernel(rewriter.graph, node, I8, dtype):
                return _fold(rewriter, node, codes, weight, made)
        if not rest.ndim and self._filled(rewriter, node, codes, weight, int(rest)):
            return True
        dtype = F32 if greatest_sum(codes.astype(np.int64)) < 1 << 24 else F64
        return self._has_float_kernel(rewriter.graph, node, dtype) and _as_floats(rewriter, node, codes, dtype)

    def _filled(self, rewriter: Rewriter, node: Node, codes: np.ndarray, weight: np.ndarray, rest: int) -> bool:
        """The convolution of bytes, filled up to quads of channels, with zero points that kernels take, if one does."""
        x, _, x_zero = (*node.inputs, None)[:3]
        assert x is not None and x.shape is not None
        channels = x.shape[1]
        group = int(node.attrs.get("group", 1) or 1)  # type: ignore[call-overload]
        if not isinstance(channels, int) or channels < _LEAST_CHANNELS or group != 1:
            return False
        do = Arithmetic(rewriter, node)
        attrs: dict[str, AttrValue] = {k: v for k, v in node.attrs.items() if k != "pad_value"}
        outside = int(node.attrs.get("pad_value", 0) or 0)  # type: ignore[call-overload]
        pad: Value | None = None
        known = 0 if x_zero is None or x_zero.data is None else int(x_zero.data.reshape(()))
        if _has_pads(node):
            if x_zero is not None and x_zero.data is None:
                if outside:
                    return False
                pad, attrs["zero_outside"] = do.reshape(x_zero, ()), 1
            elif outside + known:
                attrs["pad_value"] = outside + known
        if more := -channels % _QUAD:
            ends = np.zeros((2, x.rank), np.int64)
            ends[1, 1] = more
            x = do("Pad", x, do.constant(ends.reshape(-1), "channels"), do.number(0, x.dtype))
            around = [(0, more if k == 1 else 0) for k in range(weight.ndim)]
            weight = np.pad(weight, around, constant_values=rest)
        zero = do.constant(np.array(rest, weight.dtype), "zero") if rest else None
        total = do("ConvInteger", x, do.constant(weight, "weight"), pad, zero, **attrs)
        product = total.producer
        assert product is not None
        source = self.kernels.preferred_format("ConvInteger", x)
        refused = self.kernels.why_not_as(rewriter.graph, product, data_format=source) is not None
        sums = codes.astype(np.int64).reshape(codes.shape[0], -1).sum(1).reshape(-1, *[1] * (codes.ndim - 2))
        if refused:
            rewriter.erase_dead([product])
            return False
        if known:
            total = do("Sub", total, do.constant((sums * known).astype(np.int32), "shift"))
        if x_zero is not None and x_zero.data is None:
            shift = do("Mul", do.constant(sums.astype(np.int32), "sums"), do.reshape(do.cast(x_zero, I32), ()))
            total = do("Sub", total, shift)
        do.finish(total)
        return True

    def _has_byte_kernel(self, graph: Graph, node: Node, x: DType, w: DType) -> bool:
        return self._has_kernel(graph, node, node.op, x, w)

    def _has_float_kernel(self, graph: Graph, node: Node, dtype: DType) -> bool:
        """True as well where a cube without f32 takes bytes in f16, which holds them and their differences."""
        return any(self._has_kernel(graph, node, "Conv", d, d) for d in ([F64] if dtype == F64 else [F32, F16]))

    def _has_kernel(self, graph: Graph, node: Node, op: str, x: DType, w: DType) -> bool:
        """Whether there is a kernel of bytes or floats without zero points, in the format that layout will give it."""
        source = node.inputs[0]
        assert source is not None
        format_ = self.kernels.preferred_format(op, source)
        ask = {"op": op, "dtypes": {0: x, 1: w}, "absent": (2, 3), "data_format": format_}
        return self.kernels.why_not_as(graph, node, **ask) is None  # type: ignore[arg-type]


def _has_pads(node: Node) -> bool:
    pads = node.attrs.get("pads") or ()
    return any(pads) or str(node.attrs.get("auto_pad", "")).startswith("SAME")  # type: ignore[arg-type]


def _fold(rewriter: Rewriter, node: Node, codes: np.ndarray, weight: np.ndarray, made: Signed | None) -> bool:
    """The convolution of bytes without zero points, of signed ones where `made` is given."""
    x, w, x_zero, w_zero = (*node.inputs, None, None)[:4]
    assert x is not None and w is not None
    do = Arithmetic(rewriter, node)
    attrs: dict[str, AttrValue] = dict(node.attrs)
    outside = int(attrs.get("pad_value", 0) or 0)  # type: ignore[call-overload]
    known = 0 if x_zero is None or x_zero.data is None else int(x_zero.data.reshape(()))
    outside, added = outside + known, -known
    if made is not None:
        outside, added = outside - MIDDLE, added + MIDDLE
        x = signed(do, x, made)
    if outside:
        attrs["pad_value"] = outside
    total = do("ConvInteger", x, w if is_zero(w_zero) else do.constant(weight, "weight"), **attrs)
    sums = codes.astype(np.int64).reshape(codes.shape[0], -1).sum(1).reshape(-1, *[1] * (codes.ndim - 2))
    if added:
        total = do("Add", total, do.constant((sums * added).astype(np.int32), "shift"))
    if x_zero is not None and x_zero.data is None:
        shift = do("Mul", do.constant(sums.astype(np.int32), "sums"), do.reshape(do.cast(x_zero, I32), ()))
        total = do("Sub", total, shift)
    do.finish(total)
    return True


def _as_floats(rewriter: Rewriter, node: Node, codes: np.ndarray, dtype: DType) -> bool:
    """The convolution in a float dtype."""
    x, _, x_zero = (*node.inputs, None)[:3]
    assert x is not None
    do = Arithmetic(rewriter, node)
    data = do.cast(x, dtype)
    if not is_zero(x_zero):
        assert x_zero is not None
        data = do("Sub", data, do.reshape(do.cast(x_zero, dtype), ()))
    total = do("Conv", data, do.constant(codes.astype(dtype.numpy), "weight"), **node.attrs)
    do.finish(do.cast(total, I32))
    return True


def greatest_sum(weight: np.ndarray) -> int:
    """Bound of every partial sum of a channel's products with bytes less their zero point.

    The factors lie in an interval of length 255 that holds 0: at worst all of one sign meet the weights of one sign.
    """
    channels = weight.reshape(weight.shape[0], -1)
    positive = np.maximum(channels, 0).sum(1)
    negative = np.maximum(-channels, 0).sum(1)
    return int(_GREATEST_BYTE * np.maximum(positive, negative).max(initial=0))
