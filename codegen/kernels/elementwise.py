"""Element-wise operators as tile instructions: the one place that knows how ONNX operators are computed on tiles.

Every family uses it: region kernels for all of their nodes, the others for what they absorb around the anchor.
Operators of several instructions are computed in f32 when the dtype is f16 or bf16, and rounded once. Where the target
has no 64-bit integers, instructions on them become those on their words (`wide_integers`).
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import TypeAlias

import numpy as np

from codegen.kernels.block_emitter import BlockEmitter, Operand, Words, immediate, views
from codegen.kernels.circular import FUNCTIONS
from codegen.kernels.near_one import expm1, log1p
from codegen.kernels.wide_integers import emit_wide, in_words
from codegen.tile.ir import Imm, View
from graph_opt.ir.core import Node, Value
from tensor_types.dtypes import BF16, BOOL, F16, F32, F64, I32, I64, DType

Rule: TypeAlias = Callable[[BlockEmitter, Node, list[Operand | None]], Operand]


def _given(operands: list[Operand | None]) -> list[Operand]:
    return [o for o in operands if o is not None]


def _plain(op: str, **attrs: int | str) -> Rule:
    """An operator that is one instruction; its result has the node's dtype."""

    def rule(e: BlockEmitter, node: Node, operands: list[Operand | None]) -> Operand:
        return e.apply(op, node.output.dtype, *_given(operands), **attrs)

    return rule


def _attr(node: Node, name: str, default: float) -> float:
    """An attribute, which ONNX keeps in f32, as its defaults."""
    value = node.attrs.get(name, default)
    return float(np.float32(value))  # type: ignore[arg-type]


class _Math:
    """Arithmetic in one dtype: short names for `apply`."""

    def __init__(self, e: BlockEmitter, dtype: DType) -> None:
        self.e, self.dtype = e, dtype

    def __call__(self, op: str, *operands: Operand | float) -> Operand:
        return self.e.apply(op, self.dtype, *operands)

    def expm1(self, x: Operand) -> Operand:
        return expm1(self, lambda a, limit: self.test(a, "lt", limit), x, self.dtype)

    def test(self, a: Operand, mode: str, b: Operand | float) -> Operand:
        return self.e.apply("TCMP", BOOL, a, b, mode=mode)


Formula: TypeAlias = Callable[[_Math, Node, list[Operand]], Operand]


def _formula(formula: Formula) -> Rule:
    """An operator of several instructions, computed in f32 at least and rounded once."""

    def rule(e: BlockEmitter, node: Node, operands: list[Operand | None]) -> Operand:
        dtype = node.output.dtype
        if dtype not in (F16, BF16):
            return formula(_Math(e, dtype), node, _given(operands))
        wide = [o if isinstance(o, Imm) else e.apply("TCVT", F32, o) for o in _given(operands)]
        return e.apply("TCVT", dtype, formula(_Math(e, F32), node, wide))

    return rule


def _unary(function: Callable[[_Math, Operand], Operand]) -> Formula:
    return lambda m, _, xs: function(m, xs[0])


def _variadic(op: str, mean: bool = False) -> Rule:
    def formula(m: _Math, node: Node, xs: list[Operand]) -> Operand:
        result = xs[0]
        for x in xs[1:]:
            result = m(op, result, x)
        return m("TMUL", result, 1.0 / len(xs)) if mean and len(xs) > 1 else result

    return _formula(formula)


def _identity(e: BlockEmitter, node: Node, operands: list[Operand | None]) -> Operand:
    assert operands[0] is not None
    return operands[0]


def _cast(e: BlockEmitter, node: Node, operands: list[Operand | None]) -> Operand:
    (x, source), dtype = (operands[0], node.inputs[0]), node.output.dtype
    assert x is not None and source is not None
    if isinstance(x, Imm) and dtype.is_float:
        return Imm(float(x.value))
    return x if source.dtype == dtype else e.apply("TCVT", dtype, x)


def _mod(e: BlockEmitter, node: Node, operands: list[Operand | None]) -> Operand:
    return e.apply("TFMOD" if node.attrs.get("fmod") else "TREM", node.output.dtype, *_given(operands))


