"""Conversions between element types, in registers and between memory and registers.

In registers f16 and bf16 are f32 vectors holding representable numbers; `round_to` makes a number representable.
"""

from __future__ import annotations

from codegen.llvm.ranges import Range
from codegen.llvm.vector_code import Vec, VectorCode, register_type
from tensor_types.dtypes import BF16, BOOL, F16, F32, F64, I16, I32, U8, DType


def is_reduced(dtype: DType) -> bool:
    """True for the float types that registers hold as f32."""
    return dtype.name in ("f16", "bf16")


def from_memory(code: VectorCode, text: str, dtype: DType, lanes: int) -> Vec:
    """The register form of a vector as it stands in memory."""
    if dtype == BOOL:
        raw = Vec(text, U8, lanes)
        return code.compare("ne", raw, code.like(0, raw))
    if dtype == BF16:
        wide = code.op("shl", code.cast("zext", Vec(text, I16, lanes), I32), code.const(16, I32, lanes))
        return Vec(code.from_bits(wide).text, BF16, lanes)
    if dtype == F16:
        if code.host.engines.f16_conversion:
            half = code.fn.emit(f"bitcast <{lanes} x i16> {text} to <{lanes} x half>")
            return Vec(code.fn.emit(f"fpext <{lanes} x half> {half} to <{lanes} x float>"), F16, lanes)
        return _half_to_float(code, code.cast("zext", Vec(text, I16, lanes), I32))
    return narrow_to_nibble(code, Vec(text, dtype, lanes))


def to_memory(code: VectorCode, a: Vec) -> str:
    """The text of a vector as it stands in memory; f16 and bf16 are already representable."""
    if a.dtype == BOOL:
        return code.fn.emit(f"zext {code.typed(a)} to <{a.lanes} x i8>")
    if a.dtype == BF16:
        high = code.op("lshr", code.bits(Vec(a.text, F32, a.lanes)), code.const(16, I32, a.lanes))
        return code.cast("trunc", high, I16).text
    if a.dtype == F16:
        if code.host.engines.f16_conversion:
            half = code.fn.emit(f"fptrunc {code.typed(a)} to <{a.lanes} x half>")
            return code.fn.emit(f"bitcast <{a.lanes} x half> {half} to <{a.lanes} x i16>")
        return code.cast("trunc", _float_to_half(code, Vec(a.text, F32, a.lanes)), I16).text
    return a.text


def round_to(code: VectorCode, a: Vec, dtype: DType) -> Vec:
    """An f32 vector rounded to nearest even to f16 or bf16; other dtypes only change their name."""
    if dtype == BF16:
        bits = code.bits(a)
        odd = code.op("and", code.op("lshr", bits, code.like(16, bits)), code.like(1, bits))
        bumped = code.op("add", bits, code.op("add", odd, code.like(0x7FFF, bits)))
        kept = code.op("and", bumped, code.like(-0x10000, bits))
        nan = code.compare("uno", a, a)
        quiet = code.op("and", code.op("or", bits, code.like(0x400000, bits)), code.like(-0x10000, bits))
        return Vec(code.from_bits(code.select(nan, quiet, kept)).text, BF16, a.lanes)
    if dtype == F16:
        if code.host.engines.f16_conversion:
            half = code.fn.emit(f"fptrunc {code.typed(a)} to <{a.lanes} x half>")
            return Vec(code.fn.emit(f"fpext <{a.lanes} x half> {half} to <{a.lanes} x float>"), F16, a.lanes)
        return _half_to_float(code, _float_to_half(code, a))
    return Vec(a.text, dtype, a.lanes)


def _half_to_float(code: VectorCode, half: Vec) -> Vec:
    """Half bits in i32 lanes to f32, with integer operations and one exact multiplication."""
    magnitude = code.op("and", half, code.like(0x7FFF, half))
    scaled = code.op("fmul", code.from_bits(code.op("shl", magnitude, code.like(13, half))),
                     code.const(2.0**112, F32, half.lanes))  # fmt: skip
    special = code.compare("sgt", magnitude, code.like(0x7BFF, half))
    bits = code.bits(scaled)
    bits = code.select(special, code.op("or", bits, code.like(0x7F800000, bits)), bits)
    sign = code.op("shl", code.op("and", half, code.like(0x8000, half)), code.like(16, half))
    return Vec(code.from_bits(code.op("or", bits, sign)).text, F16, half.lanes)


