"""Transcendental functions on vectors: own polynomials for f32, scalar libm calls for f64.

Every function is total and stays within the ulp that `codegen.tile.instructions` states. The coefficients are minimax
fits made for these intervals (weighted least squares iterated to equal ripple); each states its interval.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction

from codegen.llvm.vector_code import Vec, VectorCode, vector_type
from tensor_types.dtypes import F32, F64, I32, I64

_LN2_HIGH = 0.693359375
"""ln 2 in 10 bits: its product with an exponent is exact without FMA."""
_LN2_LOW = math.log(2.0) - _LN2_HIGH

# exp(r) for |r| <= ln(2)/2, the last two coefficients fixed
_EXP = [
    0.0013814599861535163,
    0.008368715411744762,
    0.04166838792986369,
    0.16666520643272864,
    0.49999993448491525,
    1.0,
    1.0,
]
# exp2(r) for |r| <= 1/2
_EXP2 = [0.00015345807505028951, 0.0013399931183077883, 0.00961848897383863, 0.055503287770776816,
         0.2402264689047947, 0.6931472057371976, 1.0]  # fmt: skip
# exp2(r) for |r| <= 1/2 in double precision
_EXP2_DOUBLE = [1.0148389269638413e-07, 1.325936751865684e-06, 1.5252994628623708e-05, 0.0001540343511389139,
                0.0013333557601570845, 0.00961812919184736, 0.05550410866877864, 0.24022650695650483,
                0.6931471805598692, 1.0000000000000115]  # fmt: skip
# (log(1+f) - f + f**2/2) / f**3 for sqrt(1/2) <= 1+f <= sqrt(2)
_LOG = [-0.07634429906916172, 0.12761550360009966, -0.1316019505315255, 0.14201762467058804, -0.16623356479379056,
        0.20001226667458838, -0.2500082105621504, 0.3333333170969489]  # fmt: skip
# (log((1+s)/(1-s)) - 2*s) / s**3 in s**2 for |s| <= 0.1716
_LOG_DOUBLE = [0.16666139241253153, 0.18136573320035831, 0.22222970396106861, 0.28571422711542055,
               0.4000000001906455, 0.6666666666664913]  # fmt: skip
# tanh(x)/x = P(x**2)/Q(x**2) for |x| <= 8.5, beyond which tanh is 1 to one ulp
_TANH_LIMIT = 8.5
_TANH_P = [-1.3356421915249038e-11, 3.209429136597792e-08, 2.86228676487511e-05, 0.0038985290242398146,
           0.13703947567721095, 1.0]  # fmt: skip
_TANH_Q = [1.3307327789917152e-06, 0.0003992083077412907, 0.027356141206529832, 0.47037280223556693, 1.0]
# erf(x)/x = P(x**2)/Q(x**2) for |x| <= 3.9
_ERF_LIMIT = 3.9
_ERF_P = [2.0148508099684667e-08, -1.9632026624172855e-06, 0.0001405954936054239, 0.00363211219740732,
          0.050344361965820573, 0.19817799492110325, 1.1283791123414821]  # fmt: skip
_ERF_Q = [0.0009405409761366902, 0.014207507825678247, 0.114279133338946, 0.5089624211928683, 1.0]
# (sin(r) - r) / r**3 and (cos(r) - 1 + r**2/2) / r**4 in r**2 for |r| <= pi/4
_SIN = [2.7249504657030597e-06, -0.00019840082070100244, 0.008333331859767607, -0.1666666666373286]
_COS = [-2.7296868380927283e-07, 2.4800555879990103e-05, -0.0013888887532971512, 0.041666666663218346]


def _clamp(code: VectorCode, x: Vec, low: float, high: float) -> Vec:
    """x limited to [low, high]; NaN stays, because each comparison with it is false."""
    x = code.select(code.compare("ogt", code.like(low, x), x), code.like(low, x), x)
    return code.select(code.compare("olt", code.like(high, x), x), code.like(high, x), x)


def _to_i32(code: VectorCode, x: Vec) -> Vec:
    """A float vector with small whole values as i32; NaN gives any number (frozen: no undefined behaviour)."""
    number = code.cast("fptosi", x, I32)
    return Vec(code.fn.emit(f"freeze {code.typed(number)}"), I32, x.lanes)


def _has_scalef(code: VectorCode, x: Vec) -> bool:
    return code.host.vector_bytes == 64 and x.lanes in (4, 8, 16)


def _avx512(code: VectorCode, instruction: str, x: Vec, operand: str) -> Vec:
    """An AVX-512 instruction with a second operand, an unused mask and (for whole registers) default exceptions."""
    kind = vector_type(F32, x.lanes)
    name = f"llvm.x86.avx512.mask.{instruction}.ps.{x.lanes * 32}"
    extra = ("i32 4",) if x.lanes == 16 else ()
    mask = "i16 -1" if x.lanes == 16 else "i8 -1"
    return Vec(code.fn.call(kind, name, code.typed(x), operand, f"{kind} zeroinitializer", mask, *extra), F32, x.lanes)


def _scale(code: VectorCode, x: Vec, exponent: Vec) -> Vec:
    """x * 2**exponent for whole `exponent` in [-160, 160], with correct denormals and overflow."""
    if _has_scalef(code, x):
        return _avx512(code, "scalef", x, code.typed(exponent))
    # Two steps keep each power of two a normal number, so that only the last product can round.
    whole = _to_i32(code, exponent)
    half = code.op("ashr", whole, code.like(1, whole))
    for part in (half, code.op("sub", whole, half)):
        bits = code.op("shl", code.op("add", part, code.like(127, part)), code.like(23, part))
        x = code.op("fmul", x, code.from_bits(bits))
    return x


def exp(code: VectorCode, x: Vec) -> Vec:
    """e**x."""
    x = _clamp(code, x, -104.0, 89.0)
    n = code.round_even(code.op("fmul", x, code.like(math.log2(math.e), x)))
    r = code.fma(n, code.like(-_LN2_HIGH, n), x)
    r = code.fma(n, code.like(-_LN2_LOW, n), r)
    return _scale(code, code.horner(r, _EXP), n)


def exp2(code: VectorCode, x: Vec) -> Vec:
    """2**x."""
    if _has_scalef(code, x):
        # The instructions for the fraction and for scaling take infinities and large numbers as they come.
        fraction = _avx512(code, "reduce", x, "i32 8")
        return _scale(code, code.horner(fraction, _EXP2), code.round_even(x))
    x = _clamp(code, x, -151.0, 129.0)
    n = code.round_even(x)
    return _scale(code, code.horner(code.op("fsub", x, n), _EXP2), n)


def log(code: VectorCode, x: Vec) -> Vec:
    """ln x; NaN below 0, -inf at 0."""
    tiny = code.compare("olt", x, code.like(2.0**-126, x))
    scaled = code.select(tiny, code.op("fmul", x, code.like(2.0**23, x)), x)
    bits = code.op("sub", code.bits(scaled), code.const(0x3F3504F3, I32, x.lanes))
    exponent = code.op("ashr", bits, code.like(23, bits))
    mantissa = code.op("sub", code.bits(scaled), code.op("shl", exponent, code.like(23, bits)))
    exponent = code.select(tiny, code.op("sub", exponent, code.like(23, exponent)), exponent)
    e = code.cast("sitofp", exponent, F32)
    f = code.op("fsub", code.from_bits(mantissa), code.like(1.0, x))
    square = code.op("fmul", f, f)
    tail = code.op("fmul", code.op("fmul", square, f), code.horner(f, _LOG))
    tail = code.fma(e, code.like(_LN2_LOW, e), tail)
    tail = code.fma(square, code.like(-0.5, f), tail)
    result = code.fma(e, code.like(_LN2_HIGH, e), code.op("fadd", f, tail))
    result = code.select(code.compare("oeq", x, code.like(math.inf, x)), x, result)
    result = code.select(code.compare("oeq", x, code.like(0.0, x)), code.like(-math.inf, x), result)
    # "ult" is true for NaN as well.
    return code.select(code.compare("ult", x, code.like(0.0, x)), code.like(math.nan, x), result)


def tanh(code: VectorCode, x: Vec) -> Vec:
    """tanh x; never beyond 1, where a root of what is left of 1 would be NaN."""
    x = _clamp(code, x, -_TANH_LIMIT, _TANH_LIMIT)
    z = code.op("fmul", x, x)
    ratio = code.op("fdiv", code.op("fmul", x, code.horner(z, _TANH_P)), code.horner(z, _TANH_Q))
    return _clamp(code, ratio, -1.0, 1.0)


def erf(code: VectorCode, x: Vec) -> Vec:
    """The error function; never beyond 1, like tanh."""
    x = _clamp(code, x, -_ERF_LIMIT, _ERF_LIMIT)
    z = code.op("fmul", x, x)
    ratio = code.op("fdiv", code.op("fmul", x, code.horner(z, _ERF_P)), code.horner(z, _ERF_Q))
    return _clamp(code, ratio, -1.0, 1.0)


def sigmoid(code: VectorCode, x: Vec) -> Vec:
    """1 / (1 + e**-x), from e**-|x| so that small results keep their digits."""
    e = exp(code, code.neg(code.abs(x)))
    top = code.select(code.compare("olt", x, code.like(0.0, x)), e, code.like(1.0, x))
    return code.op("fdiv", top, code.op("fadd", e, code.like(1.0, e)))


_PI_2_HIGH = float(struct.unpack("<f", struct.pack("<f", math.pi / 2))[0])
"""pi/2 in 24 bits; its f64 product with a whole number below 2**29 is exact."""
_TWO_OVER_PI = Fraction(
    int("A2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A424DD2E006492EEA09D1921C", 16),
    1 << 384,
)
_PI_2_LOW = float(1 / _TWO_OVER_PI - Fraction(_PI_2_HIGH))
_NEAR = 2.0**20
"""Below it the angle is reduced by multiples of pi/2 in double precision."""


def _quarter_table() -> list[list[float]]:
    """2**(e-150) * 2/pi modulo 4 for the 256 exponent fields e, in three parts; a mantissa times a part is exact."""
    rows = []
    for field in range(256):
        value = (_TWO_OVER_PI * Fraction(2) ** (field - 150)) % 4
        parts = []
        for bits in (24, 50):
            part = Fraction(int(value * (1 << bits)), 1 << bits)
            parts.append(float(part))
            value -= part
        rows.append([*parts, float(value)])
    return rows


def _quarter_turns(code: VectorCode, x: Vec) -> tuple[Vec, Vec]:
    """(q, r): x = q * pi/2 + r with |r| <= pi/4, q modulo 4 as i32 and r as f64, for |x| <= 2**20."""
    wide = code.cast("fpext", x, F64)
    n = code.round_even(code.op("fmul", wide, code.like(2 / math.pi, wide)))
    r = code.fma(n, code.like(-_PI_2_HIGH, n), wide)
    r = code.fma(n, code.like(-_PI_2_LOW, n), r)
    return _to_i32(code, n), r


def _quarter_turns_far(code: VectorCode, x: Vec) -> tuple[Vec, Vec]:
    """As `_quarter_turns` for any finite x, with a table of 2/pi modulo 4 per exponent."""
    fn, lanes = code.fn, x.lanes
    table = fn.constant("quarter_turns", [v for row in _quarter_table() for v in row])
    bits = code.bits(x)
    field = code.op("and", code.op("lshr", bits, code.like(23, bits)), code.like(255, bits))
    mantissa = code.op("or", code.op("and", bits, code.like(0x7FFFFF, bits)), code.like(0x800000, bits))
    m = code.cast("sitofp", mantissa, F64)
    total: Vec | None = None
    for part in range(3):
        gathered = Vec("poison", F64, lanes)
        for lane in range(lanes):
            entry = fn.emit(f"zext i32 {code.extract(field, lane)} to i64")
            at = fn.offset(table, fn.add(fn.mul(entry, 3), part), "double")
            text = fn.emit(f"insertelement {code.typed(gathered)}, double {fn.load('double', at, 8)}, i64 {lane}")
            gathered = Vec(text, F64, lanes)
        turns = code.op("fmul", m, gathered)
        total = turns if total is None else code.op("fadd", total, turns)
        if part < 2:  # whole multiples of 4 quarter turns are whole turns
            fours = code.round_even(code.op("fmul", total, code.like(0.25, total)))
            total = code.op("fsub", total, code.op("fmul", fours, code.like(4.0, fours)))
    assert total is not None
    sign = code.compare("olt", x, code.like(0.0, x))
    total = code.select(sign, code.neg(total), total)
    n = code.round_even(total)
    r = code.op("fmul", code.op("fsub", total, n), code.like(math.pi / 2, n))
    return _to_i32(code, n), r


def _circular(code: VectorCode, x: Vec, shift: int) -> Vec:
    """sin(x + shift * pi/2)."""
    fn = code.fn
    infinite = code.compare("oeq", code.abs(x), code.like(math.inf, x))
    x = code.select(infinite, code.like(math.nan, x), x)
    q, r = _quarter_turns(code, x)
    far = code.compare("ogt", code.abs(x), code.like(_NEAR, x))
    any_far = fn.call("i1", f"llvm.vector.reduce.or.v{x.lanes}i1", code.typed(far))
    slow, done, before = fn.fresh("far"), fn.fresh("near"), fn.block
    fn.branch_if(any_far, slow, done)
    fn.label(slow)
    far_q, far_r = _quarter_turns_far(code, x)
    far_q, far_r = code.select(far, far_q, q), code.select(far, far_r, r)
    slow = fn.block
    fn.branch(done)
    fn.label(done)
    merged = [
        Vec(
            fn.emit(f"phi {vector_type(a.dtype, a.lanes)} [ {a.text}, %{before} ], [ {b.text}, %{slow} ]"),
            a.dtype,
            a.lanes,
        )
        for a, b in ((q, far_q), (r, far_r))
    ]
    q, r = merged[0], code.cast("fptrunc", merged[1], F32)
    z = code.op("fmul", r, r)
    sine = code.fma(code.op("fmul", z, r), code.horner(z, _SIN), r)
    cosine = code.fma(z, code.like(-0.5, z), code.like(1.0, z))
    cosine = code.fma(code.op("fmul", z, z), code.horner(z, _COS), cosine)
    q = code.op("add", q, code.like(shift, q))
    odd = code.compare("ne", code.op("and", q, code.like(1, q)), code.like(0, q))
    result = code.bits(code.select(odd, cosine, sine))
    flip = code.op("shl", code.op("and", q, code.like(2, q)), code.like(30, q))
    return code.from_bits(code.op("xor", result, flip))


def sin(code: VectorCode, x: Vec) -> Vec:
    """sin x for every finite x; NaN for infinities; the sign of zero stays."""
    return code.select(code.compare("oeq", x, code.like(0.0, x)), x, _circular(code, x, 0))


def cos(code: VectorCode, x: Vec) -> Vec:
    """cos x for every finite x; NaN for infinities."""
    return _circular(code, x, 1)


def _log2_double(code: VectorCode, x: Vec) -> Vec:
    """log2 of a positive normal f64 vector."""
    bits = code.bits(x)
    offset = code.op("sub", bits, code.const(0x3FE6A09E667F3BCD, I64, x.lanes))
    exponent = code.op("ashr", offset, code.like(52, offset))
    mantissa = code.from_bits(code.op("sub", bits, code.op("shl", exponent, code.like(52, bits))))
    one = code.like(1.0, mantissa)
    s = code.op("fdiv", code.op("fsub", mantissa, one), code.op("fadd", mantissa, one))
    z = code.op("fmul", s, s)
    natural = code.fma(code.op("fmul", z, s), code.horner(z, _LOG_DOUBLE), code.op("fadd", s, s))
    e = code.cast("sitofp", code.cast("trunc", exponent, I32), F64)
    return code.fma(natural, code.like(math.log2(math.e), e), e)


def _exp2_double(code: VectorCode, x: Vec) -> Vec:
    """2**x in f64 for results that f32 can hold (others become 0 or inf on narrowing)."""
    x = _clamp(code, x, -200.0, 200.0)
    n = code.round_even(x)
    p = code.horner(code.op("fsub", x, n), _EXP2_DOUBLE)
    exponent = code.op("add", code.cast("sext", _to_i32(code, n), I64), code.const(1023, I64, x.lanes))
    return code.op("fmul", p, code.from_bits(code.op("shl", exponent, code.like(52, exponent))))


def pow(code: VectorCode, a: Vec, b: Vec) -> Vec:
    """a**b as C's pow, computed in double precision."""
    zero, one = code.like(0.0, a), code.like(1.0, a)
    size = code.abs(a)
    wide = code.cast("fpext", size, F64)
    log2 = _log2_double(code, code.select(code.compare("oeq", wide, code.like(0.0, wide)), code.like(1.0, wide), wide))
    log2 = code.select(code.compare("oeq", wide, code.like(0.0, wide)), code.like(-math.inf, wide), log2)
    log2 = code.select(code.compare("oeq", wide, code.like(math.inf, wide)), wide, log2)
    log2 = code.select(code.compare("uno", wide, wide), wide, log2)
    product = code.op("fmul", log2, code.cast("fpext", b, F64))
    result = code.cast("fptrunc", _exp2_double(code, product), F32)
    result = code.select(code.compare("oeq", size, one), code.select(code.compare("uno", b, b), b, one), result)

    whole = code.compare("oeq", code.round_even(b), b)
    half = code.op("fmul", b, code.like(0.5, b))
    odd = _both(code, whole, code.compare("une", code.round_even(half), half))
    negative = code.compare("slt", code.bits(a), code.const(0, I32, a.lanes))
    result = code.select(_both(code, negative, odd), code.neg(result), result)
    finite_negative = _both(code, code.compare("olt", a, zero), code.compare("one", size, code.like(math.inf, a)))
    fractional = code.compare("une", code.round_even(b), b)
    undefined = _both(code, finite_negative, fractional)
    result = code.select(undefined, code.like(math.nan, a), result)
    certain = _either(code, code.compare("oeq", b, zero), code.compare("oeq", a, one))
    return code.select(certain, one, result)