def _compare(mode: str) -> Rule:
    def rule(e: BlockEmitter, node: Node, operands: list[Operand | None]) -> Operand:
        a, b = _given(operands)
        if isinstance(a, Imm):  # the dtype is the other operand's
            swapped = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.get(mode, mode)
            return e.apply("TCMP", BOOL, b, a, mode=swapped)
        return e.apply("TCMP", BOOL, a, b, mode=mode)

    return rule


def _clip(m: _Math, x: Operand, low: Operand | float | None, high: Operand | float | None) -> Operand:
    if low is not None:
        x = m("TMAX", x, low)
    return x if high is None else m("TMIN", x, high)


def _clip_rule(e: BlockEmitter, node: Node, operands: list[Operand | None]) -> Operand:
    x, low, high = (*operands, None, None)[:3]
    assert x is not None
    return _clip(_Math(e, node.output.dtype), x, low, high)


def _pow(e: BlockEmitter, node: Node, operands: list[Operand | None]) -> Operand:
    x, y = _given(operands)
    base, exponent = node.inputs[0], node.inputs[1]
    assert base is not None and exponent is not None
    m = _Math(e, base.dtype)
    if isinstance(y, Imm):
        power = float(y.value)
        if power == 1:
            return x
        if power == 2:
            return m("TMUL", x, x)
        if power == 3:
            return m("TMUL", m("TMUL", x, x), x)
        if base.dtype.is_float and power == 0.5:
            return m("TSQRT", x)
        if base.dtype.is_float and power == -1:
            return m("TRECIP", x)
    compute = base.dtype if base.dtype in (F32, F64) else F32 if base.dtype.is_float else F64
    x = x if isinstance(x, Imm) or base.dtype == compute else e.apply("TCVT", compute, x)
    y = y if isinstance(y, Imm) or exponent.dtype == compute else e.apply("TCVT", compute, y)
    result = e.apply("TPOW", compute, x, y)
    return result if compute == base.dtype else e.apply("TCVT", base.dtype, result)


def _is_inf(e: BlockEmitter, node: Node, operands: list[Operand | None]) -> Operand:
    (x,) = _given(operands)
    positive, negative = node.attrs.get("detect_positive", 1), node.attrs.get("detect_negative", 1)
    if positive and negative:
        return e.apply("TISINF", BOOL, x)
    if not positive and not negative:
        return e.apply("TCMP", BOOL, x, float("inf"), mode="gt")
    return e.apply("TCMP", BOOL, x, float("inf") if positive else float("-inf"), mode="eq")


def _shift(e: BlockEmitter, node: Node, operands: list[Operand | None]) -> Operand:
    return e.apply("TSHL" if node.attrs["direction"] == "LEFT" else "TSHR", node.output.dtype, *_given(operands))


def _relu(e: BlockEmitter, node: Node, operands: list[Operand | None]) -> Operand:
    dtype = node.output.dtype
    (x,) = _given(operands)
    return e.apply("TRELU", dtype, x) if dtype.is_float else e.apply("TMAX", dtype, x, 0)


def _leaky_relu(m: _Math, node: Node, xs: list[Operand]) -> Operand:
    return m("TSEL", m.test(xs[0], "lt", 0.0), m("TMUL", xs[0], _attr(node, "alpha", 0.01)), xs[0])


def _prelu(m: _Math, node: Node, xs: list[Operand]) -> Operand:
    return m("TSEL", m.test(xs[0], "lt", 0), m("TMUL", xs[0], xs[1]), xs[0])


def _elu(m: _Math, node: Node, xs: list[Operand]) -> Operand:
    below = m("TMUL", m.expm1(xs[0]), _attr(node, "alpha", 1.0))
    return m("TSEL", m.test(xs[0], "lt", 0.0), below, xs[0])


def _selu(m: _Math, node: Node, xs: list[Operand]) -> Operand:
    alpha, gamma = _attr(node, "alpha", 1.67326319217681884765625), _attr(node, "gamma", 1.05070102214813232421875)
    below = m("TMUL", m.expm1(xs[0]), alpha)
    return m("TMUL", m("TSEL", m.test(xs[0], "le", 0.0), below, xs[0]), gamma)