def _float_to_half(code: VectorCode, a: Vec) -> Vec:
    """Half bits in i32 lanes of an f32 vector, rounded to nearest even."""
    bits = code.bits(a)
    magnitude = code.op("and", bits, code.like(0x7FFFFFFF, bits))
    sign = code.op("lshr", code.op("and", bits, code.like(-0x80000000, bits)), code.like(16, bits))
    # Below the least normal half, an addition of 0.5 aligns the mantissa so that the FPU rounds it.
    tiny = code.op("fadd", code.from_bits(magnitude), code.const(0.5, F32, a.lanes))
    tiny_bits = code.op("sub", code.bits(tiny), code.like(0x3F000000, bits))
    odd = code.op("and", code.op("lshr", magnitude, code.like(13, bits)), code.like(1, bits))
    shifted = code.op("add", magnitude, code.op("add", odd, code.like(0xFFF - (112 << 23), bits)))
    normal = code.op("lshr", shifted, code.like(13, bits))
    result = code.select(code.compare("slt", magnitude, code.like(0x38800000, bits)), tiny_bits, normal)
    special = code.select(
        code.compare("sgt", magnitude, code.like(0x7F800000, bits)), code.like(0x7E00, bits), code.like(0x7C00, bits)
    )
    result = code.select(code.compare("sgt", magnitude, code.like(0x477FFFFF, bits)), special, result)
    return code.op("or", result, sign)


def _narrow_to_odd(code: VectorCode, a: Vec) -> Vec:
    """f64 to f32 rounded to odd, so that a further rounding to f16 or bf16 is the only one that counts."""
    near = code.cast("fptrunc", a, F32)
    back = code.cast("fpext", near, F64)
    bits = code.bits(near)
    inexact = code.compare("one", back, a)
    beyond = code.compare("ogt", code.abs(back), code.abs(a))
    towards_zero = code.op("add", bits, code.cast("sext", Vec(beyond.text, BOOL, a.lanes), I32))
    odd = code.op("or", towards_zero, code.like(1, bits))
    return code.from_bits(code.select(inexact, odd, bits))


def convert(code: VectorCode, a: Vec, dtype: DType, to_nearest: bool = False, saturate: bool = False) -> Vec:
    """TCVT: to integers truncates (or rounds to nearest even) and saturates, NaN gives 0; integers wrap or saturate."""
    if a.dtype == dtype:
        return a
    if dtype == BOOL:
        return code.compare("une" if a.dtype.is_float else "ne", a, code.like(0, a))
    if a.dtype.is_float:
        if dtype.is_float:
            return _float_to_float(code, a, dtype)
        wide = Vec(a.text, F32, a.lanes) if is_reduced(a.dtype) else a
        return _float_to_integer(code, code.round_even(wide) if to_nearest else wide, dtype)
    if dtype.is_float:
        return _integer_to_float(code, a, dtype)
    if a.dtype == BOOL:
        return code.cast("zext", a, dtype)
    return _integer_to_integer(code, a, dtype, saturate)


def _float_to_float(code: VectorCode, a: Vec, dtype: DType) -> Vec:
    wide = Vec(a.text, F32, a.lanes) if is_reduced(a.dtype) else a
    if dtype == F64:
        return code.cast("fpext", wide, F64)
    if dtype == F32:
        return code.cast("fptrunc", wide, F32)
    if wide.dtype == F64:
        wide = _narrow_to_odd(code, wide)
    return round_to(code, wide, dtype)


def _float_to_integer(code: VectorCode, a: Vec, dtype: DType) -> Vec:
    signed = dtype.kind == "int"
    if dtype.bits <= 16 or dtype == I32:
        return _through_words(code, a, dtype)
    name = "fptosi" if signed else "fptoui"
    source = f"v{a.lanes}{'f64' if a.dtype == F64 else 'f32'}"
    kind = register_type(dtype)
    callee = f"llvm.{name}.sat.v{a.lanes}{kind}.{source}"
    return Vec(code.fn.call(f"<{a.lanes} x {kind}>", callee, code.typed(a)), dtype, a.lanes)


