"""Element-wise operators: unary, broadcasting, comparisons, logic, casts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graph_opt.ir.ops.broadcast import broadcast
from graph_opt.ir.ops.registry import FLOAT, INT, STRING, Inference, Rule, content_of, declare, same
from tensor_types.dims import Dim, Expr, ceildiv, dmax, dmin, floordiv, mod
from tensor_types.dtypes import BOOL, DType, from_onnx

Combine = Callable[[Inference, Dim, Dim], Dim | None]


def mapped(ctx: Inference, combine: Callable[..., Dim | None], count: int) -> np.ndarray | None:
    """`combine` over the broadcast contents of the first `count` inputs; None when one element is not known."""
    arrays = [ctx.array(i) for i in range(count)]
    if not arrays or any(a is None for a in arrays):
        return None
    found = np.asarray(np.frompyfunc(combine, count, 1)(*arrays), object)
    return None if any(v is None for v in found.reshape(-1)) else found


def _same_dtypes(ctx: Inference) -> None:
    dtypes = {v.dtype for v in ctx.node.inputs if v is not None}
    if len(dtypes) > 1:
        raise ctx.error(f"the inputs have different dtypes: {', '.join(sorted(map(str, dtypes)))}")


def _binary(combine: Combine) -> Rule:
    def rule(ctx: Inference) -> None:
        _same_dtypes(ctx)
        content = mapped(ctx, lambda a, b: combine(ctx, a, b), 2)
        ctx.set(0, ctx.dtype(), broadcast(ctx, ctx.shape(0), ctx.shape(1)), content)

    return rule


def _compare(combine: Combine) -> Rule:
    def rule(ctx: Inference) -> None:
        _same_dtypes(ctx)
        content = mapped(ctx, lambda a, b: combine(ctx, a, b), 2)
        ctx.set(0, BOOL, broadcast(ctx, ctx.shape(0), ctx.shape(1)), content)

    return rule


def _variadic(combine: Callable[[Dim, Dim], Dim] | None) -> Rule:
    def rule(ctx: Inference) -> None:
        _same_dtypes(ctx)
        count = len(ctx.node.inputs)
        content = ctx.array(0)
        for index in range(1, count):
            other = ctx.array(index)
            if combine is None or content is None or other is None:
                content = None
                break
            content = np.asarray(np.frompyfunc(combine, 2, 1)(content, other), object)
        ctx.set(0, ctx.dtype(), broadcast(ctx, *(ctx.shape(i) for i in range(count))), content)

    return rule


_LONGEST_OF_EITHER_SIGN = 60
"""Longest text of a dividend that may be negative: its quotient has it twice, and quotients of quotients grow so."""


def _div(ctx: Inference, a: Dim, b: Dim) -> Dim | None:
    if b == 0:
        return None
    if ctx.dtype().is_float:
        if isinstance(b, int) and b < 0:
            a, b = -a, -b
        return floordiv(a, b) if mod(a, b) == 0 else None
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if not ctx.proves(1, b):
        return None
    # ONNX rounds towards zero and a dim towards minus infinity, which agree for a >= 0.
    if ctx.proves(0, a):
        return floordiv(a, b)
    if len(str(a)) > _LONGEST_OF_EITHER_SIGN:
        return None
    return floordiv(dmax(a, 0), b) - floordiv(dmax(-a, 0), b)


def _mod(ctx: Inference, a: Dim, b: Dim) -> Dim | None:
    if ctx.attr("fmod") and not ctx.proves(0, a):
        return None
    return mod(a, b) if ctx.proves(1, b) else None


def _pow(ctx: Inference) -> None:
    def power(a: Dim, b: Dim) -> Dim | None:
        if not isinstance(b, int) or not 0 <= b <= 4:
            return None
        result: Dim = 1
        for _ in range(b):
            result = result * a
        return result

    ctx.set(0, ctx.dtype(), broadcast(ctx, ctx.shape(0), ctx.shape(1)), mapped(ctx, power, 2))


def _less(ctx: Inference, a: Dim, b: Dim) -> Dim | None:
    return 1 if ctx.proves(a + 1, b) else 0 if ctx.proves(b, a) else None


def _less_equal(ctx: Inference, a: Dim, b: Dim) -> Dim | None:
    return 1 if ctx.proves(a, b) else 0 if ctx.proves(b + 1, a) else None


def _equal(ctx: Inference, a: Dim, b: Dim) -> Dim | None:
    return 1 if a == b else 0 if ctx.proves(a + 1, b) or ctx.proves(b + 1, a) else None


def _logic(table: Callable[[int, int], int]) -> Combine:
    def combine(ctx: Inference, a: Dim, b: Dim) -> Dim | None:
        return int(table(a, b)) if isinstance(a, int) and isinstance(b, int) else None

    return combine


def _identity(ctx: Inference) -> None:
    ctx.set(0, ctx.dtype(), ctx.shape(), ctx.content(0))


def _unary(change: Callable[[Inference, Dim], Dim | None]) -> Rule:
    def rule(ctx: Inference) -> None:
        ctx.set(0, ctx.dtype(), ctx.shape(), mapped(ctx, lambda a: change(ctx, a), 1))

    return rule


def _quotient(ctx: Inference, rounded: Callable[[Dim, Dim], Dim]) -> np.ndarray | None:
    """Rounded content of an input that is itself a quotient, as exporters compute sizes by way of floats."""
    producer = ctx.value(0).producer
    if producer is None or producer.op != "Div":
        return None
    contents = [None if v is None else content_of(v) for v in producer.inputs]
    shapes = [() if v is None or v.shape is None else v.shape for v in producer.inputs]
    if contents[0] is None or contents[1] is None or not (shapes[0] == shapes[1] or len(contents[1]) == 1):
        return None
    above, below = contents[0], contents[1] * (len(contents[0]) if len(contents[1]) == 1 else 1)
    if not all(ctx.proves(0, a) and ctx.proves(1, b) for a, b in zip(above, below, strict=True)):
        return None
    found = np.empty(len(above), object)
    found[:] = [rounded(a, b) for a, b in zip(above, below, strict=True)]
    return found


def _rounded(toward: Callable[[Dim, Dim], Dim]) -> Rule:
    def rule(ctx: Inference) -> None:
        content = ctx.array(0)
        ctx.set(0, ctx.dtype(), ctx.shape(), _quotient(ctx, toward) if content is None else content)

    return rule


def cast_content(ctx: Inference, to: DType) -> np.ndarray | None:
    """What a cast to `to` keeps of the content of input 0."""
    content = ctx.array(0)
    if to.kind == "bool":
        return mapped(ctx, lambda a: 1 if ctx.proves(1, a) or ctx.proves(a, -1) else 0 if a == 0 else None, 1)
    if not (to.is_integer or to.is_float):
        return None
    if content is None and to.is_integer:
        return _quotient(ctx, floordiv)
    if content is not None and to.is_integer and to.bits < 32:
        return None if any(isinstance(v, Expr) or not 0 <= v < 128 for v in content.reshape(-1)) else content
    return content


def _cast(ctx: Inference) -> None:
    to = from_onnx(int(ctx.attr("to")))
    ctx.set(0, to, ctx.shape(), cast_content(ctx, to))


def _cast_like(ctx: Inference) -> None:
    ctx.set(0, ctx.dtype(1), ctx.shape(), cast_content(ctx, ctx.dtype(1)))


def _bit_cast(ctx: Inference) -> None:
    to = from_onnx(int(ctx.attr("to")))
    if to.bits != ctx.dtype().bits:
        raise ctx.error(f"{ctx.dtype()} and {to} differ in width")
    ctx.set(0, to, ctx.shape())


def _where(ctx: Inference) -> None:
    if ctx.dtype(1) != ctx.dtype(2):
        raise ctx.error(f"the branches have different dtypes: {ctx.dtype(1)}, {ctx.dtype(2)}")

    def pick(cond: Dim, then: Dim, other: Dim) -> Dim | None:
        return then if then == other or cond == 1 else other if cond == 0 else None

    shape = broadcast(ctx, ctx.shape(0), ctx.shape(1), ctx.shape(2))
    ctx.set(0, ctx.dtype(1), shape, mapped(ctx, pick, 3))


def _clip(ctx: Inference) -> None:
    content = ctx.array(0)
    for index, bound in ((1, dmax), (2, dmin)):
        if ctx.has(index) and content is not None:
            limit = ctx.array(index)
            content = None if limit is None else np.asarray(np.frompyfunc(bound, 2, 1)(content, limit), object)
    ctx.set(0, ctx.dtype(), ctx.shape(), content)


def _predicate(ctx: Inference) -> None:
    ctx.set(0, BOOL, ctx.shape())


def _swiglu(ctx: Inference) -> None:
    ctx.set(0, ctx.dtype(), broadcast(ctx, ctx.shape(0), ctx.shape(1)))


def _prelu(ctx: Inference) -> None:
    shape = ctx.shape()
    if shape is not None:
        ctx.expect(1, shape, broadcast=True)
    same(ctx)


declare(
    "Acos Acosh Asin Asinh Atan Atanh Cos Cosh Sin Sinh Tan Tanh Erf Exp Log Sign Softsign",
    "input",
    "elementwise",
    same,
)
declare("Sqrt Reciprocal Round Sigmoid Relu HardSwish Mish Softplus BitwiseNot", "X", "elementwise", same)
declare("Celu Elu Swish ThresholdedRelu", "X", "elementwise", same, {"alpha": 1.0})
declare("Gelu", "X", "elementwise", same, {"approximate": "none"})
declare("HardSigmoid", "X", "elementwise", same, {"alpha": 0.2, "beta": 0.5})
declare("LeakyRelu", "X", "elementwise", same, {"alpha": 0.01})
declare("Selu", "X", "elementwise", same, {"alpha": 1.6732631921768188, "gamma": 1.0507010221481323})
declare("Shrink", "input", "elementwise", same, {"bias": 0.0, "lambd": 0.5})

declare("Abs", "X", "elementwise", _unary(lambda ctx, a: a if ctx.proves(0, a) else -a if ctx.proves(a, 0) else None))
declare("Neg", "X", "elementwise", _unary(lambda ctx, a: -a))
declare("Not", "X", "elementwise", _unary(lambda ctx, a: 1 - a))
declare("Floor", "X", "elementwise", _rounded(floordiv))
declare("Ceil", "X", "elementwise", _rounded(ceildiv))
declare("Identity", "input", "movement", _identity)
declare("Clip", "input min? max?", "elementwise", _clip)
declare("IsNaN", "X", "elementwise", _predicate)
declare("IsInf", "X", "elementwise", _predicate, {"detect_negative": 1, "detect_positive": 1})
declare("Cast", "input", "elementwise", _cast, {"to": INT, "saturate": 1, "round_mode": "up"})
declare("CastLike", "input target_type", "elementwise", _cast_like, {"saturate": 1, "round_mode": "up"})
declare("BitCast", "input", "elementwise", _bit_cast, {"to": INT})

declare("Add", "A B", "elementwise", _binary(lambda ctx, a, b: a + b), commutative=True)
declare("Sub", "A B", "elementwise", _binary(lambda ctx, a, b: a - b))
declare("Mul", "A B", "elementwise", _binary(lambda ctx, a, b: a * b), commutative=True)
declare("Div", "A B", "elementwise", _binary(_div))
declare("Mod", "A B", "elementwise", _binary(_mod), {"fmod": 0})
declare("Pow", "X Y", "elementwise", _pow)
declare("PRelu", "X slope", "elementwise", _prelu)
declare("BitShift", "X Y", "elementwise", _binary(lambda ctx, a, b: None), {"direction": STRING})
declare("BitwiseAnd BitwiseOr BitwiseXor", "A B", "elementwise", _binary(lambda ctx, a, b: None), commutative=True)
declare("Max", "data_0*", "elementwise", _variadic(dmax), commutative=True)
declare("Min", "data_0*", "elementwise", _variadic(dmin), commutative=True)
declare("Sum", "data_0*", "elementwise", _variadic(lambda a, b: a + b), commutative=True)
declare("Mean", "data_0*", "elementwise", _variadic(None), commutative=True)
declare("SwiGLU", "A B", "elementwise", _swiglu, {"alpha": 1.0})

declare("Equal", "A B", "elementwise", _compare(_equal), commutative=True)
declare("Less", "A B", "elementwise", _compare(_less))
declare("LessOrEqual", "A B", "elementwise", _compare(_less_equal))
declare("Greater", "A B", "elementwise", _compare(lambda ctx, a, b: _less(ctx, b, a)))
declare("GreaterOrEqual", "A B", "elementwise", _compare(lambda ctx, a, b: _less_equal(ctx, b, a)))
declare("And", "A B", "elementwise", _compare(_logic(lambda a, b: a & b)), commutative=True)
declare("Or", "A B", "elementwise", _compare(_logic(lambda a, b: a | b)), commutative=True)
declare("Xor", "A B", "elementwise", _compare(_logic(lambda a, b: a ^ b)), commutative=True)
declare("Where", "condition X Y", "elementwise", _where)


def _random_like(ctx: Inference) -> None:
    number = ctx.attr("dtype")
    ctx.set(0, ctx.dtype() if number is None else from_onnx(int(number)), ctx.shape())


declare(
    "RandomNormalLike", "input", "aicpu", _random_like, {"dtype": INT, "seed": FLOAT, "scale": 1.0, "mean": 0.0},
    deterministic=False,
)  # fmt: skip
declare(
    "RandomUniformLike", "input", "aicpu", _random_like, {"dtype": INT, "seed": FLOAT, "high": 1.0, "low": 0.0},
    deterministic=False,
)  # fmt: skip
declare("Bernoulli", "input", "aicpu", _random_like, {"dtype": INT, "seed": FLOAT}, deterministic=False)