def _celu(m: _Math, node: Node, xs: list[Operand]) -> Operand:
    alpha = _attr(node, "alpha", 1.0)
    below = m("TMUL", m.expm1(m("TMUL", xs[0], 1.0 / alpha)), alpha)
    return m("TADD", m("TMAX", xs[0], 0.0), m("TMIN", below, 0.0))


def _thresholded_relu(m: _Math, node: Node, xs: list[Operand]) -> Operand:
    return m("TSEL", m.test(xs[0], "gt", _attr(node, "alpha", 1.0)), xs[0], Imm(0.0))


def _hard_sigmoid(m: _Math, node: Node, xs: list[Operand]) -> Operand:
    line = m("TADD", m("TMUL", xs[0], _attr(node, "alpha", 0.2)), _attr(node, "beta", 0.5))
    return _clip(m, line, 0.0, 1.0)


_SIXTH = float(np.float32(1 / 6))
"""HardSwish is a HardSigmoid with this attribute."""


def _hard_swish(m: _Math, node: Node, xs: list[Operand]) -> Operand:
    return m("TMUL", xs[0], _clip(m, m("TADD", m("TMUL", xs[0], _SIXTH), 0.5), 0.0, 1.0))


def _gelu(m: _Math, node: Node, xs: list[Operand]) -> Operand:
    x = xs[0]
    if node.attrs.get("approximate", "none") == "tanh":
        # (1 + tanh u) / 2 is the logistic function of 2u, which keeps its relative accuracy far below 0.
        cubic = m("TADD", m("TMUL", m("TMUL", x, x), 0.044715), 1.0)
        return m("TMUL", x, m("TSIGMOID", m("TMUL", m("TMUL", x, cubic), 1.5957691216057308)))
    inner = m("TERF", m("TMUL", x, 0.7071067811865476))
    return m("TMUL", m("TMUL", x, 0.5), m("TADD", inner, 1.0))


def _swish(default: float) -> Formula:
    def formula(m: _Math, node: Node, xs: list[Operand]) -> Operand:
        alpha = _attr(node, "alpha", default)
        return m("TMUL", xs[0], m("TSIGMOID", xs[0] if alpha == 1.0 else m("TMUL", xs[0], alpha)))

    return formula


def _softplus(m: _Math, node: Node, xs: list[Operand]) -> Operand:
    """max(x, 0) + ln(1 + e**-|x|), which neither overflows nor loses small results."""
    return m("TADD", m("TMAX", xs[0], 0.0), log1p(m, m("TEXP", m("TNEG", m("TABS", xs[0])))))


def _mish(m: _Math, node: Node, xs: list[Operand]) -> Operand:
    """x tanh(ln(1 + e**x)) is x n / (n + 2) with n = e**x (e**x + 2); beyond 20 the quotient is 1."""
    power = m("TEXP", m("TMIN", xs[0], 20.0))
    n = m("TMUL", power, m("TADD", power, 2.0))
    return m("TMUL", xs[0], m("TDIV", n, m("TADD", n, 2.0)))


def _softsign(m: _Math, node: Node, xs: list[Operand]) -> Operand:
    return m("TDIV", xs[0], m("TADD", m("TABS", xs[0]), 1.0))


def _shrink(m: _Math, node: Node, xs: list[Operand]) -> Operand:
    bias, lambd = _attr(node, "bias", 0.0), _attr(node, "lambd", 0.5)
    if m.dtype.is_integer and bias == int(bias):
        bias = int(bias)
    above = m("TSEL", m.test(xs[0], "gt", lambd), m("TSUB", xs[0], bias), Imm(0))
    return m("TSEL", m.test(xs[0], "lt", -lambd), m("TADD", xs[0], bias), above)


def _shrink_rule(e: BlockEmitter, node: Node, operands: list[Operand | None]) -> Operand:
    """Integers with a bias that is none are shrunk as f64: only the result is cut."""
    dtype = node.output.dtype
    if not dtype.is_integer or _attr(node, "bias", 0.0).is_integer():
        return _formula(_shrink)(e, node, operands)
    wide = [e.apply("TCVT", F64, o) for o in _given(operands)]
    return e.apply("TCVT", dtype, _shrink(_Math(e, F64), node, wide))