def _both(code: VectorCode, a: Vec, b: Vec) -> Vec:
    return code.op("and", a, b)


def _either(code: VectorCode, a: Vec, b: Vec) -> Vec:
    return code.op("or", a, b)


def per_lane(code: VectorCode, function: str, *args: Vec) -> Vec:
    """A scalar libm function on f64, lane by lane."""
    first = args[0]
    result = Vec("poison", F64, first.lanes)
    for lane in range(first.lanes):
        scalar = code.fn.call("double", function, *(f"double {code.extract(a, lane)}" for a in args))
        text = code.fn.emit(f"insertelement {code.typed(result)}, double {scalar}, i64 {lane}")
        result = Vec(text, F64, first.lanes)
    return result


def _sigmoid_double(code: VectorCode, x: Vec) -> Vec:
    e = per_lane(code, "exp", code.neg(x))
    return code.op("fdiv", code.like(1.0, e), code.op("fadd", e, code.like(1.0, e)))


UNARY: dict[str, Callable[[VectorCode, Vec], Vec]] = {
    "TEXP": exp, "TEXP2": exp2, "TLOG": log, "TTANH": tanh, "TSIGMOID": sigmoid, "TERF": erf, "TSIN": sin, "TCOS": cos,
}  # fmt: skip
LIBM = {"TEXP": "exp", "TEXP2": "exp2", "TLOG": "log", "TTANH": "tanh", "TERF": "erf", "TSIN": "sin", "TCOS": "cos"}


def unary(code: VectorCode, op: str, x: Vec) -> Vec:
    """A transcendental instruction on an f32 or f64 vector."""
    if x.dtype == F64:
        return _sigmoid_double(code, x) if op == "TSIGMOID" else per_lane(code, LIBM[op], x)
    return UNARY[op](code, x)
