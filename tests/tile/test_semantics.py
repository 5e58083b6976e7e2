"""The meaning of every instruction, on the values that hurt, against Python's exact arithmetic and scalar libm."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest

from codegen.tile import semantics
from codegen.tile.instructions import INSTRUCTIONS
from tensor_types.dtypes import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U32, U64, DType, dtype

I4, U4 = dtype("i4"), dtype("u4")
INF, NAN = math.inf, math.nan
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-40, 3.4e38, -3.4e38, 88.8, -104.0, 7.3, INF, -INF, NAN]
INTEGERS = [I8, U8, I16, I32, U32, I64, U64]


def _ends(dtype: DType) -> list[int]:
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
    high = (1 << (dtype.bits - (dtype.kind == "int"))) - 1
    return sorted({low, low + 1, 0, 1, 2, 7, high // 3, high - 1, high} | ({-1, -7} if low else set()))


def _wrap(value: int, dtype: DType) -> int:
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.kind == "int" and value >> (dtype.bits - 1) else value


def _truncated(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGER_MEANING = {
    "TADD": lambda a, b, w: a + b,
    "TSUB": lambda a, b, w: a - b,
    "TMUL": lambda a, b, w: a * b,
    "TDIV": lambda a, b, w: _truncated(a, b),
    "TREM": lambda a, b, w: 0 if b == 0 else a % b,
    "TFMOD": lambda a, b, w: 0 if b == 0 else a - b * _truncated(a, b),
    "TMAX": lambda a, b, w: max(a, b),
    "TMIN": lambda a, b, w: min(a, b),
    "TAND": lambda a, b, w: a & b,
    "TOR": lambda a, b, w: a | b,
    "TXOR": lambda a, b, w: a ^ b,
    "TSHL": lambda a, b, w: a << b if 0 <= b < w else 0,
    "TSHR": lambda a, b, w: a >> b if 0 <= b < w else (-1 if a < 0 else 0),
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("op", INTEGER_MEANING)
def test_integer_operations_are_total_and_wrap(op: str, dtype: DType) -> None:
    pairs = list(itertools.product(_ends(dtype), repeat=2))
    a, b = (np.array([p[i] for p in pairs], dtype.numpy) for i in (0, 1))
    got = semantics.elementwise(op, [a, b], {}, dtype)
    want = [_wrap(INTEGER_MEANING[op](x, y, dtype.bits), dtype) for x, y in pairs]
    np.testing.assert_array_equal(got, np.array(want, dtype.numpy))
    assert got.dtype == dtype.numpy


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_unary(dtype: DType) -> None:
    a = np.array(_ends(dtype), dtype.numpy)
    for op, meaning in {"TABS": abs, "TNEG": lambda x: -x, "TNOT": lambda x: ~x, "TRELU": lambda x: max(x, 0),
                        "TSIGN": lambda x: (x > 0) - (x < 0)}.items():  # fmt: skip
        want = np.array([_wrap(meaning(int(x)), dtype) for x in a], dtype.numpy)
        np.testing.assert_array_equal(semantics.elementwise(op, [a], {}, dtype), want, err_msg=op)


def _c(function: object, *args: float) -> float:
    try:
        return function(*args)  # type: ignore[operator]
    except OverflowError:
        return INF
    except (ValueError, ZeroDivisionError):
        return NAN


FLOAT_MEANING = {
    "TEXP": lambda x: _c(math.exp, x),
    "TEXP2": lambda x: _c(math.exp2, x),
    "TLOG": lambda x: -INF if x == 0 else _c(math.log, x),
    "TSQRT": lambda x: _c(math.sqrt, x),
    "TTANH": math.tanh,
    "TSIGMOID": lambda x: 1 / (1 + _c(math.exp, -x)),
    "TERF": math.erf,
    "TSIN": lambda x: _c(math.sin, x),
    "TCOS": lambda x: _c(math.cos, x),
    "TRELU": lambda x: 0.0 if x < 0 else x,
    "TABS": abs,
    "TNEG": lambda x: -x,
    "TSIGN": lambda x: x if math.isnan(x) else float((x > 0) - (x < 0)),
    "TFLOOR": lambda x: float(math.floor(x)) if math.isfinite(x) else x,
    "TCEIL": lambda x: float(math.ceil(x)) if math.isfinite(x) else x,
    "TROUND": lambda x: float(round(x)) if math.isfinite(x) else x,
    "TTRUNC": lambda x: float(math.trunc(x)) if math.isfinite(x) else x,
}


@pytest.mark.parametrize("op", FLOAT_MEANING)
@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=str)
def test_float_unary_is_rounded_once(op: str, dtype: DType) -> None:
    with np.errstate(all="ignore"):
        a = np.array(SPECIAL).astype(dtype.numpy)
        want = np.array([FLOAT_MEANING[op](float(x)) for x in a]).astype(dtype.numpy)
    got = semantics.elementwise(op, [a], {}, dtype)
    assert got.dtype == dtype.numpy
    # numpy's and libm's f64 functions may differ in their last bit, which f64 results show.
    rtol = 1e-15 if dtype == F64 else 0
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol)


def test_float_binary_rules() -> None:
    a, b = (np.array([p[i] for p in itertools.product(SPECIAL, repeat=2)], np.float32) for i in (0, 1))
    for op, wins in (("TMAX", max), ("TMIN", min)):
        got = semantics.elementwise(op, [a, b], {}, F32)
        want = [NAN if math.isnan(x) or math.isnan(y) else wins(x, y) for x, y in zip(a, b, strict=True)]
        np.testing.assert_array_equal(got, np.array(want, np.float32))
    for op, function in (("TFMOD", math.fmod),):
        got = semantics.elementwise(op, [a, b], {}, F32)
        want = [_c(function, float(x), float(y)) for x, y in zip(a, b, strict=True)]
        np.testing.assert_array_equal(got, np.array(want, np.float32))
    finite = (a == a) & (b == b) & (b != 0) & (np.abs(a) < INF) & (np.abs(b) < INF)
    got = semantics.elementwise("TREM", [a[finite], b[finite]], {}, F32)
    assert ((got == 0) | (np.sign(got) == np.sign(b[finite]))).all()
    assert (np.abs(got) <= np.abs(b[finite])).all()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(semantics.elementwise("TDIV", [a, b], {}, F32), a / b)


@pytest.mark.parametrize("mode", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_compare_with_nan(mode: str) -> None:
    a, b = np.array([1, 2, NAN, NAN, 2], np.float32), np.array([2, 2, 1, NAN, 1], np.float32)
    got = semantics.elementwise("TCMP", [a, b], {"mode": mode}, BOOL)
    operators = {"eq": lambda x, y: x == y, "ne": lambda x, y: x != y, "lt": lambda x, y: x < y,
                 "le": lambda x, y: x <= y, "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y}  # fmt: skip
    assert got.dtype == np.bool_
    assert list(got) == [operators[mode](float(x), float(y)) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("dtype", [*INTEGERS, I4, U4], ids=str)
@pytest.mark.parametrize("nearest", [False, True])
def test_float_to_integer_saturates(dtype: DType, nearest: bool) -> None:
    values = [0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 2.999, 127.5, 128.0, -129.0, 3e9, -3e9, 2.0**63, -(2.0**63), 2.0**64,
              1e300, -1e300, INF, -INF, NAN]  # fmt: skip
    low, high = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0, (1 << (dtype.bits - (dtype.kind == "int"))) - 1

    def exact(x: float) -> int:
        if math.isnan(x):
            return 0
        if math.isinf(x):
            return high if x > 0 else low
        return min(max(round(x) if nearest else math.trunc(x), low), high)

    got = semantics.convert(np.array(values), dtype, to_nearest=nearest)
    assert got.dtype == dtype.numpy
    assert [int(v) for v in got] == [exact(v) for v in values]


@pytest.mark.parametrize("source", INTEGERS, ids=str)
@pytest.mark.parametrize("dtype", [*INTEGERS, I4, U4], ids=str)
@pytest.mark.parametrize("saturate", [False, True])
def test_integer_to_integer(source: DType, dtype: DType, saturate: bool) -> None:
    values = _ends(source)
    low, high = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0, (1 << (dtype.bits - (dtype.kind == "int"))) - 1
    got = semantics.convert(np.array(values, source.numpy), dtype, saturate=saturate)
    want = [min(max(v, low), high) if saturate else _wrap(v, dtype) for v in values]
    assert [int(v) for v in got] == want


def test_sub_byte_integers_widen() -> None:
    a = np.array([-8, -1, 0, 7]).astype(ml_dtypes.int4)
    np.testing.assert_array_equal(semantics.convert(a, I8), np.array([-8, -1, 0, 7], np.int8))
    np.testing.assert_array_equal(semantics.convert(a, F32), np.array([-8, -1, 0, 7], np.float32))
    b = np.array([0, 9, 15]).astype(ml_dtypes.uint4)
    np.testing.assert_array_equal(semantics.convert(b, I32), np.array([0, 9, 15], np.int32))


def test_conversions_among_floats_and_bool() -> None:
    a = np.array([0.0, -0.0, 1.0, NAN, 1e-40, 65519.0, 65520.0], np.float32)
    assert list(semantics.convert(a, BOOL)) == [False, False, True, True, True, True, True]
    half = semantics.convert(a, F16)
    assert half[5] == 65504 and np.isinf(half[6])
    # Ties to even in bf16: 1 + 2**-8 lies half way.
    tie = semantics.convert(np.array([1 + 2**-8, 1 + 3 * 2**-8], np.float32), BF16)
    assert list(tie.astype(np.float64)) == [1.0, 1 + 2**-6]
    np.testing.assert_array_equal(semantics.convert(np.array([True, False]), F32), [1.0, 0.0])
    np.testing.assert_array_equal(semantics.convert(np.array([True, False]), I8), [1, 0])


def test_reductions() -> None:
    a = np.array([[3, NAN, -2], [NAN, NAN, NAN], [5, 5, -INF]], np.float32)
    run = lambda op, **attrs: semantics.reduce(op, a, {"axes": (1,), **attrs}, F32, None).ravel()  # noqa: E731
    np.testing.assert_array_equal(run("TROWMAX"), [3, -INF, 5])
    np.testing.assert_array_equal(run("TROWMIN"), [-2, INF, -INF])
    np.testing.assert_array_equal(run("TROWMAX", nan=1), [NAN, NAN, 5])
    arg = lambda op, **attrs: list(semantics.reduce(op, a, {"axes": (1,), **attrs}, I64, None).ravel())  # noqa: E731
    assert arg("TROWARGMAX") == [0, 0, 0]
    assert arg("TROWARGMAX", last=1) == [0, 0, 1]
    assert arg("TROWARGMIN") == [2, 0, 2]


def test_reductions_accumulate_and_of_nothing() -> None:
    held = np.array([[10.0]], np.float32)
    a = np.array([[1.0, 2.0]], np.float32)
    assert semantics.reduce("TROWSUM", a, {"axes": (1,)}, F32, held) == 13
    assert semantics.reduce("TROWPROD", a, {"axes": (1,)}, F32, held) == 20
    assert semantics.reduce("TROWMAX", a, {"axes": (1,)}, F32, held) == 10
    none = np.zeros((1, 0), np.float32)
    empty = {"TROWSUM": 0, "TROWPROD": 1, "TROWMAX": -INF, "TROWMIN": INF, "TROWARGMAX": 0}
    for op, neutral in empty.items():
        assert semantics.reduce(op, none, {"axes": (1,)}, F32, None) == neutral
    integers = np.array([[100, 100]], np.int8)
    assert semantics.reduce("TROWSUM", integers, {"axes": (1,)}, I8, None) == -56
    assert semantics.reduce("TROWMAX", integers[:, :0], {"axes": (1,)}, I8, None) == -128


def test_narrow_sums_are_rounded_once() -> None:
    a = np.full((1, 4096), 1, np.float16)
    assert semantics.reduce("TROWSUM", a, {"axes": (1,)}, F16, None) == 4096


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_running_sum(exclusive: int, reverse: int) -> None:
    a = np.array([[1, 2, 4, 8]], np.int32)
    got = semantics.scan(a, {"axis": 1, "exclusive": exclusive, "reverse": reverse}, I32).ravel()
    order = list(a[0])[:: -1 if reverse else 1]
    sums = (
        list(itertools.accumulate(order, initial=0))[: len(order)] if exclusive else list(itertools.accumulate(order))
    )
    assert list(got) == sums[:: -1 if reverse else 1]


def test_matmul_over_several_axes() -> None:
    a, b = (
        np.random.default_rng(1).integers(-128, 127, (2, 5, 3, 4)),
        np.random.default_rng(2).integers(0, 255, (3, 4, 6)),
    )
    got = semantics.matmul(a.astype(np.int8), b.astype(np.uint8), 2, I32, None)
    np.testing.assert_array_equal(got, np.einsum("xyab,abn->xyn", a, b))
    big = np.full((1, 3), 1 << 30, np.int32)
    assert semantics.matmul(big, big.T, 1, I32, None) == _wrap(3 << 60, I32)


def test_every_elementwise_instruction_has_a_meaning() -> None:
    declared = {n for n, d in INSTRUCTIONS.items() if d.kind == "elementwise"}
    assert declared == set(semantics.ELEMENTWISE) | {"TCVT", "TCMP"}