def _dequantize(e: BlockEmitter, node: Node, operands: list[Operand | None]) -> Operand:
    x, scale, zero = (*operands, None)[:3]
    assert x is not None and scale is not None
    whole = e.apply("TCVT", I32, x)
    if zero is not None and zero != Imm(0):
        whole = e.apply("TSUB", I32, whole, zero if isinstance(zero, Imm) else e.apply("TCVT", I32, zero))
    value = e.apply("TMUL", F32, e.apply("TCVT", F32, whole), _as_f32(e, node, 1, scale))
    return value if node.output.dtype == F32 else e.apply("TCVT", node.output.dtype, value)


def _quantize(e: BlockEmitter, node: Node, operands: list[Operand | None]) -> Operand:
    x, scale, zero = (*operands, None)[:3]
    assert x is not None and scale is not None
    ratio = e.apply("TDIV", F32, _as_f32(e, node, 0, x), _as_f32(e, node, 1, scale))
    whole = e.apply("TCVT", I32, _clip(_Math(e, F32), ratio, -1e9, 1e9), round=1)
    if zero is not None and zero != Imm(0):
        whole = e.apply("TADD", I32, whole, zero if isinstance(zero, Imm) else e.apply("TCVT", I32, zero))
    return e.apply("TCVT", node.output.dtype, whole, sat=1)


def _as_f32(e: BlockEmitter, node: Node, index: int, operand: Operand) -> Operand:
    source = node.inputs[index]
    assert source is not None
    return operand if isinstance(operand, Imm) or source.dtype == F32 else e.apply("TCVT", F32, operand)


ELEMENTWISE: dict[str, Rule] = {
    "Identity": _identity,
    "Cast": _cast,
    "CastLike": _cast,
    "Add": _plain("TADD"),
    "Sub": _plain("TSUB"),
    "Mul": _plain("TMUL"),
    "Div": _plain("TDIV"),
    "Mod": _mod,
    "Pow": _pow,
    "Neg": _plain("TNEG"),
    "Abs": _plain("TABS"),
    "Sign": _plain("TSIGN"),
    "Floor": _plain("TFLOOR"),
    "Ceil": _plain("TCEIL"),
    "Round": _plain("TROUND"),
    "Exp": _plain("TEXP"),
    "Log": _plain("TLOG"),
    "Sqrt": _plain("TSQRT"),
    "Reciprocal": _plain("TRECIP"),
    "Sin": _plain("TSIN"),
    "Cos": _plain("TCOS"),
    **{name: _formula(_unary(function)) for name, function in FUNCTIONS.items()},
    "Tanh": _plain("TTANH"),
    "Sigmoid": _plain("TSIGMOID"),
    "Erf": _plain("TERF"),
    "IsNaN": _plain("TISNAN"),
    "IsInf": _is_inf,
    "Not": _plain("TNOT"),
    "And": _plain("TAND"),
    "Or": _plain("TOR"),
    "Xor": _plain("TXOR"),
    "BitwiseNot": _plain("TNOT"),
    "BitwiseAnd": _plain("TAND"),
    "BitwiseOr": _plain("TOR"),
    "BitwiseXor": _plain("TXOR"),
    "BitShift": _shift,
    "Equal": _compare("eq"),
    "Less": _compare("lt"),
    "LessOrEqual": _compare("le"),
    "Greater": _compare("gt"),
    "GreaterOrEqual": _compare("ge"),
    "Where": _plain("TSEL"),
    "Min": _variadic("TMIN"),
    "Max": _variadic("TMAX"),
    "Sum": _variadic("TADD"),
    "Mean": _variadic("TADD", mean=True),
    "Clip": _clip_rule,
    "Relu": _relu,
    "LeakyRelu": _formula(_leaky_relu),
    "PRelu": _formula(_prelu),
    "Elu": _formula(_elu),
    "Selu": _formula(_selu),
    "Celu": _formula(_celu),
    "ThresholdedRelu": _formula(_thresholded_relu),
    "HardSigmoid": _formula(_hard_sigmoid),
    "HardSwish": _formula(_hard_swish),
    "Gelu": _formula(_gelu),
    "Swish": _formula(_swish(1.0)),
    "com.microsoft::QuickGelu": _formula(_swish(1.702)),
    "Mish": _formula(_mish),
    "Softplus": _formula(_softplus),
    "Softsign": _formula(_softsign),
    "Shrink": _shrink_rule,
    "DequantizeLinear": _dequantize,
    "QuantizeLinear": _quantize,
}
"""By operator name: how its result is computed from its operands."""