def _through_words(code: VectorCode, a: Vec, dtype: DType) -> Vec:
    """Saturating conversion by way of i32 lanes, which stays in vectors where LLVM's own takes lane after lane."""
    signed = dtype.kind == "int"
    low = float(-(1 << (dtype.bits - 1))) if signed else 0.0
    high = float((1 << (dtype.bits - signed)) - 1)
    beyond = high + 1 if dtype == I32 and a.dtype == F32 else None
    """What f32 holds in place of the greatest i32: the first number that does not fit."""
    if beyond is not None:
        high = float(2**31 - 128)
    # What was clipped and rounded before needs one instruction, which rounds by itself.
    nearest = a.text in code.unrounded and a.dtype == F32
    a = code.unrounded[a.text] if nearest else a
    known = code.range_of(a)
    inside = a
    if known.least < low:
        inside = code.select(code.compare("ogt", inside, code.like(low, a)), inside, code.like(low, a))
    if known.greatest > high:
        inside = code.select(code.compare("olt", inside, code.like(high, a)), inside, code.like(high, a))
    if not known.numbers:
        inside = code.select(code.compare("uno", a, a), code.like(0.0, a), inside)
    if nearest:
        words = f"<{a.lanes} x i32>"
        text = code.fn.call(words, f"llvm.lrint.v{a.lanes}i32.v{a.lanes}f32", code.typed(inside))
        whole = Vec(text, I32, a.lanes)
    else:
        whole = code.cast("fptosi", inside, I32)
    if beyond is not None and known.greatest > high:
        whole = code.select(code.compare("oge", a, code.like(beyond, a)), code.like(2**31 - 1, whole), whole)
    return whole if dtype == I32 else code.cast("trunc", whole, dtype)


def _integer_to_float(code: VectorCode, a: Vec, dtype: DType) -> Vec:
    cast = "sitofp" if a.dtype.kind == "int" else "uitofp"
    if a.dtype.bits <= 16 or a.dtype == BOOL or not is_reduced(dtype):
        wide = code.cast(cast, a, F64 if dtype == F64 else F32)
        signed = a.dtype.kind == "int"
        bits = 1 if a.dtype == BOOL else a.dtype.bits - signed
        code.ranges[wide.text] = Range(-(2.0**bits) if signed else 0.0, 2.0**bits, True)
        return round_to(code, wide, dtype)
    return round_to(code, _narrow_to_odd(code, code.cast(cast, a, F64)), dtype)


def _integer_to_integer(code: VectorCode, a: Vec, dtype: DType, saturate: bool) -> Vec:
    signed = a.dtype.kind == "int"
    if saturate:
        low = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
        high = (1 << (dtype.bits - (dtype.kind == "int"))) - 1
        source_low = -(1 << (a.dtype.bits - 1)) if signed else 0
        source_high = (1 << (a.dtype.bits - signed)) - 1
        if low > source_low:
            a = code.call("llvm.smax", a, code.like(low, a))
        if high < source_high:
            a = code.call("llvm.smin" if signed else "llvm.umin", a, code.like(high, a))
    source_bits, bits = max(a.dtype.bits, 8), max(dtype.bits, 8)
    if bits > source_bits:
        result = code.cast("sext" if signed else "zext", a, dtype)
    elif bits < source_bits:
        result = code.cast("trunc", a, dtype)
    else:
        result = Vec(a.text, dtype, a.lanes)
    return narrow_to_nibble(code, result)


def narrow_to_nibble(code: VectorCode, a: Vec) -> Vec:
    """Wraps the value of a 4-bit integer that is held in 8 bits; other dtypes stay."""
    if a.dtype.bits >= 8 or not a.dtype.is_integer:
        return a
    four = code.like(4, a)
    return code.op("ashr" if a.dtype.kind == "int" else "lshr", code.op("shl", a, four), four)