_FLOAT_ONLY = frozenset({"Exp", "Log", "Sqrt", "Tanh", "Sigmoid", "Erf", "Sin", "Cos", "Reciprocal"})


def can_emit(node: Node) -> bool:
    """True if the node is element-wise and its dtypes have instructions.

    Quantisation parameters must be one number; strings, complex numbers and sub-byte integers have no instructions.
    """
    if node.op not in ELEMENTWISE or len(node.outputs) != 1:
        return False
    for v in (*node.inputs, *node.outputs):
        if v is not None and not (v.dtype.is_float or v.dtype.is_integer or v.dtype == BOOL):
            return False
        if v is not None and (v.dtype.bits < 8 and v.dtype != BOOL or v.dtype.name.startswith("f8")):
            return False
    if node.op in _FLOAT_ONLY and not node.output.dtype.is_float:
        return False
    if node.op in ("QuantizeLinear", "DequantizeLinear"):
        return all(v is None or (v.shape is not None and all(d == 1 for d in v.shape)) for v in node.inputs[1:])
    return True


class ElementwiseEmitter(BlockEmitter):
    """Appends the instructions of element-wise nodes over one block; a tile is reused once its last reader has run."""

    def apply(
        self, op: str, dtype: DType, *operands: Operand | int | float | bool, **attrs: int | str
    ) -> View | Words:
        """One instruction into a new tile of `dtype`; on 64-bit integers in words the instructions for those."""
        if any(isinstance(o, Words) for o in operands) or (dtype == I64 and in_words(I64, self.builder.target)):
            start = len(self._made)
            given = [o if isinstance(o, View | Imm | Words) else Imm(o) for o in operands]
            result = emit_wide(self, op, dtype, given, attrs)
            self.release_since(start, result)
            return result
        return super().apply(op, dtype, *operands, **attrs)

    def run(self, nodes: Sequence[Node], values: MutableMapping[str, Operand], keep: Sequence[Value] = ()) -> None:
        """Emits the nodes in order. `values` maps value names to operands; it gains every node's result.

        Constants of one element need no entry. Values of `keep` stay valid until the end.
        """
        kept = {v.name for v in keep}
        last: dict[str, int] = {}
        for i, node in enumerate(nodes):
            for v in (*node.inputs, *node.outputs):
                if v is not None:
                    last[v.name] = i
        for i, node in enumerate(nodes):
            operands = [None if v is None else self._operand(v, values) for v in node.inputs]
            values[node.output.name] = self.emit(node, operands)
            for v in (*node.inputs, *node.outputs):
                if v is None or last[v.name] != i or v.name in kept or v.name not in values:
                    continue
                held = views(values[v.name])
                for name, at in last.items():
                    if name != v.name and (at > i or name in kept) and name in values:
                        held -= views(values[name])
                self.release_views(held)

    def emit(self, node: Node, operands: Sequence[Operand | None]) -> Operand:
        """The result of one node; Identity and casts to the same dtype give their operand."""
        self._made.clear()
        operands = list(operands)
        if node.op != "Identity" and all(o is None or isinstance(o, Imm) for o in operands):
            # Numbers alone have no dtype: an output of the graph may be computed from constants only.
            first, dtype = operands[0], node.inputs[0].dtype  # type: ignore[union-attr]
            operands[0] = self.apply("TEXPANDS", dtype, first)  # type: ignore[arg-type]
        result = ELEMENTWISE[node.op](self, node, operands)
        self.release_since(0, result)
        return result

    @staticmethod
    def _operand(value: Value, values: MutableMapping[str, Operand]) -> Operand:
        if value.name in values:
            return values[value.name]
        constant = immediate(value)
        if constant is None:
            raise KeyError(value.name)
        return constant
